"""Any reduction whose reads are affine: tiled loops around a register tile, whatever the axes are to each other.

::

    for tiles of the results in parallel:
        for block of what is combined over:
            boxes = inputs that lanes would read in pieces, or that a window leaves, in scratch
            for a register tile at a time:
                tile = combine(tile, term of boxes and inputs)
        results = the chain's maps of what is combined

Distances, sums of windows in any number of dimensions, tropical products, correlations, contractions in which every
tensor has an axis of its own in the wrong place: all that no special template takes. What these take they do better,
with packed weights and addresses that they know more of, so the prediction here counts what it does not do.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations as pairs
from itertools import product as combinations
from math import inf, prod
from random import Random
from typing import Any, ClassVar, Literal

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.expression import Apply, Expr
from covan_mlir.fred.forms import Fusion
from covan_mlir.lowering.kernels.cpu.accesses import Access, LoopNest, loop_nest_of
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size
from covan_mlir.lowering.kernels.cpu.dense import DenseMatch, Writer
from covan_mlir.lowering.kernels.cpu.loop_nest import Layout, LoopNestSchedule, LoopNestWriter
from covan_mlir.lowering.kernels.cpu.loop_nest_space import NestSpace
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.cpu.templates.product import BEGUN, FARTHER, LONGEST_SUM, STAYS, WRITTEN, makespan
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.reductions.operands import traffic
from covan_mlir.lowering.kernels.reductions.sweeps import cost
from covan_mlir.lowering.kernels.registry import register
from covan_mlir.lowering.kernels.structure import Structure
from covan_mlir.lowering.kernels.template import ChainKind, IllegalScheduleError, Template
from covan_mlir.machine.elements import bits

TILES = (
    (8, 3),
    (6, 4),
    (12, 2),
    (4, 4),
    (8, 2),
    (4, 6),
    (8, 1),
    (4, 2),
    (4, 1),
    (2, 4),
    (2, 2),
    (1, 8),
    (1, 4),
    (1, 1),
)
"""Rows and columns of register tiles."""
TIMES = (1, 2, 4, 16, 64)
"""Register tiles along an axis that a workgroup computes, besides all of them."""
COARSE = (1, 4)
"""The same, where only a first schedule is looked for."""
UNROLLS = (1, 4)
FORESEEN = 8
"""Steps of the innermost loop by which what comes from memory is asked for before: streams of columns take 0.65 to 0.81
of the time on a Sapphire Rapids, by 32 steps as much."""
PROBED = 2
"""Register tiles of which all workgroups are looked at before there is a first schedule."""
ROUGH = 1.5
"""Times the prediction of sums of products and of windows, which special templates take as well: by so much may theirs
be longer, for they ask for memory ahead of time and pack weights, which is not counted here."""
GATHERED = 1.5
"""Instructions that gather an element."""
TRANSPOSED = 8.0
"""Instructions for each vector of a block that is transposed, with its load and its store."""
SCATTERED = 8.0
"""Instructions that write an element far from the one before."""
ACROSS = 12.0
"""Instructions that combine the lanes of a vector."""


Tiles = tuple[tuple[str, int], ...]
"""Kept axes, and their positions that a workgroup computes, where these are more than one."""


@dataclass(frozen=True)
class Registers:
    """A register tile: see `LoopNestSchedule`.

    Attributes:
        across: positions of a column.
    """

    lane: str
    row: str
    column: str
    rows: int
    columns: int
    across: int

    @property
    def extents(self) -> dict[str, int]:
        """Positions along its axes."""
        both = ((self.row, self.rows), (self.column, self.columns * self.across))
        return {axis: count for axis, count in both if axis}

    def alone(self, kept: Sequence[str]) -> bool:
        """Whether lanes run along a kept axis of which the tile has one vector."""
        return self.lane in kept and self.column != self.lane


def instructions(term: Expr, combine: str) -> float:
    """Vector instructions that combine a term, its loads left out."""
    fused = combine == "add" and isinstance(term, Apply) and term.op == "arith.mulf"
    # An extremum that passes NaN on is a comparison, a choice and the extremum itself.
    combined = 3.0 if combine in ("max", "min", "maxnum", "minnum") else 0.0 if fused else 1.0
    return cost(term) + combined


@dataclass(frozen=True)
class LoopNestMatch(DenseMatch[LoopNestSchedule]):
    """A chain of one reduction."""

    task: LoopNest
    target: CpuTarget

    @property
    def _lanes(self) -> int:
        return self.target.machine.lanes(f"f{max(32, bits(self.task.step.dtype))}")

    @property
    def reused(self) -> bool:
        """Whether an element is read for more than one term."""
        nest = self.task
        axes = {*nest.kept, *nest.contracted}
        return any(axes - access.axes for access in nest.accesses) or bool(nest.chain.windowed)

    @cached_property
    def lane_axes(self) -> tuple[str, ...]:
        """Axes that lanes may run along: kept ones that lie together in a result or in what is read, and contracted
        ones that lie together in all that has them."""
        nest = self.task
        last = {nest.chain.values[name].axes[-1:] for name in nest.chain.outputs}
        kept = [
            axis
            for axis in nest.kept
            if nest.sizes[axis] > 1 and ((axis,) in last or any(a.contiguous(axis) for a in nest.accesses))
        ]
        reading = [(axis, [a for a in nest.accesses if axis in a.axes]) for axis in nest.contracted]
        along = [axis for axis, reads in reading if reads and all(a.contiguous(axis) for a in reads)]
        return (*kept, *(axis for axis in along if nest.sizes[axis] >= self._lanes))

    def staged(self, lane: str) -> tuple[str, ...]:
        """Reads that have to go through scratch where lanes run along an axis: they would be gathered again and again,
        or leave their input."""
        nest = self.task
        return tuple(
            access.alias
            for access in nest.accesses
            if any(access.leaving(nest.sizes)) or (lane in access.axes and not access.contiguous(lane))
        )

    @cached_property
    def _depths(self) -> list[int]:
        """Lengths of blocks: all, or what divides it into about so many."""
        total = self.task.sizes[self.task.contracted[0]]
        beside = prod(self.task.sizes[axis] for axis in self.task.contracted[1:])
        divisors = [n for n in range(1, total + 1) if total % n == 0]
        depths = [total] if total * beside <= LONGEST_SUM else []
        for longest in (LONGEST_SUM, 256, 64):
            fitting = [n for n in divisors if n * beside <= longest]
            depths += fitting[-1:]
        return list(dict.fromkeys(depths or [total, 1]))

    def schedules(self) -> Iterator[LoopNestSchedule]:
        """See `Match`: all are only looked at where more than the first one is asked for."""
        yield self._first
        yield from (schedule for schedule in self.ranked if schedule != self._first)

    @cached_property
    def _first(self) -> LoopNestSchedule:
        """The best of the best few register tiles, each of which is first looked at with one workgroup."""
        one: dict[Registers, LoopNestSchedule] = {}
        for registers in self._registers():
            tiles = self._workgroups(registers, TIMES[2:3])
            schedules = (
                self._schedule(registers, each, depth, UNROLLS[-1]) for each in tiles for depth in self._depths
            )
            if (fitting := next((each for each in schedules if self.fits(each)), None)) is not None:
                one[registers] = fitting
        best = sorted(one, key=lambda registers: self.predict(one[registers]))[:PROBED]
        few = (each for registers in best for each in self._of(registers, COARSE, UNROLLS[-1:]))
        return min((*one.values(), *few), key=self.predict)

    def legal(self) -> Iterator[LoopNestSchedule]:
        """See `DenseMatch`."""
        for registers in self._registers():
            yield from self._of(registers)

    @cached_property
    def space(self) -> NestSpace:
        """All programs, beside those that are listed."""
        machine, element = self.target.machine, max(32, bits(self.task.step.dtype)) // 8
        scratch = machine.stack // element
        return NestSpace(self.task, self._lanes, machine.registers, scratch, self.lane_axes, self.staged)

    def read(self, fields: Mapping[str, Any]) -> LoopNestSchedule:
        """See `Match`: any legal program, also one that is not listed."""
        known = {**fields}
        try:
            tiles = tuple((str(axis), int(count)) for axis, count in known.pop("tiles"))
            schedule = LoopNestSchedule(tiles=tiles, staged=tuple(known.pop("staged")), **known)
            reason = self.space.illegal(schedule)
        except (KeyError, TypeError, ValueError) as error:
            reason = f"it is no schedule of a loop nest: {error}"
        if reason:
            raise IllegalScheduleError(f"{reason}: {json.dumps(dict(fields))}")
        return schedule

    def structured(self, structure: Structure) -> Iterator[LoopNestSchedule]:
        """See `Match`: what is listed, and the same with more in scratch where the structure has it there."""
        extra = [access.alias for access in self.task.accesses if access.value.name in structure.cached]
        for schedule in self.legal():
            one = schedule
            if self.structure(schedule) != structure:
                one = self._asking(replace(schedule, staged=tuple(dict.fromkeys((*schedule.staged, *extra)))))
            if self.structure(one) == structure and self.fits(one):
                yield one

    @property
    def more(self) -> bool:
        """See `Match`."""
        return True

    def sampled(self, structure: Structure, random: Random) -> LoopNestSchedule | None:
        """See `Match`."""
        return self.space.sampled(structure, random)

    def mutated(self, schedule: LoopNestSchedule, random: Random) -> LoopNestSchedule | None:
        """See `Match`."""
        return self.space.mutated(schedule, random)

    def crossed(self, one: LoopNestSchedule, other: LoopNestSchedule, random: Random) -> LoopNestSchedule | None:
        """See `Match`."""
        return self.space.crossed(one, other, random)

    def fits(self, schedule: LoopNestSchedule) -> bool:
        """Whether its scratch fits into a stack frame."""
        element = max(32, bits(self.task.step.dtype)) // 8
        return Layout(self.task, schedule).elements * element <= self.target.machine.stack

    def _registers(self) -> Iterator[Registers]:
        """Register tiles, none of which is mostly computed twice."""
        nest = self.task
        for lane in self.lane_axes:
            along = lane in nest.kept
            others = [axis for axis in nest.kept if axis != lane and nest.sizes[axis] > 1]
            pairs = _pairs(others)
            if along:
                # What all reads have an axis of is no tile's: each element of it is read once anyway.
                shared = all(lane in access.axes for access in nest.accesses)
                pairs = [(row, lane) for row in (*others, "")] + (pairs if shared and len(others) > 1 else [])
            for (row, column), (rows, columns) in combinations(pairs, self._tiles()):
                if (rows > 1 and not row) or (columns > 1 and not column):
                    continue
                across = self._lanes if column == lane else 1
                if (not row or _suits(rows, 1, nest.sizes[row])) and (
                    not column or _suits(columns, across, nest.sizes[column])
                ):
                    yield Registers(lane, row, column, rows, columns, across)

    def _of(
        self, registers: Registers, times: Sequence[int] = TIMES, unrolls: Sequence[int] = UNROLLS
    ) -> Iterator[LoopNestSchedule]:
        """The schedules of a register tile."""
        for tiles, depth, unroll in combinations(self._workgroups(registers, times), self._depths, unrolls):
            schedule = self._schedule(registers, tiles, depth, unroll)
            if self.fits(schedule):
                yield schedule

    def _schedule(self, of: Registers, tiles: Tiles, depth: int, unroll: int) -> LoopNestSchedule:
        staged = self.staged(of.lane)
        return self._asking(
            LoopNestSchedule(self._lanes, of.lane, of.row, of.column, of.rows, of.columns, tiles, depth, unroll, staged)
        )

    @cached_property
    def _streamed(self) -> tuple[Access, ...]:
        """Reads of what does not fit into the second cache."""
        held = self.target.machine.l2
        reads = self.task.accesses
        return tuple(a for a in reads if self.task.count(a.value.axes) * bits(a.value.dtype) // 8 > held)

    def _asking(self, schedule: LoopNestSchedule) -> LoopNestSchedule:
        """The same, with vectors asked for ahead of time where they come from farther than the second cache."""
        layout = Layout(self.task, schedule) if self._streamed else None
        far = layout is not None and any(layout.between(access) for access in self._streamed)
        return replace(schedule, ahead=FORESEEN if far else 0)

    def _tiles(self) -> Iterable[tuple[int, int]]:
        machine = self.target.machine
        return [tile for tile in TILES if (tile[0] + 1) * tile[1] + 1 <= machine.registers]

    def _workgroups(self, registers: Registers, times: Sequence[int]) -> list[Tiles]:
        """Positions that a workgroup computes: some register tiles along each of their axes, and of other axes one, or
        some of those that windows slide along."""
        nest, sizes = self.task, self.task.sizes
        axes, choices = [], []
        for axis, by in registers.extents.items():
            axes.append(axis)
            choices.append(sorted({min(by * n, sizes[axis]) for n in times} | {sizes[axis]}))
        if registers.alone(nest.kept):
            axes.append(registers.lane)
            choices.append(sorted({min(self._lanes, sizes[registers.lane]), sizes[registers.lane]}))
        sliding = {axis for a in nest.accesses for p in a.at if len(p.terms) > 1 for axis in p.axes} & {*nest.kept}
        for axis in sorted(sliding - {*axes}):
            axes.append(axis)
            choices.append(sorted({1, min(4, sizes[axis]), sizes[axis]}))
        return [
            tuple((axis, count) for axis, count in zip(axes, counts, strict=True) if count > 1)
            for counts in combinations(*choices)
        ]

    # Time

    def predict(self, schedule: LoopNestSchedule) -> float:
        """Terms at the rate at which a tile is combined, boxes at that of copies, or what memory gives."""
        nest, machine, layout = self.task, self.target.machine, Layout(self.task, schedule)
        tile = schedule.rows * schedule.columns
        terms = tile * instructions(nest.term, nest.step.combine)
        loads = sum(self._loads(access, layout) for access in nest.accesses)
        each = max(terms, loads, 8.0) + 0.15 * min(terms, loads) + 2.0 / schedule.unroll
        lanes = 1 if layout.kept_lane else schedule.lanes
        steps = -(-layout.spans[schedule.lane] // lanes) if not layout.kept_lane else 1
        steps *= prod(layout.spans[axis] for axis in nest.contracted if axis != schedule.lane)
        filled = sum(self._filled(access, layout) for access in nest.accesses if access.alias in schedule.staged)
        block = layout.register_tiles * (steps * each + 12.0 + (4.0 * tile if layout.blocks > 1 else 0.0)) + filled
        written = layout.register_tiles * tile * self._written(layout)
        unit = (BEGUN + layout.blocks * block + written) * 2 * schedule.lanes / machine.flops
        computed = makespan([(unit, layout.units)], machine.cores)
        return (ROUGH if self._rivalled else 1.0) * max(computed, self._moved(layout))

    @cached_property
    def _rivalled(self) -> bool:
        """Whether special templates are for such chains."""
        term = self.task.term
        product = isinstance(term, Apply) and term.op == "arith.mulf" and self.task.step.combine == "add"
        return product or bool(self.task.chain.windowed)

    def _loads(self, access: Access, layout: Layout) -> float:
        """Instructions that read it for a step of a register tile."""
        schedule = layout.schedule
        count = schedule.rows if schedule.row in access.axes else 1
        count *= schedule.columns if schedule.column in access.axes else 1
        if schedule.lane not in access.axes:
            return float(count)
        distance = layout.boxes[access.alias].distance if access.alias in layout.boxes else 1
        shifted = len(next(p for p in access.at if schedule.lane in p.axes).terms) > 1
        each = GATHERED * schedule.lanes if distance > 1 else 1.9 if shifted else 1.0
        near = self._between(access, layout) <= STAYS * self.target.machine.l1
        return count * max(each, 1.0 if near else FARTHER)

    def _filled(self, access: Access, layout: Layout) -> float:
        """Instructions that fill its box."""
        box = layout.boxes[access.alias]
        lanes = layout.schedule.lanes
        each = 4.0 + (1.0 if box.source_step in (0, 1) else GATHERED * lanes)
        outside = 6.0 * any(access.leaving(self.task.sizes))
        if box.across is None:
            return box.rows * (4.0 + box.vectors * (each + outside))
        near = box.coordinates[box.across].extent
        blocks = box.rows // near * -(-near // lanes) * box.vectors
        return blocks * lanes * (TRANSPOSED + outside)

    def _between(self, access: Access, layout: Layout) -> float:
        """Bytes of it that are read before a register tile reads the same again, or infinitely many: what has the rows
        waits for the next columns."""
        nest, register = self.task, layout.register
        spans = {**layout.spans, **dict.fromkeys(nest.kept, 1), **register}
        waits = False
        for axis, _, count in reversed(layout.steps):
            if count > 1 and axis not in access.axes:
                waits = True
                break
            spans[axis] = layout.tile[axis]
        again = waits or layout.boxes.get(access.alias) is not None
        held = prod(spans[axis] for axis in access.axes) * bits(access.value.dtype) // 8
        return held if again else inf

    def _written(self, layout: Layout) -> float:
        """Instructions that make results of an accumulator."""
        nest, lane = self.task, layout.schedule.lane
        if not layout.kept_lane:
            return ACROSS + nest.work + 6.0
        scattered = any(nest.chain.values[name].axes[-1] != lane for name in nest.chain.outputs)
        return WRITTEN + nest.work + (SCATTERED * layout.schedule.lanes if scattered else 0.0)

    def _moved(self, layout: Layout) -> float:
        """Seconds that memory takes, and the last cache, from which workgroups read again what others have read."""
        nest, machine = self.task, self.target.machine
        again = 0.0
        for access in nest.accesses:
            size = nest.count(access.value.axes) * bits(access.value.dtype) // 8
            sharing = prod(count for axis, count in layout.grid if axis not in access.axes)
            if size > machine.l2 // 2:
                again += (sharing - 1) * size
        cores = min(machine.cores, layout.units)
        return nest.traffic / (machine.bandwidth * cores) + again / (machine.cache_bandwidth * cores)

    def structure(self, schedule: LoopNestSchedule) -> Structure:
        """See `Match`."""
        layout = Layout(self.task, schedule)
        cached = {access.value.name for access in self.task.accesses if access.alias in schedule.staged}
        factored: Literal["", "lanes"] = "" if layout.kept_lane else "lanes"
        return Structure("tiles", cached=tuple(sorted(cached)), held=layout.blocks > 1, factored=factored)

    def writer(self, code: KernelBuilder, sizes: Mapping[str, Size], schedule: LoopNestSchedule) -> Writer:
        """See `DenseMatch`."""
        return LoopNestWriter(code, Layout(self.task, schedule))


def _pairs(others: Sequence[str]) -> list[tuple[str, str]]:
    """Rows and columns of register tiles whose lanes run along what is contracted."""
    return list(pairs(others, 2)) or [(others[0], "") if others else ("", "")]


def _suits(count: int, lanes: int, size: int) -> bool:
    """Whether so many positions, or vectors, along an axis are no more than it takes, nor mostly computed twice."""
    step = count * lanes
    return count == 1 or (step < size + lanes and -(-size // step) * step <= 1.5 * max(size, lanes))


@register
class LoopNestTemplate(Template[CpuTarget, LoopNestSchedule]):
    """Any reduction whose reads are affine."""

    name: ClassVar[str] = "loop_nest"
    target: ClassVar[str] = "cpu"
    chains: ClassVar[tuple[ChainKind, ...]] = ("rows", "products", "windows")

    def floor(self, chain: Chain, target: CpuTarget) -> float:
        """See `Template`: a term takes an instruction, and what is read and written comes and goes once."""
        if len(chain.reductions) != 1:
            return 0.0
        (step,), machine, sizes = chain.reductions, target.machine, chain.nominal.known_sizes
        computed = 2 * prod(sizes[axis] for axis in (*step.axes, *step.over)) / (machine.flops * machine.cores)
        least = max(computed, traffic(chain) / (machine.bandwidth * machine.cores))
        product = step.combine == "add" and isinstance(step.expr, Apply) and step.expr.op == "arith.mulf"
        return (ROUGH if product or chain.windowed else 1.0) * least

    def match(self, chain: Chain, target: CpuTarget, fusion: Fusion | None = None) -> LoopNestMatch | Refusal:
        """See `Template`."""
        try:
            match = LoopNestMatch(loop_nest_of(chain), target)
        except UnsupportedError as error:
            return Refusal(str(error), suits=len(chain.reductions) == 1)
        if not match.reused:
            return Refusal("each element that it reads is read once, and sweeps over rows do that in order")
        return match if any(True for _ in match.legal()) else Refusal("no box of what it reads fits into a stack frame")
