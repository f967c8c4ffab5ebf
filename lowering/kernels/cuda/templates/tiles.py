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

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.forms import Fusion
from covan_mlir.fred.fuse import fuse
from covan_mlir.lowering.kernels.cuda.layout import sweep_roles
from covan_mlir.lowering.kernels.cuda.match import TileMatch
from covan_mlir.lowering.kernels.cuda.ranges import BlockRanges, block_ranges
from covan_mlir.lowering.kernels.cuda.schedule import Problem, TileSchedule, configs, problem, seconds
from covan_mlir.lowering.kernels.cuda.target import CudaTarget
from covan_mlir.lowering.kernels.cuda.writer import moments
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.reductions.hoist import Scope
from covan_mlir.lowering.kernels.reductions.operands import elements, traffic
from covan_mlir.lowering.kernels.reductions.redundant_precision import without_redundant_precision
from covan_mlir.lowering.kernels.registry import register
from covan_mlir.lowering.kernels.template import Cost, Template


@dataclass(frozen=True, eq=False)
class TilesMatch(TileMatch):
    """A chain whose sweeps all run over the same axes."""

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
