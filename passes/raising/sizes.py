"""Sizes that are known at run time only, as expressions: which dimensions of which tensors are the same, and where
scalars that are computed from sizes come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from torch_mlir import ir

from covan_mlir.dialects.fred_scalars import UnreadableError, read_op
from covan_mlir.fred.expression import Apply, Const, Expr, Extent, rebuild, walk

Groups = list[tuple[tuple[int, ...], tuple[int, ...]]]
"""Dimensions of one shape and of another that hold the same elements."""

Monomial = tuple[int, Counter[str]]
"""A number, and names of sizes, times each other."""

Sum = tuple[int, Counter[Extent]]
"""A number, and sizes as often as they are added."""

_SAME = ("arith.index_cast", "arith.extsi", "arith.trunci")
_QUOTIENTS = ("arith.divui", "arith.divsi", "arith.floordivsi")
# An expression that grows beyond this is no size that anybody would recognise.
_LARGEST = 32


def product(expr: Expr) -> Monomial | None:
    """An expression over sizes as a product, if it is one."""
    match expr:
        case Const(value, dtype) if dtype[0] == "i":
            return int(value), Counter()
        case Extent(name):
            return 1, Counter([name])
        case Apply(op, (inner,), _) if op in _SAME:
            return product(inner)
        case Apply("arith.muli" | "arith.divui" | "arith.divsi" | "arith.floordivsi" as op, (one, other), _):
            a, b = product(one), product(other)
            if a is None or b is None:
                return None
            return (a[0] * b[0], a[1] + b[1]) if op not in _QUOTIENTS else _quotient(a, b)
    return None


def linear(expr: Expr) -> Sum | None:
    """An expression over sizes as a sum, if it is one."""
    match expr:
        case Const(value, dtype) if dtype[0] == "i":
            return int(value), Counter()
        case Extent():
            return 0, Counter([expr])
        case Apply(op, (inner,), _) if op in _SAME:
            return linear(inner)
        case Apply("arith.addi" | "arith.subi" | "arith.muli" as op, (one, other), _):
            a, b = linear(one), linear(other)
            if a is None or b is None:
                return None
            if op == "arith.muli":
                if a[1] and b[1]:
                    return None
                return _added((0, Counter()), a if a[1] else b, (b if a[1] else a)[0])
            return _added(a, b, 1 if op == "arith.addi" else -1)
    return None


def _added(a: Sum, b: Sum, times: int) -> Sum:
    counts = {name: a[1][name] + times * b[1][name] for name in {**a[1], **b[1]}}
    return a[0] + times * b[0], Counter({name: count for name, count in counts.items() if count})


def _quotient(a: Monomial, b: Monomial) -> Monomial | None:
    if b[0] == 0 or a[0] % b[0] or b[1] - a[1]:
        return None
    return a[0] // b[0], a[1] - b[1]


def regroup(source: Sequence[Expr], result: Sequence[Expr]) -> Groups:
    """Which dimensions of a tensor hold the same elements as which of one that has them in another shape.

    What is the same is taken off at both ends; all that is left in between is one group.
    """
    left, right = [product(size) for size in source], [product(size) for size in result]
    first = _matched(left, right)
    n, m = (max((d[-1] for g in first if (d := g[side])), default=-1) + 1 for side in (0, 1))
    rest_left, rest_right = left[n:], right[m:]
    last = _matched(rest_left[::-1], rest_right[::-1])
    ends = [(tuple(len(left) - 1 - i for i in a[::-1]), tuple(len(right) - 1 - i for i in b[::-1])) for a, b in last]
    stop = (min([len(left), *(i for a, _ in ends for i in a)]), min([len(right), *(i for _, b in ends for i in b)]))
    between = (tuple(range(n, stop[0])), tuple(range(m, stop[1])))
    return [*first, *([between] if any(between) else []), *ends[::-1]]


def _matched(left: Sequence[Monomial | None], right: Sequence[Monomial | None]) -> Groups:
    # From the first dimensions on: the shortest runs on both sides whose products are the same.
    groups: Groups = []
    at = [0, 0]
    while at[0] < len(left) and at[1] < len(right):
        ends = [at[0] + 1, at[1] + 1]
        while True:
            runs = left[at[0] : ends[0]], right[at[1] : ends[1]]
            totals = [_total(run) for run in runs]
            if totals[0] is None or totals[1] is None:
                return groups
            if totals[0] == totals[1]:
                break
            side = 0 if _quotient(totals[1], totals[0]) is not None else 1
            if (side and _quotient(totals[0], totals[1]) is None) or ends[side] == len((left, right)[side]):
                return groups
            ends[side] += 1
        groups.append((tuple(range(at[0], ends[0])), tuple(range(at[1], ends[1]))))
        at = ends
    return groups


def _total(run: Sequence[Monomial | None]) -> Monomial | None:
    known = [one for one in run if one is not None]
    if len(known) != len(run):
        return None
    return prod(number for number, _ in known), sum((names for _, names in known), Counter())


class SizeReader:
    """Reads what the ops of a block, one after the other, say about sizes.

    Args:
        number: of a value.

    Attributes:
        extents: the sizes of a tensor's dimensions, by its number. What nothing else is known about is an `Extent`
            named after the value and the dimension; what is computed but is no product, one that stands for that.
        scalars: integers, and what is computed from them alone.
        sums: what sizes stand for that are sums of others.
    """

    def __init__(self, number: Callable[[Any], int]) -> None:
        self._number = number
        self.extents: dict[int, tuple[Expr, ...]] = {}
        self.scalars: dict[int, Expr] = {}
        self.sums: dict[Extent, Sum] = {}
        self._computed: dict[Any, Extent] = {}

    def argument(self, value: Any, names: Sequence[str]) -> None:
        """Notes what an argument's sizes are called; of an integer, what it is called as a size."""
        if isinstance(value.type, ir.RankedTensorType):
            named = [*names, *("" for _ in self._fresh(value))]
            self.extents[self._number(value)] = tuple(
                Extent(f"%{name}") if name and isinstance(size, Extent) else size
                for size, name in zip(self._fresh(value), named, strict=False)
            )
        elif str(value.type).startswith("i") and names and names[0]:
            self.scalars[self._number(value)] = Extent(f"%{names[0]}")

    def of(self, value: Any) -> tuple[Expr, ...]:
        """The sizes of a tensor."""
        number = self._number(value)
        if number not in self.extents:
            self.extents[number] = self._fresh(value)
        return self.extents[number]

    def _fresh(self, value: Any) -> tuple[Expr, ...]:
        number = self._number(value)
        return tuple(
            Const(size, "index") if size >= 0 else Extent(f"%{number}.{dimension}")
            for dimension, size in enumerate(value.type.shape)
        )

    def _scalar(self, value: Any) -> Expr | None:
        number = self._number(value)
        if number not in self.scalars and str(value.type).startswith("i"):
            self.scalars[number] = Extent(f"%{number}")  # an integer of which nothing is known but that it is itself
        return self.scalars.get(number)

    def read(self, op: Any) -> None:
        """Notes what an op says."""
        if op.name == "tensor.dim":
            at = self._scalar(op.operands[1])
            if isinstance(at, Const) and isinstance(op.operands[0].type, ir.RankedTensorType):
                self.scalars[self._number(op.results[0])] = self.of(op.operands[0])[int(at.value)]
            return
        if op.name.startswith(("arith.", "math.")):
            self._read_scalar(op)
            return
        if op.name == "affine.apply":
            affine = op.attributes["map"].value
            operands = [self._scalar(operand) for operand in op.operands]
            size = _affine(affine.results[0], operands, affine.n_dims)
            if size is not None:
                self.scalars[self._number(op.results[0])] = size
            return
        for k, result in enumerate(op.results):
            if not isinstance(result.type, ir.RankedTensorType):
                continue
            said = self._said(op, k)
            fresh = self._fresh(result)
            if said is not None and len(said) == len(fresh):
                fresh = tuple(
                    one if isinstance(one, Const) or other is None else other
                    for one, other in zip(fresh, said, strict=True)
                )
            self.extents[self._number(result)] = fresh

    def _read_scalar(self, op: Any) -> None:
        if len(op.results) != 1 or isinstance(op.results[0].type, ir.ShapedType):
            return
        args = [self._scalar(operand) for operand in op.operands]
        known = tuple(arg for arg in args if arg is not None)
        if len(known) != len(args):
            return
        try:
            expr = read_op(op, known)
        except UnreadableError:
            return
        if sum(1 for _ in walk(expr)) <= _LARGEST:
            self.scalars[self._number(op.results[0])] = expr

    def _said(self, op: Any, k: int) -> Sequence[Expr | None] | None:
        """What an op says about the sizes of its k-th result; None for what it does not."""
        if op.name.startswith("linalg."):  # results have the sizes of what they are written into
            return self.of(op.operands[len(op.operands) - len(op.results) + k])
        if op.name == "tensor.cast" and isinstance(op.operands[0].type, ir.RankedTensorType):
            return self.of(op.operands[0])
        if op.name == "tensor.collapse_shape":
            before = self.of(op.operands[0])
            reassociation = [[position.value for position in dims] for dims in op.attributes["reassociation"]]
            return [_times([before[i] for i in dims]) for dims in reassociation]
        if op.name == "tensor.extract_slice":
            dynamic = list(op.operands)
            count = op.attributes["operandSegmentSizes"][2]
            first = sum(list(op.attributes["operandSegmentSizes"])[:2])
            return self._filled(list(op.attributes["static_sizes"]), dynamic[first : first + count])
        if op.name == "tensor.concat":
            shapes = [self.of(operand) for operand in op.operands]
            along = op.attributes["dim"].value
            return [
                self._named(_plus([shape[n] for shape in shapes])) if n == along else size
                for n, size in enumerate(shapes[0])
            ]
        if op.name == "tensor.insert_slice":
            return self.of(op.operands[1])
        if op.name == "tensor.empty":
            return self._filled(op.results[k].type.shape, list(op.operands))
        if op.name == "tensor.expand_shape":
            return self._filled(list(op.attributes["static_output_shape"]), list(op.operands)[1:])
        if op.name == "tensor.reshape":
            shape = op.operands[1].owner
            if not isinstance(shape, ir.Block) and shape.operation.name == "tensor.from_elements":
                return [self._size(operand) for operand in shape.operation.operands]
        return None

    def _filled(self, shape: Sequence[int], dynamic: list[Any]) -> list[Expr | None]:
        given = iter(dynamic)
        return [Const(size, "index") if size >= 0 else self._size(next(given)) for size in shape]

    def _size(self, value: Any) -> Expr | None:
        size = self._scalar(value)
        return None if size is None else self._named(size)  # as an index, whatever integers it was computed in

    def _named(self, expr: Expr) -> Expr:
        factors = product(expr)
        if factors is None:
            if (total := linear(expr)) is not None:
                if not total[0] and [*total[1].values()] == [1]:
                    return next(iter(total[1]))
                key = (total[0], frozenset(total[1].items()))
                size = self._computed.setdefault(key, Extent(f"%computed{len(self._computed)}"))
                self.sums[size] = total
                return size
            bare = rebuild(expr, lambda node: node.args[0] if isinstance(node, Apply) and node.op in _SAME else node)
            return self._computed.setdefault(bare, Extent(f"%computed{len(self._computed)}"))
        number, names = factors
        return _times(
            [*(Extent(name) for name in names.elements()), *([Const(number, "index")] if number != 1 else [])]
        )


def _affine(expr: Any, operands: Sequence[Expr | None], dims: int) -> Expr | None:
    """An affine expression over sizes."""
    if isinstance(expr, ir.AffineConstantExpr):
        return Const(int(expr.value), "index")
    if isinstance(expr, ir.AffineDimExpr | ir.AffineSymbolExpr):
        return operands[int(expr.position) + (dims if isinstance(expr, ir.AffineSymbolExpr) else 0)]
    op = {ir.AffineAddExpr: "arith.addi", ir.AffineMulExpr: "arith.muli"}.get(type(expr))
    if op is None:
        return None
    sides = [_affine(side, operands, dims) for side in (expr.lhs, expr.rhs)]
    known = tuple(side for side in sides if side is not None)
    return Apply(op, known, "index") if len(known) == 2 else None


def _plus(sizes: Sequence[Expr]) -> Expr:
    total = sizes[0]
    for size in sizes[1:]:
        total = Apply("arith.addi", (total, size), "index")
    return total


def _times(sizes: Sequence[Expr]) -> Expr:
    total: Expr | None = None
    for size in sizes:
        total = size if total is None else Apply("arith.muli", (total, size), "index")
    return total or Const(1, "index")
