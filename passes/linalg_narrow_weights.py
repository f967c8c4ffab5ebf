"""``linalg-narrow-weights``: products of floats with a weight of few bits read its steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

from torch_mlir import ir
from torch_mlir.dialects import arith, tensor

from covan_mlir.passes.framework.index_values import dimension
from covan_mlir.passes.framework.place import visited
from covan_mlir.passes.framework.rewriter import Rewriter
from covan_mlir.passes.framework.views import laid_out
from covan_mlir.passes.quantized.steps import Factor, Integers, Steps, composed, steps_of
from covan_mlir.passes.quantized.sums import (
    MATRICES,
    Loops,
    computed,
    is_weight,
    loops_of,
    map_of,
    read_by_it_alone,
    sizes_of,
    steps_laid_out,
    stood_for,
    taken_apart,
    weights_of,
    widened,
    zeros,
)


@dataclass(frozen=True)
class LinalgNarrowWeights:
    """Multiplies by the steps of a weight of 8 bits, or of few of them, in place of what they stand for.

    What is multiplied is floats, and so are the sums; a step is made a float where it is read, and no copy of the
    weight in floats has to be held, or read. What all steps of a column stand for is multiplied with its sum. What the
    steps of a group of its terms stand for is multiplied with them, and the terms have a loop of groups.

    Before::

        %w = linalg.generic ins(%q, %scales : tensor<8x16xi8>, tensor<16xf32>) { sitofp, mulf }     # one op each
        %0 = linalg.matmul ins(%x, %w : tensor<5x8xf32>, tensor<8x16xf32>) outs(%zeros)

    After::

        %s = linalg.generic ins(%x, %q : tensor<5x8xf32>, tensor<8x16xi8>) { extsi, sitofp, mulf, addf }
        %0 = linalg.generic ins(%s, %scales : tensor<5x16xf32>, tensor<16xf32>) { mulf }

    Before, with a scale for each four terms::

        %g = linalg.generic ins(%q, %scales : tensor<16x2x4xi8>, tensor<16x2x1xf32>) { sitofp, mulf }
        %w = tensor.collapse_shape %g : tensor<16x2x4xf32> into tensor<16x8xf32>
        %0 = linalg.matmul ins(%x, transposed %w) outs(%zeros)

    After::

        %0 = linalg.generic ins(%x, %q, %scales : tensor<5x2x4xf32>, tensor<2x4x16xi8>, tensor<16x2x1xf32>)
            { extsi, sitofp, mulf, mulf, addf }

    Steps may have no sign. A zero point of all is taken off them as an integer, those of columns or groups as floats.
    """

    name: ClassVar[str] = "linalg-narrow-weights"
    op_name: ClassVar[str | None] = "func.func"

    def run(self, op: ir.Operation) -> None:
        rewriter: Rewriter | None = None
        weights = weights_of(op)
        for product in visited([view for block in op.regions[0] for view in block]):
            loops = loops_of(product) if product.name in MATRICES else None
            if loops is None or not isinstance(product.operands[0].type.element_type, ir.F32Type):
                continue
            steps = steps_of(product.operands[1])
            if steps is None or not is_weight(steps.source, weights):
                continue
            if steps_of(product.operands[0]) is None and (narrow := _Narrow.of(product, loops, steps)) is not None:
                rewriter = rewriter or Rewriter(op)
                narrow.rewrite(rewriter)


@dataclass(frozen=True)
class _Narrow:
    """A product.

    Attributes:
        loops: of the factors and of the result.
        deep: the one that is summed over.
        run: how many of its positions share a number of the inner factors.
        inner: factors that are not the same for all terms of a sum.
        outer: the others.
        zeros: of the steps.
    """

    product: ir.Operation
    loops: list[Loops]
    steps: Steps
    deep: int
    run: int
    inner: tuple[Factor, ...]
    outer: tuple[Factor, ...]
    zeros: Factor | None

    @cached_property
    def points(self) -> Integers | None:
        """What zero points are, if that is integers of 8 bits."""
        return None if self.zeros is None else Integers.of(self.zeros.value)

    @staticmethod
    def of(product: ir.Operation, loops: list[Loops], steps: Steps) -> _Narrow | None:
        """None: it is computed of what the steps stand for."""
        sizes = sizes_of(product, loops)
        summed = [loop for loop in sizes if loop not in loops[2]]
        if len(summed) != 1 or None in loops[2] or loops[2][-1] not in loops[1] or loops[2][-1] in loops[0]:
            return None
        (deep,) = summed
        inner = tuple(one for one in steps.factors if deep in composed(one, loops[1]))
        outer = tuple(one for one in steps.factors if one not in inner)
        grouped = [*inner, *([steps.zeros] if steps.zeros and deep in composed(steps.zeros, loops[1]) else [])]
        runs = {run for one in grouped for run in _runs(one, loops[1], deep)}
        alike = [one for one in (*outer, *([steps.zeros] if steps.zeros else [])) if one not in grouped]
        apart = any(run > 1 for one in alike for run in one.runs)
        if apart or len(runs) > 1 or runs == {1} or sizes[deep] < 1 or (runs and sizes[deep] % min(runs)):
            return None
        return _Narrow(product, loops, steps, deep, runs.pop() if runs else 0, inner, outer, steps.zeros)

    def rewrite(self, rewriter: Rewriter) -> None:
        """Replaces it."""
        # What makes zero points wider is done in the body.
        points = () if self.points is None else (replace(self.steps, ops=self.points.ops),)
        gone, left = read_by_it_alone(self.product, (self.steps, *points))
        with rewriter.replacing(*gone, self.product, copies=left) as new:
            begun, result = self.product.operands[2], self.loops[2]
            place = {loop: k for k, loop in enumerate(result) if loop is not None}
            factors = [
                (taken_apart(one), [None if loop is None else place[loop] for loop in composed(one, self.loops[1])])
                for one in self.outer
            ]
            new.results(stood_for(self._summed(), (self.steps.scale,), factors, begun))

    def _summed(self) -> Any:
        """Sums of products of floats with steps, and with what groups of these stand for."""
        count = 1 + max(loop for along in self.loops for loop in along if loop is not None)
        operands, loops = [self.product.operands[0], steps_laid_out(self.steps)], self.loops[:2]
        summed = {self.deep}
        if self.run:
            operands = [
                _grouped(value, along, self.deep, self.run) for value, along in zip(operands, loops, strict=True)
            ]
            loops = [_with_group(along, self.deep, count) for along in loops]
            summed.add(count)
            count += 1
        less = self.zeros
        if less is not None and self.points is not None:
            less = replace(less, value=laid_out(self.points.source, self.points.views))
        factors = [*self.inner, *([] if less is None else [less])]
        operands += [taken_apart(one) for one in factors]
        loops += [list(composed(one, self.loops[1])) for one in factors]
        maps = [map_of(count, along) for along in (*loops, self.loops[2])]
        kinds = ["reduction" if loop in summed else "parallel" for loop in range(count)]
        begun, wide = self.product.operands[2], ir.IntegerType.get_signless(32)
        kind = begun.type.element_type

        def body(read: Any, step: Any, *rest: Any) -> Any:
            term = arith.SIToFPOp(kind, widened(self.steps, step, wide)).result
            if self.zeros is not None:
                term = arith.SubFOp(term, self._as_float(rest[len(self.inner)], kind, wide)).result
            for factor in rest[: len(self.inner)]:
                term = arith.MulFOp(term, factor).result
            return arith.AddFOp(rest[-1], arith.MulFOp(read, term).result).result

        into = zeros([dimension(begun, k) for k in range(len(self.loops[2]))], kind)
        return computed(operands, into, maps, kinds, body)

    def _as_float(self, zero: Any, kind: Any, wide: Any) -> Any:
        """A zero point."""
        if self.points is not None:
            zero = (arith.ExtSIOp if self.points.signed else arith.ExtUIOp)(wide, zero).result
        return arith.SIToFPOp(kind, zero).result if isinstance(zero.type, ir.IntegerType) else zero


def _runs(factor: Factor, loops: Sequence[int | None], deep: int) -> list[int]:
    """How many positions of a loop share a number of a factor that goes along it."""
    along = composed(factor, loops)
    return [factor.runs[n] if factor.runs else 1 for n, loop in enumerate(along) if loop == deep]


def _with_group(along: Loops, deep: int, group: int) -> Loops:
    """Loops of a tensor one of whose dimensions is taken apart into groups and what is in them."""
    return [new for loop in along for new in ((deep, group) if loop == deep else (loop,))]


def _grouped(value: Any, along: Loops, deep: int, run: int) -> Any:
    """A tensor one of whose dimensions is taken apart so."""
    sizes, groups = list[int](), list[list[int]]()
    for loop, size in zip(along, value.type.shape, strict=True):
        groups.append([len(sizes), len(sizes) + 1] if loop == deep else [len(sizes)])
        sizes += [size // run, run] if loop == deep else [size]
    unknown = [dimension(value, k) for k, size in enumerate(value.type.shape) if size < 0]
    kind = ir.RankedTensorType.get(sizes, value.type.element_type)
    return tensor.ExpandShapeOp(kind, value, groups, unknown, sizes).result
