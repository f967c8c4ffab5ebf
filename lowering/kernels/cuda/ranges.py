"""Which blocks of a loop are run, and in which of them no mask has to be looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from covan_mlir.fred.expression import Apply, Expr, walk
from covan_mlir.fred.forms import Fusion, Local, Rolling
from covan_mlir.lowering.kernels.cuda.layout import Layout, SweepRoles
from covan_mlir.lowering.kernels.reductions.hoist import Scope
from covan_mlir.lowering.kernels.reductions.masks import Span, conditions, span
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


@dataclass(frozen=True)
class TileProgram:
    """Where a program is.

    Attributes:
        count: how many programs there are.
        position: variables of the axes that a program has one position of.
        tile: variable of the tile of rows; empty where there is one.
        part: variable of the part of the loop that the program runs, and number of parts.
    """

    count: int
    position: Mapping[str, str]
    tile: str = ""
    part: tuple[str, int] | None = None


@dataclass(frozen=True)
class BlockRanges:
    """Which blocks of a loop a tile of rows has to run.

    Attributes:
        span: what masks leave; None: every position has to be visited.
        true: conditions of selections that say no more than the span's limits.
    """

    span: Span | None = None
    true: frozenset[Expr] = frozenset()

    def segments(self, layout: Layout, program: TileProgram) -> tuple[list[str], list[Segment]]:
        """-> (statements that compute the ends, segments in order)."""
        dim = layout.dim(layout.stream)
        assert dim is not None
        size, block = dim.size, dim.block
        whole = size // block * block
        lines = ["low = 0", f"high = {size}"]
        if program.part is not None:
            name, count = program.part
            chunk = -(-size // (count * block)) * block
            lines = [f"low = {name} * {chunk}", f"high = tl.minimum(low + {chunk}, {size})"]
        uppers: list[tuple[str, str]] = []
        lowers: list[tuple[str, str]] = []
        for bound in self.span.limits if self.span else ():
            factors = dict(bound.factors)
            sign = factors.pop(self.span.axis) if self.span else 0
            least = _extreme(factors, bound.constant, layout, program, largest=False)
            most = _extreme(factors, bound.constant, layout, program, largest=True)
            (uppers if sign < 0 else lowers).append((least, most))
        if not uppers and not lowers and program.part is None:
            segments = [Segment("0", str(whole), True), Segment(str(whole), str(size), False)]
            return [], [segment for segment in segments if segment.low != segment.high]
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

    def share(self, rows: str | None, sizes: Mapping[str, int]) -> float:
        """Part of all positions that are not masked, where only one of the rows' axes matters; about."""
        if self.span is None or not self.span.limits or rows is None:
            return 1.0
        return self.span.share(rows, sizes, max(1, sizes[rows] // 512))


def block_ranges(
    fusion: Fusion, roles: SweepRoles, rolling: Rolling, scope: Scope, sizes: Mapping[str, int]
) -> BlockRanges:
    """The blocks that masks leave, of one of a chain's loops."""
    if len(roles.reduction_axes) != 1:
        return BlockRanges()
    (axis,) = roles.reduction_axes
    stage = next(stage for stage in roles.stages if stage.rolling is rolling)
    feature_axis = roles.feature_axes[0] if roles.feature_axes else None
    left = span(fusion, LoopRoles(stage, rolling, axis, roles.rows, roles.free, feature_axis, roles.inner), sizes)

    def exact(condition: Expr) -> bool:
        if isinstance(condition, Apply) and condition.op == "arith.andi":
            return all(map(exact, condition.args))
        implied = tuple(conditions(condition, True, sizes))
        return len(implied) == 1 and implied[0] in left.limits

    true = set()
    for line in rolling.body:
        for node in walk(scope.inlined(line.reduce.expr)) if isinstance(line, Local) else ():
            if isinstance(node, Apply) and node.op == "arith.select" and exact(scope.inlined(node.args[0])):
                true.add(scope.inlined(node.args[0]))
    return BlockRanges(left, frozenset(true))


def _extreme(factors: Mapping[str, int], constant: int, layout: Layout, program: TileProgram, *, largest: bool) -> str:
    """The least or largest value of a bound's other side on a tile of rows."""
    terms = []
    for axis, factor in factors.items():
        if not factor:
            continue
        dim = layout.dim_of(axis)
        if dim is None:
            terms += [_times(program.position[axis], factor)] if layout.sizes[axis] > 1 else []
            continue
        last = (factor > 0) == largest
        if len(dim.axes) > 1:
            constant += factor * (layout.sizes[axis] - 1) if last else 0
        elif not program.tile:
            constant += factor * (dim.size - 1) if last else 0
        elif last:
            end = f"tl.minimum({program.tile} * {dim.block} + {dim.block - 1}, {dim.size - 1})"
            terms.append(_times(end, factor))
        else:
            terms.append(f"{program.tile} * {dim.block * factor}")
    return " + ".join([*terms, *([str(constant)] if constant or not terms else [])])


def _times(text: str, factor: int) -> str:
    return text if factor == 1 else f"{text} * {factor}"
