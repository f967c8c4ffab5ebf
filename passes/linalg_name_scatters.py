"""``linalg-name-scatters``: what a scatter computes of its indices is at its location."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from torch_mlir import ir

from covan_mlir.passes.framework.place import enter

_SCATTER = "tm_tensor.scatter"
_PLACED = "tensor.insert_slice"
_COMPUTED = "linalg.generic"


@dataclass(frozen=True)
class LinalgNameScatters:
    """Gives what makes the positions of a scatter, for it alone, the location of the scatter.

    torch-mlir lowers ``aten.scatter`` to positions side by side and a scatter of these. The former get the location of
    what is scattered, as it was when that was first asked for: where two calls scatter the same constant, that of the
    first call.

    Before::

        %i:3 = linalg.generic ... loc("scatter")
        %p = tensor.insert_slice %i#0 into %zero[0, 0] ... loc("scatter")
        %q = tensor.insert_slice %i#1 into %p[0, 1] ... loc("scatter")
        %r = tm_tensor.scatter ins(%i#2, %q) outs(%x) ... loc("scatter_1")

    After, all of them are at ``loc("scatter_1")``.
    """

    name: ClassVar[str] = "linalg-name-scatters"
    op_name: ClassVar[str | None] = "func.func"

    def run(self, op: ir.Operation) -> None:
        def visit(scatter: ir.Operation) -> Any:
            if scatter.name == _SCATTER:
                enter(scatter.location)
                for position in _positions(scatter):
                    _locate(position, scatter.location)
            return ir.WalkResult.ADVANCE

        op.walk(visit)


def _positions(scatter: ir.Operation) -> Iterator[ir.Operation]:
    """What makes the positions of a scatter, and is read for nothing else."""
    mine = {scatter}
    placed = _definition(scatter.operands[1])
    sources: list[ir.Operation] = []
    while placed is not None and placed.name == _PLACED and _readers(placed) <= mine:
        yield placed
        mine.add(placed)
        source = _definition(placed.operands[0])
        sources += [source] if source is not None and source not in sources else []
        placed = _definition(placed.operands[1])
    for source in sources:
        if source.name == _COMPUTED and _readers(source) <= mine:
            yield source


def _definition(value: Any) -> ir.Operation | None:
    return None if isinstance(value.owner, ir.Block) else value.owner


def _readers(op: ir.Operation) -> set[ir.Operation]:
    return {use.owner.operation for result in op.results for use in result.uses}


def _locate(op: ir.Operation, location: ir.Location) -> None:
    def visit(inner: ir.Operation) -> Any:
        inner.location = location
        return ir.WalkResult.ADVANCE

    op.walk(visit)
