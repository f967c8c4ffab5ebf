"""Machine code of a program's kernels, for those who audit it.

A vmfb holds its CPU executables as ELF images; their debug information says where each kernel begins and ends.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

_MAGIC = b"\x7fELF"


def kernels(program: bytes | memoryview) -> dict[str, bytes]:
    """Machine code of each kernel, by entry point. Empty where the executables carry no debug information."""
    found: dict[str, bytes] = {}
    for image in images(program):
        found |= {name: code for name, (_, code) in located_kernels(image).items()}
    return found


def located_kernels(image: ELFFile) -> dict[str, tuple[int, bytes]]:
    """Address and machine code of each kernel of one executable, by entry point."""
    found: dict[str, tuple[int, bytes]] = {}
    text = image.get_section_by_name(".text")
    if text is None or not image.has_dwarf_info():
        return found
    start, code = text["sh_addr"], text.data()
    for unit in image.get_dwarf_info().iter_CUs():
        for entry in unit.iter_DIEs():
            low, size = entry.attributes.get("DW_AT_low_pc"), entry.attributes.get("DW_AT_high_pc")
            if entry.tag == "DW_TAG_subprogram" and low is not None and size is not None:
                name = entry.attributes["DW_AT_name"].value.decode()
                found[name] = (low.value, code[low.value - start : low.value - start + size.value])
    return found


def text_sections(program: bytes | memoryview) -> list[bytes]:
    """The whole ``.text`` of each executable, in the program's order."""
    sections = (image.get_section_by_name(".text") for image in images(program))
    return [section.data() for section in sections if section is not None]


def images(program: bytes | memoryview) -> Iterator[ELFFile]:
    """The ELF images in a vmfb."""
    data = bytes(program)
    at = data.find(_MAGIC)
    while at >= 0:
        with contextlib.suppress(ELFError):  # four bytes of some weight
            yield ELFFile(io.BytesIO(data[at:]))
        at = data.find(_MAGIC, at + 1)
