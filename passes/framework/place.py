"""Where a pass is: the operation that it looks at, for what is said when it crashes there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import Any

from torch_mlir import ir

# The location, not the operation: a pass that crashes may have erased that.
_place: ContextVar[ir.Location | None] = ContextVar("covan_pass_place", default=None)


def place() -> ir.Location | None:
    """Where the pass that runs, or ran last, was; None if it has not said so."""
    return _place.get()


def enter(location: ir.Location | None) -> None:
    """Says where the pass that runs is; None: nowhere yet."""
    _place.set(location)


def visited(views: Iterable[Any]) -> Iterator[ir.Operation]:
    """Operations one after the other, each of which is the pass's place until the next."""
    for view in views:
        operation: ir.Operation = view.operation
        enter(operation.location)
        yield operation
