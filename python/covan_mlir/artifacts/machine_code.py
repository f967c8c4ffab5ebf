"""Machine code of a program's kernels, for those who audit it.

A vmfb holds its executables for CPUs as ELF images; their debug information says where each kernel begins and ends.
Those for CUDA are PTX, those for Vulkan SPIR-V, in flatbuffers, where each is preceded by its length.
"""

from __future__ import annotations

import contextlib
import io
import re
import struct
from collections.abc import Iterator

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

_MAGIC = b"\x7fELF"
_LENGTH = struct.Struct("<I")
_ENTRY = re.compile(rb"\.visible \.entry (\w+)\(")
_SPIRV = struct.pack("<I", 0x07230203)
_ENTRY_POINT = 15


def kernels(program: bytes | memoryview) -> dict[str, bytes]:
    """Machine code of each kernel, by entry point. Empty where the executables carry no debug information."""
    codes: dict[str, bytes] = {}
    for image in images(program):
        codes |= {name: code for name, (_, code) in located_kernels(image).items()}
    return codes


def ptx(program: bytes | memoryview) -> dict[str, bytes]:
    """PTX module of each kernel of a program for CUDA, by entry point."""
    data = bytes(program)
    modules: dict[str, bytes] = {}
    for match in _ENTRY.finditer(data):
        start = data.rfind(b"\0", 0, match.start()) + 1
        end = data.find(b"\0", start)
        if start >= _LENGTH.size and _LENGTH.unpack_from(data, start - _LENGTH.size)[0] == end - start:
            modules[match.group(1).decode()] = data[start:end]
    return modules


def spirv(program: bytes | memoryview) -> dict[str, bytes]:
    """SPIR-V module of each kernel of a program for Vulkan, by entry point (SPIR-V specification, section 2.3)."""
    data = bytes(program)
    modules: dict[str, bytes] = {}
    at = data.find(_SPIRV)
    while at >= 0:
        if at >= _LENGTH.size and (module := _module(data, at)) is not None:
            modules |= dict.fromkeys(_entry_points(module), module)
        at = data.find(_SPIRV, at + 1)
    return modules


def _module(data: bytes, at: int) -> bytes | None:
    (words,) = _LENGTH.unpack_from(data, at - _LENGTH.size)
    return data[at : at + 4 * words] if 5 <= words <= (len(data) - at) // 4 else None


def _entry_points(module: bytes) -> Iterator[str]:
    words = struct.unpack(f"<{len(module) // 4}I", module)
    at = 5  # after the header
    while at < len(words):
        operation, length = words[at] & 0xFFFF, words[at] >> 16
        if length == 0:
            return  # four bytes of some weight, not a module
        if operation == _ENTRY_POINT:
            text = module[4 * (at + 3) : 4 * (at + length)]
            yield text.partition(b"\0")[0].decode(errors="replace")
        at += length


def located_kernels(image: ELFFile) -> dict[str, tuple[int, bytes]]:
    """Address and machine code of each kernel of one executable, by entry point."""
    located: dict[str, tuple[int, bytes]] = {}
    text = image.get_section_by_name(".text")
    if text is None or not image.has_dwarf_info():
        return located
    start, code = text["sh_addr"], text.data()
    for unit in image.get_dwarf_info().iter_CUs():
        for entry in unit.iter_DIEs():
            low, size = entry.attributes.get("DW_AT_low_pc"), entry.attributes.get("DW_AT_high_pc")
            if entry.tag == "DW_TAG_subprogram" and low is not None and size is not None:
                name = entry.attributes["DW_AT_name"].value.decode()
                located[name] = (low.value, code[low.value - start : low.value - start + size.value])
    return located


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
