"""Line tables of PTX: where the user wrote what an instruction does, and what it was called there."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace

from covan_mlir.lowering.kernels.cuda.kernel import Binary
from covan_mlir.lowering.source_lines import SourceLine, combined

_CALL = re.compile(r"loc\(callsite\((#?\w+) at (#?\w+)\)\)")
_LABEL = "$covan_action"


def flattened(text: str, path: str, name: str) -> str:
    """A module whose locations are lines of the generated source only, named without the folder that it was in.

    What Triton inlined from its own library counts as the line that called it.
    """
    return _CALL.sub(r"loc(\2)", text).replace(f'loc("{path}":', f'loc("{name}":')


def with_source_lines(binary: Binary, source_lines: Mapping[str, SourceLine]) -> Binary:
    """A launch whose line tables name the user's lines, where they are known, instead of the generated ones.

    Actions are named as functions that are inlined there (PTX ISA 7.2, ``.loc``), so that profilers and disassemblers
    show both. It is done in PTX, because Triton's passes take every line for one of the function's own file.

    Args:
        source_lines: of the steps of the chain, in its order.
    """
    launch, text = binary.launch, binary.ptx
    (number,) = re.findall(rf'^\s*\.file\s+(\d+) "{launch.name}\.py"', text, re.M)
    files: dict[str, int] = {}
    labels: dict[str, int] = {}
    first = 1 + max(int(n) for n in re.findall(r"^\s*\.file\s+(\d+) ", text, re.M))
    anchor = ""

    def replaced(match: re.Match[str]) -> str:
        # Where functions are inlined must be the place of something before: the kernel's first line serves for all.
        nonlocal anchor
        before = ""
        if not anchor:
            anchor, before = f"{number} {match.group(2)} {match.group(3)}", match.group(0)
        steps = launch.lines.get(int(match.group(2)), ())
        performed = [source_line for step, source_line in source_lines.items() if step in steps]
        if not performed:
            return match.group(0)
        before += "\n" if before else ""
        source_line = combined(performed)
        file = files.setdefault(source_line.file, first + len(files))
        at, called = f"{file} {source_line.line} {match.group(3)}", ""
        if source_line.action:
            label = labels.setdefault(source_line.action, len(labels))
            called = f", function_name {_LABEL}{label}, inlined_at {anchor}"
        note = f"{os.path.basename(source_line.file)}:{source_line.line} {source_line.action}".rstrip()
        return f"{before}{match.group(1)}{at}{called}\t// {note}"

    text = re.sub(rf"^(\s*\.loc\s+){number} (\d+) (\d+).*$", replaced, text, flags=re.M)
    declared = "".join(f"\t.file\t{n} {_quoted(file)}\n" for file, n in files.items())
    text = re.sub(r"^(\s*\.file\s)", lambda match: declared + match.group(1), text, count=1, flags=re.M)
    return replace(binary, ptx=text + _strings(labels))


def _quoted(file: str) -> str:
    return '"' + file.replace("\\", "/").replace('"', "'") + '"'


def _strings(labels: Mapping[str, int]) -> str:
    if not labels:
        return ""
    rows = [
        f"{_LABEL}{number}:\n" + "".join(f".b8 {byte}\n" for byte in name.encode() + b"\0")
        for name, number in labels.items()
    ]
    return "\t.section\t.debug_str\n\t{\n" + "".join(rows) + "\t}\n"


def renamed(binary: Binary, before: str, after: str) -> Binary:
    """A launch whose symbols begin with another name."""
    launch = binary.launch
    changed = replace(launch, name=launch.name.replace(before, after), source=launch.source.replace(before, after))
    return replace(binary, launch=changed, ptx=binary.ptx.replace(before, after))
