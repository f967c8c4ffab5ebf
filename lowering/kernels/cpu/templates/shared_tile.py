"""Products that meet in tiles of an intermediate value: gradients of attention, without the matrix of its weights.

::

    for position of the batch in parallel:
        for block of columns:
            panels = the factors of the columns, transposed
            for block of rows, those that masks leave:
                tile = inner products of rows and columns, then its elements
                sums over the rows += tile, transposed, times a factor of the rows
                sums over the columns += tile times a factor of the columns
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product as combinations
from math import prod
from typing import ClassVar

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.expression import reads
from covan_mlir.fred.forms import Fusion
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size
from covan_mlir.lowering.kernels.cpu.dense import DenseMatch, Writer
from covan_mlir.lowering.kernels.cpu.elements import computed
from covan_mlir.lowering.kernels.cpu.register_tile import register_tiles
from covan_mlir.lowering.kernels.cpu.shared_tile import SharedTileWriter, sum_over_columns_in_memory
from covan_mlir.lowering.kernels.cpu.shared_tile_schedule import SharedTileSchedule
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.cpu.templates.product import BREADTH, IN_FLIGHT, NARROW, TILES, makespan
from covan_mlir.lowering.kernels.cpu.tiles import padded
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.reductions.hoist import Scope
from covan_mlir.lowering.kernels.reductions.masks import Span, unmasked
from covan_mlir.lowering.kernels.reductions.operands import elements, traffic
from covan_mlir.lowering.kernels.reductions.profitability import EXPOSED
from covan_mlir.lowering.kernels.reductions.sweeps import cost_together
from covan_mlir.lowering.kernels.reductions.tile_roles import TileRoles, plain, tile_roles
from covan_mlir.lowering.kernels.registry import register
from covan_mlir.lowering.kernels.structure import Structure
from covan_mlir.lowering.kernels.template import ChainKind, Cost, Template
from covan_mlir.machine.elements import bits

BLOCKS = (16, 32, 48, 64, 96, 128)
"""Rows and columns of tiles in scratch."""
MOVED = 2.0
"""Instructions that read and write a vector of a tile."""


@dataclass(frozen=True)
class SharedTile:
    """What a kernel computes."""

    chain: Chain
    roles: TileRoles
    span: Span

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Of all axes."""
        return self.chain.known_sizes

    @cached_property
    def share(self) -> float:
        """Part of all tiles that masks leave."""
        return self.span.share(self.roles.columns, self.sizes)

    @cached_property
    def flops(self) -> int:
        """Floating-point operations of the products, those skipped by masks left out."""
        return int(self.chain.contraction_flops * self.share)

    def cost(self, seconds: float) -> Cost:
        """See `Task`."""
        return Cost(seconds, self.flops, traffic(self.chain), elements(self.chain))


@dataclass(frozen=True)
class SharedTileMatch(DenseMatch[SharedTileSchedule]):
    """A chain whose products meet in tiles."""

    task: SharedTile
    target: CpuTarget

    @cached_property
    def _dtype(self) -> str:
        return computed(self.task.roles.sums[0].step.dtype)

    def legal(self) -> Iterator[SharedTileSchedule]:
        """See `DenseMatch`."""
        machine, lanes = self.target.machine, self.target.machine.lanes(self._dtype)
        for (height, vectors), rows, columns in combinations(register_tiles(machine.registers, TILES), BLOCKS, BLOCKS):
            if rows % height or columns % height or columns % lanes:
                continue
            schedule = SharedTileSchedule(lanes, height, vectors, rows, columns)
            if self._scratch(schedule) <= machine.stack:
                yield schedule

    def _scratch(self, schedule: SharedTileSchedule) -> int:
        """Bytes of the tiles of a schedule."""
        roles, sizes, rows, columns = self.task.roles, self.task.sizes, schedule.rows, schedule.columns
        held = sum(columns * padded(sizes[one.depth], schedule.lanes) for one in roles.inner)
        held += sum(
            columns * padded(sizes[one.feature], schedule.lanes) for one in roles.sums if one.over == roles.rows
        )
        held += rows * columns * max(len(roles.inner), len(roles.parts))
        for expr, axis, other in roles.read_by_blocks:
            if plain(expr, self.task.chain, other) is None:
                held += (rows if axis == roles.rows else columns) * padded(sizes[other], schedule.lanes)
        return held * bits(self._dtype) // 8

    def predict(self, schedule: SharedTileSchedule) -> float:
        """Products at the rate at which tiles in registers are multiplied, elements at that of their operations."""
        machine, roles, sizes, lanes = self.target.machine, self.task.roles, self.task.sizes, schedule.lanes
        # Vector instructions for each vector of a tile.
        inner = sum(sizes[one.depth] + MOVED for one in roles.inner)
        down = sum(
            padded(sizes[one.feature], lanes) * (1 + MOVED / schedule.rows)
            for one in roles.sums
            if one.over == roles.rows
        )
        across = sum(
            padded(sizes[one.feature], lanes) * (1 + MOVED / schedule.columns)
            for one in roles.sums
            if one.over == roles.columns
        )
        tile = schedule.height * schedule.vectors
        loads = (schedule.height + schedule.vectors) / 2
        each = max(1.0, loads / tile, IN_FLIGHT / tile) + NARROW * max(0, BREADTH - tile)
        elementwise = cost_together(roles.parts) + MOVED * len(roles.parts)
        tiles = prod(-(-sizes[axis] // block) for axis, block in self._blocks(schedule)) * self.task.share
        vectors = tiles * schedule.rows * schedule.columns / lanes
        instructions = vectors * ((inner + down + across) * each + elementwise)
        instructions += sum(sizes[roles.columns] * sizes[one.depth] for one in roles.inner) * 2 / lanes
        rate = machine.flops / (2 * lanes)
        count = prod(sizes[axis] for axis in roles.batch)
        computed_in = makespan([(instructions / rate, count)], machine.cores)
        moved = traffic(self.task.chain) / (machine.bandwidth * machine.cores)
        return max(computed_in, moved) + EXPOSED * min(computed_in, moved)

    def _blocks(self, schedule: SharedTileSchedule) -> tuple[tuple[str, int], ...]:
        return (self.task.roles.rows, schedule.rows), (self.task.roles.columns, schedule.columns)

    def structure(self, schedule: SharedTileSchedule) -> Structure:
        """See `Match`."""
        names = {name for one in self.task.roles.inner for name in reads(one.column)}
        return Structure("tiles", cached=tuple(sorted(names)), held=True)

    def writer(self, code: KernelBuilder, sizes: Mapping[str, Size], schedule: SharedTileSchedule) -> Writer:
        """See `DenseMatch`."""
        return SharedTileWriter(code, self.task.sizes, schedule, self.task.roles, self.task.span)


@register
class SharedTileTemplate(Template[CpuTarget, SharedTileSchedule]):
    """Products that meet in tiles of an intermediate value."""

    name: ClassVar[str] = "shared_tile"
    target: ClassVar[str] = "cpu"
    chains: ClassVar[tuple[ChainKind, ...]] = ("contractions",)

    def match(self, chain: Chain, target: CpuTarget, fusion: Fusion | None = None) -> SharedTileMatch | Refusal:
        """See `Template`."""
        roles = tile_roles(chain)
        if chain.extents:
            return Refusal(f"the sizes of {', '.join(chain.extents)} are only known at run time")
        dtypes = {step.dtype for step in chain.reductions}
        if len(dtypes) != 1 or not dtypes <= {"f32", "f64"}:
            return Refusal(f"its sums are of {', '.join(sorted(dtypes))}")
        for one in roles.sums:
            reason = sum_over_columns_in_memory(one, roles) if one.over == roles.columns else None
            if reason:
                return Refusal(reason)
        limits = unmasked(Scope(chain, {}), [one.step for one in roles.sums], roles.rows, chain.known_sizes)
        known = {roles.rows, roles.columns, *roles.batch}
        limits = tuple(bound for bound in limits if {axis for axis, n in bound.factors if n} <= known)
        match = SharedTileMatch(SharedTile(chain, roles, Span(roles.rows, limits)), target)
        return match if match.ranked else Refusal("its tiles do not fit into a stack frame")
