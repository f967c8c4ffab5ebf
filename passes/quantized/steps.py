"""Tensors of floats that are steps of a scale: ``(steps - zero) * scale``, of steps of 8 bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from torch_mlir import ir

from covan_mlir.passes.framework.views import RESHAPES, TRANSPOSE

PAD = "tensor.pad"
_WIDENINGS = {"arith.sitofp": True, "arith.uitofp": False}
"""Casts of steps to floats, and whether these have a sign."""
_EXTENSIONS = {"arith.extsi": True, "arith.extui": False}
"""Casts of steps to wider integers, from which zero points are taken before floats are made of them."""


@dataclass(frozen=True)
class Factor:
    """A tensor of scales.

    Attributes:
        value: the tensor.
        at: for each dimension, which of the tensor of floats it goes along; None: it has one position.
        parts: of the tensor's dimensions, the sizes of what each is taken apart into: those are the dimensions; empty:
            none is.
        runs: for each dimension, how many positions of the tensor of floats have the same number; empty: one.
    """

    value: Any
    at: tuple[int | None, ...]
    parts: tuple[tuple[int, ...], ...] = ()
    runs: tuple[int, ...] = ()


@dataclass(frozen=True)
class Steps:
    """What a tensor of floats is made of.

    Attributes:
        source: the steps, of 8 bits.
        signed: they have a sign.
        zero: the step that stands for 0.
        scale: what a step stands for.
        factors: tensors of what it stands for besides.
        ops: from the one that reads the steps to the one that gives the floats.
        between: the least step and the largest one, where others are taken for these.
        zeros: a tensor of steps that stand for 0, of floats or of wider integers, less than which ``zero`` is.
    """

    source: Any
    signed: bool
    zero: int = 0
    scale: float = 1.0
    factors: tuple[Factor, ...] = ()
    ops: tuple[ir.Operation, ...] = ()
    between: tuple[int, int] | None = None
    zeros: Factor | None = None

    @property
    def views(self) -> tuple[ir.Operation, ...]:
        """Those of the ops that only lay out what they read."""
        return tuple(op for op in self.ops if op.name in (TRANSPOSE, PAD) or op.name in RESHAPES)

    @property
    def transposed(self) -> bool:
        """Whether dimensions change places."""
        return any(view.name == TRANSPOSE for view in self.views)

    @property
    def in_runs(self) -> bool:
        """Whether several positions share a number of some factor, in groups."""
        return any(run > 1 for factor in self.factors for run in factor.runs)

    @property
    def padded(self) -> bool:
        """Whether there are zeros around them."""
        return any(op.name == PAD for op in self.ops)


@dataclass(frozen=True)
class Integers:
    """What a tensor is made of by ops that lay integers of 8 bits out and widen them, and by nothing else.

    Attributes:
        ops: in order.
    """

    source: Any
    signed: bool
    ops: tuple[ir.Operation, ...]

    @staticmethod
    def of(value: Any) -> Integers | None:
        """None: it is something else."""
        ops: list[ir.Operation] = []
        signed = True
        while not _holds_steps(value):
            op = maker(value)
            cast = None if op is None else _cast(op, {**_EXTENSIONS, **_WIDENINGS})
            if op is None or (cast is None and op.name != TRANSPOSE and op.name not in RESHAPES):
                return None
            signed = signed if cast is None else {**_EXTENSIONS, **_WIDENINGS}[cast.name]
            ops.insert(0, op)
            value = op.operands[0]
        source, views = _viewed(value)
        return Integers(source, signed, (*views, *ops))

    @property
    def views(self) -> tuple[ir.Operation, ...]:
        """Those of the ops that lay out."""
        return tuple(op for op in self.ops if op.name == TRANSPOSE or op.name in RESHAPES)


def steps_of(value: Any) -> Steps | None:
    """How a tensor of floats is made of steps; None where it is not."""
    op = maker(value)
    if op is None:
        return None
    if op.name == TRANSPOSE or op.name in RESHAPES:
        return _laid_out(op)
    if op.name == PAD:
        return _padded(op)
    if (inner := _operands(op, "arith.mulf")) is not None:
        whole, factor = inner
        steps = steps_of(whole)
        if steps is None:
            return None
        if isinstance(factor, float):
            return replace(steps, scale=steps.scale * factor, ops=(*steps.ops, op))
        return replace(steps, factors=(*steps.factors, factor), ops=(*steps.ops, op))
    if (inner := _operands(op, "arith.subf", ordered=True)) is not None:
        whole, zero = inner
        steps = steps_of(whole)
        return None if steps is None or steps.factors or steps.scale != 1 else _less(steps, zero, op)
    return _widened(op)


def _less(steps: Steps, zero: float | Factor, op: ir.Operation) -> Steps | None:
    """Steps that a zero point, or a tensor of such, is taken off by an op."""
    if isinstance(zero, Factor):
        return None if steps.zeros is not None else replace(steps, zeros=zero, ops=(*steps.ops, op))
    return None if zero % 1 else replace(steps, zero=steps.zero + int(zero), ops=(*steps.ops, op))


def maker(value: Any) -> ir.Operation | None:
    """The op that gives a value; None of an argument."""
    return None if isinstance(value.owner, ir.Block) else value.owner.operation


def is_whole_number(value: Any, number: float) -> bool:
    """Whether all of a tensor, or a number, is the same constant: that number."""
    return _number(value) == number


def _laid_out(op: ir.Operation) -> Steps | None:
    steps = steps_of(op.operands[0])
    if steps is None:
        return None
    every = (*steps.factors, *(() if steps.zeros is None else (steps.zeros,)))
    if not every:
        return replace(steps, ops=(*steps.ops, op))
    places = _places(op)
    moved = [_moved(one, places, op.results[0].type.shape) or _in_runs(one, op) for one in every]
    known = tuple(one for one in moved if one is not None)
    if len(known) < len(moved):
        return None
    count = len(steps.factors)
    zeros = None if steps.zeros is None else known[count]
    return replace(steps, factors=known[:count], zeros=zeros, ops=(*steps.ops, op))


def _moved(factor: Factor, places: dict[int, tuple[int, ...]], sizes: Sequence[int]) -> Factor | None:
    """A factor of what is laid out anew.

    Args:
        places: as `_places` gives them.
        sizes: of the result.
    """
    if any(dim is not None and dim not in places for dim in factor.at):
        return None
    to = [(None,) if dim is None else places[dim] for dim in factor.at]
    at = tuple(dim for dims in to for dim in dims)
    if all(len(dims) == 1 for dims in to):
        return replace(factor, at=at)
    if factor.parts or factor.runs:
        return None
    parts = (
        tuple(size if dim is None else sizes[dim] for dim in dims)
        for dims, size in zip(to, factor.value.type.shape, strict=True)
    )
    return Factor(factor.value, at, tuple(parts))


def _in_runs(factor: Factor, op: ir.Operation) -> Factor | None:
    """A factor of what a view joins dimensions of: of two that become one it goes along the first alone."""
    if op.name != "tensor.collapse_shape" or factor.parts or factor.runs:
        return None
    before = op.operands[0].type.shape
    groups = [[int(one) for one in group] for group in op.attributes["reassociation"]]
    at: list[int | None] = []
    runs: list[int] = []
    for dim in factor.at:
        if dim is None:
            at.append(None)
            runs.append(1)
            continue
        joined = next(n for n, group in enumerate(groups) if dim in group)
        place = groups[joined].index(dim)
        ahead, behind = (
            [before[one] for one in part] for part in (groups[joined][:place], groups[joined][place + 1 :])
        )
        if any(size < 0 for size in behind) or any(size != 1 for size in ahead):
            return None
        at.append(joined)
        runs.append(prod(behind))
    return replace(factor, at=tuple(at), runs=tuple(runs))


def _places(op: ir.Operation) -> dict[int, tuple[int, ...]]:
    """For dimensions of what is laid out anew, which of the result's they are; one that is joined with another one of
    more than a position is none."""
    if op.name == TRANSPOSE:
        return {source: (result,) for result, source in enumerate(op.attributes["permutation"])}
    before, after = op.operands[0].type.shape, op.results[0].type.shape
    if op.name == "tensor.cast":
        return {dim: (dim,) for dim in range(len(before))}
    groups = [[int(dim) for dim in group] for group in op.attributes["reassociation"]]
    if op.name == "tensor.expand_shape":
        long = [tuple(dim for dim in many if after[dim] != 1) for many in groups]
        return {one: dims or (many[0],) for one, (dims, many) in enumerate(zip(long, groups, strict=True))}
    joined = [[dim for dim in many if before[dim] != 1] for many in groups]
    return {dims[0]: (one,) for one, dims in enumerate(joined) if len(dims) == 1}


def _padded(op: ir.Operation) -> Steps | None:
    """Steps with such around them that stand for 0."""
    (*computed, end) = [view.operation for view in op.regions[0].blocks[0]]
    steps = steps_of(op.operands[0])
    if (
        computed
        or steps is None
        or steps.factors
        or steps.zeros
        or _number(end.operands[0]) != 0
        or len(op.operands) > 1
    ):
        return None
    low, high = (-128, 127) if steps.signed else (0, 255)
    return replace(steps, ops=(*steps.ops, op)) if low <= steps.zero <= high else None


def _widened(op: ir.Operation) -> Steps | None:
    """Steps as floats, perhaps by way of wider integers."""
    cast = _cast(op, _WIDENINGS)
    if cast is None:
        return None
    if _holds_steps(op.operands[0]):
        source, views = _viewed(op.operands[0])
        return _clamped(source, (*views, op)) or Steps(source, _WIDENINGS[cast.name], ops=(*views, op))
    steps = _as_integers(op.operands[0]) if _WIDENINGS[cast.name] else None
    return replace(steps, ops=(*steps.ops, op)) if steps is not None else None


def _viewed(value: Any) -> tuple[Any, tuple[ir.Operation, ...]]:
    """-> (what is laid out, the ops that lay it out, in order)."""
    views: list[ir.Operation] = []
    while (op := maker(value)) is not None and (op.name == TRANSPOSE or op.name in RESHAPES):
        views.insert(0, op)
        value = op.operands[0]
    return value, tuple(views)


def _clamped(value: Any, behind: Sequence[ir.Operation]) -> Steps | None:
    """Steps that are first taken for the nearest ones of few, in wider integers.

    Args:
        behind: what makes floats of them.
    """
    inner = maker(value)
    if inner is None or _cast(inner, {"arith.trunci": True}) is None:
        return None
    clamp = maker(inner.operands[0])
    between = _bounds(clamp) if clamp is not None else None
    if clamp is None or between is None or (widened := maker(clamp.operands[0])) is None:
        return None
    cast = _cast(widened, _EXTENSIONS)
    if cast is None or not _holds_steps(widened.operands[0]):
        return None
    ops = (widened, clamp, inner, *behind)
    return Steps(widened.operands[0], _EXTENSIONS[cast.name], ops=ops, between=between)


def _bounds(op: ir.Operation) -> tuple[int, int] | None:
    """The numbers between which an op brings integers, and nothing else."""
    body = _body(op)
    if body is None or [inner.name for inner in body[1]] != ["arith.maxsi", "arith.minsi", "linalg.yield"]:
        return None
    block, (above, below, end) = body
    low, high = _number(above.operands[1]), _number(below.operands[1])
    inside = above.operands[0] == block.arguments[0] and below.operands[0] == above.results[0]
    if low is None or high is None or not inside or end.operands[0] != below.results[0] or not _along_all(op, 0):
        return None
    return int(low), int(high)


def _as_integers(value: Any) -> Steps | None:
    """Steps as wider integers, less their zero point."""
    op = maker(value)
    if op is None:
        return None
    if (cast := _cast(op, _EXTENSIONS)) is not None:
        source, views = _viewed(op.operands[0])
        return Steps(source, _EXTENSIONS[cast.name], ops=(*views, op)) if _holds_steps(source) else None
    if (inner := _operands(op, "arith.subi", ordered=True)) is None:
        return None
    whole, zero = inner
    steps = _as_integers(whole)
    return None if steps is None else _less(steps, zero, op)


def _holds_steps(value: Any) -> bool:
    return bool(value.type.element_type == ir.IntegerType.get_signless(8))


def _cast(op: ir.Operation, casts: Mapping[str, bool]) -> ir.Operation | None:
    """What casts in an op that does nothing else, of some casts."""
    body = _body(op)
    if body is None or len(op.operands) != 2:
        return None
    block, inside = body
    casting = [inner for inner in inside if inner.name in casts]
    plain = len(inside) == 2 and casting == inside[:1] and casting[0].operands[0] == block.arguments[0]
    return casting[0] if plain and inside[1].operands[0] == casting[0].results[0] and _along_all(op, 0) else None


def _operands(op: ir.Operation, name: str, *, ordered: bool = False) -> tuple[Any, float | Factor] | None:
    """The tensor of as many elements as the result, and what else an element-wise operation on two reads."""
    body = _body(op)
    if body is None:
        return None
    block, inside = body
    result = maker(inside[-1].operands[0])
    if result is None or result not in inside or result.name != name:
        return None
    if any(inner.name not in (name, "arith.truncf", "arith.extf", "linalg.yield") for inner in inside):
        return None
    sides = [_side(op, block, operand) for operand in result.operands]
    for whole, other in ((0, 1),) if ordered else ((0, 1), (1, 0)):
        one, second = sides[whole], sides[other]
        if isinstance(one, Factor) and second is not None and _is_all(op, one):
            return one.value, _narrowed(second) if isinstance(second, Factor) else second
    return None


def _narrowed(factor: Factor) -> Factor:
    """A factor whose dimensions of one position go along none."""
    sizes = factor.value.type.shape
    return replace(factor, at=tuple(None if size == 1 else dim for dim, size in zip(factor.at, sizes, strict=True)))


def _side(op: ir.Operation, block: ir.Block, value: Any) -> float | Factor | None:
    """What an operand inside of an op's body is."""
    for n, argument in enumerate(list(block.arguments)[: len(op.operands) - len(op.results)]):
        if value == argument:
            operand = op.operands[n]
            if (number := _number(operand)) is not None:
                return number
            at = _positions(op, n)
            return None if at is None else Factor(operand, at)
    inner = maker(value)
    if inner is not None and inner.name in ("arith.truncf", "arith.extf"):
        return _number(inner.operands[0])
    return _number(value)


def _number(value: Any) -> float | None:
    """The constant that a number is, or all of a tensor."""
    op = maker(value)
    if op is not None and (op.name == "linalg.fill" or op.name in RESHAPES):
        return _number(op.operands[0])
    if op is not None and (inner := _cast(op, _WIDENINGS)) is not None:
        return _number(op.operands[0]) if inner.name == "arith.sitofp" else None
    if op is None or op.name != "arith.constant":
        return None
    attribute = op.attributes["value"]
    if isinstance(attribute, ir.DenseElementsAttr):
        if not attribute.is_splat:
            return None
        attribute = attribute.get_splat_value()
    return float(attribute.value) if isinstance(attribute, ir.FloatAttr | ir.IntegerAttr) else None


def _body(op: ir.Operation) -> tuple[ir.Block, list[ir.Operation]] | None:
    """The body of an op that computes one result element by element."""
    if op.name != "linalg.generic" or len(op.results) != 1:
        return None
    if any("parallel" not in str(kind) for kind in op.attributes["iterator_types"]):
        return None
    block = op.regions[0].blocks[0]
    return (block, [view.operation for view in block]) if _along_all(op, len(op.operands) - 1) else None


def _is_all(op: ir.Operation, factor: Factor) -> bool:
    return factor.at == tuple(range(len(op.attributes["iterator_types"])))


def _along_all(op: ir.Operation, number: int) -> bool:
    """Whether an operand is read or written in the order of the loops."""
    return _positions(op, number) == tuple(range(len(op.attributes["iterator_types"])))


def _positions(op: ir.Operation, number: int) -> tuple[int | None, ...] | None:
    """The loop that indexes each dimension of an operand, None of one position; None: it is not that simple."""
    positions: list[int | None] = []
    for result in ir.AffineMapAttr(op.attributes["indexing_maps"][number]).value.results:
        if isinstance(result, ir.AffineDimExpr):
            positions.append(result.position)
        elif isinstance(result, ir.AffineConstantExpr) and result.value == 0:
            positions.append(None)
        else:
            return None
    return tuple(positions)


def composed(factor: Factor, loops: Sequence[int | None]) -> tuple[int | None, ...]:
    """A factor's dimensions by the loops that index the dimensions of the tensor of floats."""
    return tuple(None if dim is None else loops[dim] for dim in factor.at)
