"""Marks: the identity of an operation of the program, carried in its location through all later phases."""

from __future__ import annotations

from typing import Any

import iree.compiler.ir as ir

_PREFIX = "site:"


def mark(op: Any, index: int) -> None:
    """Name the operation's location ``site:<index>``; the compiler copies locations to what it makes of it."""
    op.location = ir.Location.name(f"{_PREFIX}{index}", op.location)


def mark_of(location: Any) -> int | None:
    """The outermost mark in a location, or None."""
    while True:
        kind = type(location).__name__
        if kind == "NameLoc":
            if location.name_str.startswith(_PREFIX):
                return int(location.name_str.removeprefix(_PREFIX))
            location = location.child_loc
        elif kind == "FusedLoc":
            return next((m for m in map(mark_of, location.locations) if m is not None), None)
        elif kind == "CallSiteLoc":
            location = location.callee
        else:
            return None


def walk(root: Any, *prefixes: str) -> list[Any]:
    """Operations whose name starts with one of ``prefixes``, in program order."""
    operations: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name.startswith(prefixes):
            operations.append(op)
        return ir.WalkResult.ADVANCE

    root.walk(visit)
    return operations
