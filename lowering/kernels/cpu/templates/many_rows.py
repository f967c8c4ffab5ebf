"""Chains with contractions and many rows that share their keys: attention of a whole prompt.

::

    for batch, group of rows in parallel:           # vectors * lanes rows; lanes run along them
        rows' tile = transposed to (depth, rows)
        for block of keys in stream:                # as many as masks leave to the group
            for unroll keys at a time:
                scores = sum over depth of rows' tile * keys    # vectors of rows, one per key
            statistics of the block: registers
            accumulators (features, rows) = repaired, + values of the block * weights
        results = accumulators and statistics, transposed back
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import ClassVar

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.forms import Fusion
from covan_mlir.lowering.kernels.cpu.contraction import FEW_ROWS, ContractionMatch, contraction, fits, stack
from covan_mlir.lowering.kernels.cpu.emission import Emitter
from covan_mlir.lowering.kernels.cpu.schedule import BLOCKS, UNROLLS, VECTORS, VectorSchedule, lanes
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.kernel import Executable, Refusal
from covan_mlir.lowering.kernels.registry import register
from covan_mlir.lowering.kernels.structure import Structure
from covan_mlir.lowering.kernels.template import ChainKind, Template
from covan_mlir.lowering.source_lines import SourceLines

ROW_GROUP = 32
"""Rows that are computed together, if registers are few or wide enough."""


@dataclass(frozen=True)
class ManyRowsMatch(ContractionMatch):
    """A chain with contractions and many rows."""

    def schedules(self) -> Iterator[VectorSchedule]:
        """See `Match`."""
        first = self._first()
        yield first
        seen = {first}
        for unroll, vectors, block in product(UNROLLS, VECTORS, BLOCKS):
            group = ((first.lane, vectors * first.lanes),)
            schedule = replace(first, unroll=unroll, vectors=vectors, block=block, parallel=group)
            if schedule not in seen and fits(self.task, self.target.machine, schedule):
                seen.add(schedule)
                yield schedule

    def _first(self) -> VectorSchedule:
        chain, machine, roles = self.task.nominal, self.target.machine, self.task.roles
        sizes = chain.known_sizes
        width = lanes(chain, machine)
        lane = max(roles.free, key=lambda axis: sizes[axis])
        # Half of the registers accumulate; groups of some 32 rows read keys often enough from cache, and leave out what
        # a causal mask does closely.
        vectors = max(2, min(ROW_GROUP // width, machine.registers // 8))
        unroll = machine.registers // 2 // vectors
        vectors = min(vectors, -(-sizes[lane] // width))
        schedule = VectorSchedule(
            shape="queries",
            lane=lane,
            stream=roles.reduction_axis,
            parallel=((lane, vectors * width),),
            lanes=width,
            vectors=vectors,
            unroll=unroll,
            block=128,
        )
        while vectors > 1 and stack(chain, machine, schedule, roles) > machine.stack:
            narrower = schedule.block <= 32
            vectors = vectors // 2 if narrower else vectors
            block = 128 if narrower else schedule.block // 2
            schedule = replace(schedule, vectors=vectors, block=block, parallel=((lane, vectors * width),))
        return schedule

    def structure(self, schedule: VectorSchedule) -> Structure:
        """See `Match`."""
        return Structure("rolling")

    def emit(self, schedule: VectorSchedule, name: str, lines: SourceLines) -> Executable:
        """See `Match`."""
        return Emitter(self.target.machine).many_rows(self.task, schedule, name)


@register
class ManyRows(Template[CpuTarget, VectorSchedule]):
    """A loop with contractions, lanes along the rows."""

    name: ClassVar[str] = "many_rows"
    target: ClassVar[str] = "cpu"
    chains: ClassVar[tuple[ChainKind, ...]] = ("contractions",)

    def match(self, chain: Chain, target: CpuTarget, fusion: Fusion | None = None) -> ManyRowsMatch | Refusal:
        """See `Template`."""
        task = contraction(chain, fusion)
        if task.sharing <= FEW_ROWS:
            return Refusal(f"{task.sharing} rows share their keys, of {FEW_ROWS + 1} at least", suits=False)
        reason = task.unknown(set())
        return Refusal(reason) if reason else ManyRowsMatch(task, target)
