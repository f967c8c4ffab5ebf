"""The elements of ``dense_resource`` attributes, which the bindings make of buffers and do not give back.

They are read from the bytecode of an operation that has nothing else: https://mlir.llvm.org/docs/BytecodeFormat
"""

from __future__ import annotations

import io
from typing import Any

_RESOURCES = 5
"""Number of the section with the data of resources; the one resource of an operation ends it."""


def data(attribute: Any, size: int) -> bytes:
    """What is stored of a resource of IREE's context, in which the caller is.

    Args:
        size: in bytes.

    Raises:
        ValueError: that many are not stored, or the bytecode is of another form.
    """
    import iree.compiler.ir as ir

    with ir.Location.unknown():
        holder = ir.Operation.create("builtin.module", attributes={"covan.held": attribute}, regions=1)
        holder.regions[0].blocks.append()
        out = io.BytesIO()
        holder.write_bytecode(out)
    section = _section(out.getvalue(), _RESOURCES)
    if len(section) < size:
        raise ValueError(f"{len(section)} bytes of a resource of {size}")
    return bytes(section[len(section) - size :])


def _section(bytecode: bytes, wanted: int) -> memoryview:
    view = memoryview(bytecode)
    _, position = _number(view, 4)  # behind the magic number, the version
    position = bytecode.index(0, position) + 1  # and who wrote it
    while position < len(view):
        kind = view[position]
        length, position = _number(view, position + 1)
        if kind & 0x80:
            alignment, position = _number(view, position)
            position += -position % alignment
        if kind & 0x7F == wanted:
            return view[position : position + length]
        position += length
    raise ValueError("bytecode without resources")


def _number(view: memoryview, position: int) -> tuple[int, int]:
    """A number of variable length, and where it ends: zeros below the lowest bit set count the bytes that follow."""
    first = view[position]
    if not first:
        return int.from_bytes(view[position + 1 : position + 9], "little"), position + 9
    count = (first & -first).bit_length()
    return int.from_bytes(view[position : position + count], "little") >> count, position + count
