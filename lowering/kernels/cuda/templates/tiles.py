"""Chains of any kind as Triton programs over tiles.

Rows are held whole (``shape = "whole"``)::

    for tile of block_rows rows in programs:
        all positions of the rows are loaded as one tile (block_rows, block_stream)
        reductions of the tile, one after the other; results are stored

or swept (``shape = "loop"``), with the derived repairs; contractions are matrix products of tiles::

    for other rows, tile of block_rows rows, part of the stream in programs:
        for sweep in sweeps:
            for block of block_stream positions:    # num_stages of them on their way from memory
                scores = tile of rows @ block of keys
                states repaired; accumulators (block_rows, block_wide) += weights @ block of values
        results, or the states of the part

and, where the stream is split into parts, a second launch that merges their states::

    for tile of rows in programs:
        for part in parts: state = merged
        results
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.forms import Fusion
from covan_mlir.fred.fuse import fuse
from covan_mlir.lowering.kernels.cuda.compile import compile_kernel
from covan_mlir.lowering.kernels.cuda.executables import module_text
from covan_mlir.lowering.kernels.cuda.kernel import Binary, CudaKernel
from covan_mlir.lowering.kernels.cuda.layout import SweepRoles, sweep_roles
from covan_mlir.lowering.kernels.cuda.lines import renamed, with_source_lines
from covan_mlir.lowering.kernels.cuda.ranges import BlockRanges, block_ranges
from covan_mlir.lowering.kernels.cuda.schedule import Problem, TileSchedule, configs, problem, seconds
from covan_mlir.lowering.kernels.cuda.target import CudaTarget
from covan_mlir.lowering.kernels.cuda.writer import LaunchWriter, moments
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.kernel import Dispatch, Executable, Refusal
from covan_mlir.lowering.kernels.reductions.hoist import Scope
from covan_mlir.lowering.kernels.reductions.operands import elements, operands, traffic
from covan_mlir.lowering.kernels.reductions.redundant_precision import without_redundant_precision
from covan_mlir.lowering.kernels.registry import register
from covan_mlir.lowering.kernels.template import Cost, Match, Template
from covan_mlir.lowering.source_lines import SourceLines

_NAME = "fred_kernel_"
"""Stands for the name of a kernel where it is only known later."""


@dataclass(frozen=True, eq=False)
class TilesMatch(Match[TileSchedule]):
    """A chain whose sweeps all run over the same axes; equal to itself only.

    Attributes:
        chain: as it was given.
        fusion: its sweeps, with the repairs.
        roles: of its axes.
    """

    chain: Chain
    fusion: Fusion
    roles: SweepRoles
    target: CudaTarget

    @cached_property
    def problem(self) -> Problem:
        """What schedules are chosen by."""
        sizes = self.chain.known_sizes
        loop = self.roles.loops[0]
        writes = any(stage.writes for stage in self.roles.stages)
        scope = Scope(self.fusion.chain, moments(loop))
        ranges = BlockRanges() if writes else block_ranges(self.fusion, self.roles, loop, scope, sizes)
        longest = max(self.roles.free, key=lambda axis: sizes[axis]) if self.roles.free else None
        return problem(self.fusion.chain, self.roles, ranges.share(longest, sizes))

    @cached_property
    def _configs(self) -> tuple[TileSchedule, ...]:
        whole = not (self.roles.feature_axes or self.roles.inner) and self.fusion.source.single_domain
        legal = configs(self.problem, self.target.device)
        return tuple(schedule for schedule in legal if whole or schedule.shape != "whole")

    def schedules(self) -> tuple[TileSchedule, ...]:
        """See `Match`."""
        return self._configs

    def predict(self, schedule: TileSchedule) -> float:
        """See `Match`."""
        return seconds(self.problem, self.target.device, schedule)

    def cost(self, schedule: TileSchedule) -> Cost:
        """See `Match`."""
        flops = int(self.fusion.chain.contraction_flops * self.problem.share)
        return Cost(self.predict(schedule), flops, traffic(self.chain), elements(self.chain))

    def write(self, schedule: TileSchedule, name: str, actions: Mapping[str, str] | None = None) -> CudaKernel:
        """Source of the launches.

        Args:
            actions: what to call steps of the chain in the source, instead of their own names.

        Raises:
            UnsupportedError: there is no code for the chain; says why.
        """
        inputs, outputs = operands(self.chain)
        steps = (*self.chain.inputs, *self.chain.steps, *self.fusion.chain.steps)
        called = {step.name: step.name for step in steps} | dict(actions or {})
        launches = LaunchWriter(name, self.fusion, self.roles, schedule, self.chain.known_sizes, called).launches()
        return CudaKernel(name, launches, inputs, outputs, self.target.device)

    def emit(self, schedule: TileSchedule, name: str, lines: SourceLines) -> Executable:
        """See `Match`. What Triton compiled is remembered, whatever it is called."""
        kernel, compiled = _compiled(self, schedule)
        where = dict(lines)
        binaries = [renamed(with_source_lines(binary, where), _NAME, name) for binary in compiled]
        launches = [binary.launch for binary in binaries]
        dispatches = tuple(Dispatch(launch.name, launch.inputs, launch.outputs) for launch in launches)
        text = module_text(binaries, kernel.device)
        return Executable(name, text, kernel.inputs, kernel.outputs, dispatches)


@lru_cache(256)
def _compiled(match: TilesMatch, schedule: TileSchedule) -> tuple[CudaKernel, tuple[Binary, ...]]:
    kernel = match.write(schedule, _NAME)
    return kernel, compile_kernel(kernel)


@lru_cache(256)
def _match(chain: Chain, target: CudaTarget) -> TilesMatch:
    return _of(chain, target, fuse(without_redundant_precision(chain) if chain.single_domain else chain))


def _of(chain: Chain, target: CudaTarget, fusion: Fusion) -> TilesMatch:
    return TilesMatch(chain, fusion, sweep_roles(fusion), target)


@register
class Tiles(Template[CudaTarget, TileSchedule]):
    """Triton programs over tiles. The cost model only estimates what a tile takes, so several schedules are tried."""

    name: ClassVar[str] = "tiles"
    target: ClassVar[str] = "cuda"
    tries: ClassVar[int] = 4

    def match(self, chain: Chain, target: CudaTarget, fusion: Fusion | None = None) -> TilesMatch | Refusal:
        """See `Template`."""
        if unknown := chain.extents:
            raise UnsupportedError(f"the sizes of {', '.join(unknown)} are only known at run time")
        match = _of(chain, target, fusion) if fusion else _match(chain, target)
        return match if match.schedules() else Refusal(f"no tiles of it fit {target.name}")
