"""Which blocks of a loop are run, and in which of them no mask has to be looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from covan_mlir.fred.expression import Apply, Expr, walk
from covan_mlir.fred.forms import Fusion, Local, Rolling
from covan_mlir.lowering.kernels.cuda.layout import Layout, SweepRoles
from covan_mlir.lowering.kernels.reductions.hoist import Scope
from covan_mlir.lowering.kernels.reductions.masks import Bound, bounds, conditions
from covan_mlir.lowering.kernels.reductions.roles import LoopRoles


@dataclass(frozen=True)
class Segment:
    """Consecutive blocks.

    Attributes:
        low, high: first position, and the one after the last, as text.
        full: no mask applies, and all positions exist.
    """

    low: str
    high: str
    full: bool


class Span:
    """The part of a loop that a tile of rows has to run.

    Args:
        whole: whether every position has to be visited.
    """

    def __init__(
        self, fusion: Fusion, found: SweepRoles, rolling: Rolling, axes: Scope, sizes: Mapping[str, int], whole: bool
    ) -> None:
        self.sizes, self.true = sizes, frozenset[Expr]()
        self.limits: tuple[Bound, ...] = ()
        if whole or len(found.reduction_axes) != 1:
            return
        (self.stream,) = found.reduction_axes
        stage = next(stage for stage in found.stages if stage.rolling is rolling)
        wide = found.feature_axes[0] if found.feature_axes else None
        one = LoopRoles(stage, rolling, self.stream, found.rows, found.free, wide, found.inner)
        known = {*found.rows, self.stream}
        self.limits = tuple(
            bound for bound in bounds(fusion, one, sizes) if {axis for axis, factor in bound.factors if factor} <= known
        )
        self.true = self._certain(rolling, axes)

    def _certain(self, rolling: Rolling, axes: Scope) -> frozenset[Expr]:
        """Conditions of selections that say no more than the limits."""
        found = set()
        for line in rolling.body:
            for node in walk(axes.inlined(line.reduce.expr)) if isinstance(line, Local) else ():
                if isinstance(node, Apply) and node.op == "arith.select":
                    condition = axes.inlined(node.args[0])
                    if self._exact(condition):
                        found.add(condition)
        return frozenset(found)

    def _exact(self, condition: Expr) -> bool:
        if isinstance(condition, Apply) and condition.op == "arith.andi":
            return all(map(self._exact, condition.args))
        made = tuple(conditions(condition, True, self.sizes))
        return len(made) == 1 and made[0] in self.limits

    def segments(
        self, layout: Layout, position: Mapping[str, str], tile: str, part: tuple[str, int] | None
    ) -> tuple[list[str], list[Segment]]:
        """-> (statements that compute the ends, segments in order).

        Args:
            position: variables of the axes that a program has one position of.
            tile: variable of the tile of rows.
            part: variable of the part of the loop that the program runs, and number of parts.
        """
        dim = layout.dim(layout.stream)
        assert dim is not None
        size, block = dim.size, dim.block
        whole = size // block * block
        lines = ["low = 0", f"high = {size}"]
        if part is not None:
            name, count = part
            chunk = -(-size // (count * block)) * block
            lines = [f"low = {name} * {chunk}", f"high = tl.minimum(low + {chunk}, {size})"]
        uppers: list[tuple[str, str]] = []
        lowers: list[tuple[str, str]] = []
        for bound in self.limits:
            factors = dict(bound.factors)
            sign = factors.pop(self.stream)
            least = self._extreme(factors, bound.constant, layout, position, tile, largest=False)
            most = self._extreme(factors, bound.constant, layout, position, tile, largest=True)
            (uppers if sign < 0 else lowers).append((least, most))
        if not uppers and not lowers and part is None:
            segments = [Segment("0", str(whole), True), Segment(str(whole), str(size), False)]
            return [], [s for s in segments if s.low != s.high]
        # Position n is seen where n <= rest (below) or n >= -rest (above).
        lines += [f"high = tl.minimum(high, tl.maximum({most} + 1, 0))" for _, most in uppers]
        for _, most in lowers:
            lines.append(f"low = tl.maximum(low, tl.maximum(-({most}), 0) // {block} * {block})")
        lines.append(f"full_high = tl.minimum(high // {block} * {block}, {whole})")
        for least, _ in uppers:
            lines.append(f"full_high = tl.minimum(full_high, tl.maximum({least} + 1, 0) // {block} * {block})")
        if not lowers:
            lines.append("full_high = tl.maximum(full_high, low)")
            segments = [Segment("low", "full_high", True)]
        else:
            lines.append("full_low = low")
            for least, _ in lowers:
                start = f"(tl.maximum(-({least}), 0) + {block - 1}) // {block} * {block}"
                lines.append(f"full_low = tl.maximum(full_low, {start})")
            lines.append(f"full_low = tl.minimum(full_low, tl.maximum((high + {block - 1}) // {block} * {block}, low))")
            lines.append("full_high = tl.maximum(full_high, full_low)")
            segments = [Segment("low", "tl.minimum(full_low, high)", False), Segment("full_low", "full_high", True)]
        ragged = uppers or size % block
        return lines, [*segments, *([Segment("full_high", "high", False)] if ragged or lowers else [])]

    def _extreme(
        self,
        factors: Mapping[str, int],
        constant: int,
        layout: Layout,
        position: Mapping[str, str],
        tile: str,
        largest: bool,
    ) -> str:
        """The least or largest value of a bound's other side on a tile of rows."""
        terms = []
        for axis, factor in factors.items():
            if not factor:
                continue
            dim = layout.dim_of(axis)
            if dim is None:
                terms += [_times(position[axis], factor)] if self.sizes[axis] > 1 else []
                continue
            last = (factor > 0) == largest
            if len(dim.axes) > 1:
                constant += factor * (self.sizes[axis] - 1) if last else 0
            elif not tile:
                constant += factor * (dim.size - 1) if last else 0
            elif last:
                end = f"tl.minimum({tile} * {dim.block} + {dim.block - 1}, {dim.size - 1})"
                terms.append(_times(end, factor))
            else:
                terms.append(f"{tile} * {dim.block * factor}")
        return " + ".join([*terms, *([str(constant)] if constant or not terms else [])])

    def share(self, axis: str | None) -> float:
        """Part of all positions that are not masked, where only one of the rows' axes matters."""
        if not self.limits or axis is None:
            return 1.0
        size, rows = self.sizes[self.stream], self.sizes[axis]
        step = max(1, rows // 512)
        total, count = 0, 0
        for row in range(0, rows, step):
            low, high = 0, size
            for bound in self.limits:
                factors = dict(bound.factors)
                rest = factors.get(axis, 0) * row + bound.constant
                if factors[self.stream] < 0:
                    high = min(high, rest + 1)
                else:
                    low = max(low, -rest)
            total += max(0, high - low)
            count += size
        return total / count


def _times(text: str, factor: int) -> str:
    return text if factor == 1 else f"{text} * {factor}"
