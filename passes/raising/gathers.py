"""Elements that are picked by an index from the data: the log-probability of a label, say.

torch-mlir reads them by ``tensor.extract`` in a body of ``linalg.generic``. Picking the element at position ``t`` of a
row is a reduction over the row: the sum of ``j == t ? x[j] : 0``. As such it may be computed where the row is swept
anyway; alone it is better left as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from covan_mlir.dialects.fred_scalars import UnreadableError, read_op
from covan_mlir.fred.chain import Combine
from covan_mlir.fred.expression import Apply, Const, Expr, Index, Read, walk
from covan_mlir.fred.scalars import is_float

Dims = tuple[int | None, ...]


@dataclass(frozen=True)
class Gather:
    """What the body of an op yields that reads one element of a tensor by position.

    Attributes:
        source: the tensor.
        dims: for each of its dimensions the loop that is the position; None for the first and only one; ``picked`` for
            the one that the data tells.
        picked: the number of a loop that is not the op's: over the positions of that dimension.
        at: the position along it, over ``Read("#k")`` and ``Index("@l")``.
        expr: what is yielded, over these and ``Read("#source")``.
    """

    source: Any
    dims: Dims
    picked: int
    at: Expr
    expr: Expr


SOURCE = "#source"


def picking(dtype: str) -> tuple[Combine, Const]:
    """How the one element that is picked is combined with nothing, and nothing."""
    if dtype == "i1":
        return "or", Const(False, dtype)
    return "add", Const(0.0 if is_float(dtype) else 0, dtype)


def read_gather(op: Any, inputs: int, loops: int, scalar: Any) -> Gather | None:
    """The gather that an op's body is, or None.

    That the index is in range is an assertion in the body, which IREE drops from its own code as well.

    Args:
        inputs: number of the op's inputs.
        loops: number of its loops.
        scalar: gives the expression of a value from outside of the body, or None.
    """
    block = op.regions[0].blocks[0]
    scalars: dict[Any, Expr | None] = {
        argument: Read(f"#{k}", str(argument.type)) if k < inputs else None
        for k, argument in enumerate(block.arguments)
    }
    extract: tuple[Any, Dims, Expr] | None = None

    def known(value: Any) -> Expr | None:
        return scalars[value] if value in scalars else scalar(value)

    for view in block:
        inner = view.operation
        if inner.name == "cf.assert":
            continue
        if inner.name == "linalg.yield":
            values = list(inner.operands)
            expr = known(values[0]) if len(values) == 1 else None
            return None if extract is None or expr is None else Gather(extract[0], extract[1], loops, extract[2], expr)
        if inner.name == "linalg.index":
            scalars[inner.results[0]] = Index(f"@{inner.attributes['dim'].value}")
            continue
        if inner.name == "tensor.extract":
            place = _place([known(value) for value in list(inner.operands)[1:]], loops)
            if extract is not None or place is None:
                return None
            extract = (inner.operands[0], *place)
            scalars[inner.results[0]] = Read(SOURCE, str(inner.results[0].type))
            continue
        args = [known(value) for value in inner.operands]
        some = [arg for arg in args if arg is not None]
        try:
            computed = read_op(inner, tuple(some)) if len(some) == len(args) else None
        except UnreadableError:
            computed = None
        if computed is None:
            return None
        scalars[inner.results[0]] = computed
    return None


def _place(positions: list[Expr | None], loops: int) -> tuple[Dims, Expr] | None:
    """-> (dims, position along the one that the data tells)."""
    dims: list[int | None] = []
    at: Expr | None = None
    for position in positions:
        match position:
            case Index(axis):
                dims.append(int(axis[1:]))
            case Const(value, _) if value == 0:
                dims.append(None)
            case Apply() if at is None and any(isinstance(node, Read) for node in walk(position)):
                dims.append(loops)
                at = position
            case _:
                return None
    own = [dim for dim in dims if dim is not None]
    return None if at is None or len(set(own)) != len(own) else (tuple(dims), at)
