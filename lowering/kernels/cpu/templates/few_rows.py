"""Chains with contractions and few rows that share their keys: attention of one token with a long past.

::

    for batch, part of the stream in parallel:      # split parts
        for block of keys in the part:              # as many as masks leave
            for keys, lanes at a time:
                scores of all rows = sum over depth of rows * keys, transposed in registers
            statistics of the block, across lanes
            for unroll rows at a time:
                for features, vectors * lanes at a time:
                    accumulators = repaired, + values of the block * weights
    states of the part, or, where there is one part only, results

and, where there are several parts, a second dispatch that merges their states::

    for row in parallel:
        for part in parts: state = merged
        results
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import ClassVar

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.forms import Fusion
from covan_mlir.lowering.kernels.cpu.contraction import FEW_ROWS, ContractionMatch, contraction, fits
from covan_mlir.lowering.kernels.cpu.emission import Emitter
from covan_mlir.lowering.kernels.cpu.schedule import BLOCKS, UNROLLS, VECTORS, VectorSchedule, lanes
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.kernel import Executable, Refusal
from covan_mlir.lowering.kernels.registry import register
from covan_mlir.lowering.kernels.structure import Structure
from covan_mlir.lowering.kernels.template import ChainKind, Template
from covan_mlir.lowering.source_lines import SourceLines


@dataclass(frozen=True)
class FewRowsMatch(ContractionMatch):
    """A chain with contractions and few rows."""

    def schedules(self) -> Iterator[VectorSchedule]:
        """See `Match`."""
        first = self._first()
        yield first
        seen = {first}
        length = self.task.nominal.known_sizes[self.task.roles.reduction_axis]
        for unroll, vectors, block in product(UNROLLS, VECTORS, BLOCKS):
            splits = {1, first.split}
            if self.task.roles.stage.split:
                splits |= {n for n in (2, 4, 8, 16) if n * block <= length}
            for split in sorted(splits):
                schedule = replace(first, unroll=unroll, vectors=vectors, block=block, split=split)
                if schedule not in seen and fits(self.task, self.target.machine, schedule):
                    seen.add(schedule)
                    yield schedule

    def _first(self) -> VectorSchedule:
        chain, machine, roles = self.task.nominal, self.target.machine, self.task.roles
        width = lanes(chain, machine)
        features = chain.known_sizes[roles.feature_axis] if roles.feature_axis else 1
        vectors = min(-(-features // width), 8, machine.registers // 4)
        block = 256 if self.task.sharing <= 4 else 128
        return VectorSchedule(
            shape="keys",
            lane=roles.reduction_axis,
            stream=roles.reduction_axis,
            parallel=(("", 1),),
            lanes=width,
            vectors=vectors,
            unroll=max(1, min(self.task.sharing, machine.registers // 2 // vectors)),
            block=block,
            split=self._parts(block),
            ahead=self.task.streamed > 2 * machine.l2 * machine.cores,
        )

    def _parts(self, block: int) -> int:
        """Into how many parts to cut the loop, so that all cores have as much to do.

        Without enough groups of rows that share their keys, cores would be idle. Reading the streamed inputs is what a
        group takes; from the last cache it is faster than from memory.
        """
        sizes, machine, roles = self.task.nominal.known_sizes, self.target.machine, self.task.roles
        groups = prod(sizes[axis] for axis in roles.rows if axis not in roles.free)
        longest = -(-sizes[roles.reduction_axis] // block)
        if roles.stage.split is None or longest == 1:
            return 1
        near = self.task.streamed <= machine.llc // 2
        seconds = self.task.streamed / groups / (machine.cache_bandwidth if near else machine.bandwidth)

        def predicted(n: int) -> float:
            return -(-groups * n // machine.cores) / n * seconds + (machine.barrier if n > 1 else 0.0)

        return min(range(1, min(longest, 4 * machine.cores) + 1), key=predicted)

    def structure(self, schedule: VectorSchedule) -> Structure:
        """See `Match`."""
        return Structure("rolling", factored="parts" if schedule.split > 1 else "lanes")

    def emit(self, schedule: VectorSchedule, name: str, lines: SourceLines) -> Executable:
        """See `Match`."""
        return Emitter(self.target.machine).few_rows(self.task, schedule, name)


@register
class FewRows(Template[CpuTarget, VectorSchedule]):
    """A loop with contractions, lanes along the keys."""

    name: ClassVar[str] = "few_rows"
    target: ClassVar[str] = "cpu"
    chains: ClassVar[tuple[ChainKind, ...]] = ("contractions",)

    def match(self, chain: Chain, target: CpuTarget, fusion: Fusion | None = None) -> FewRowsMatch | Refusal:
        """See `Template`."""
        task = contraction(chain, fusion)
        if task.sharing > FEW_ROWS:
            return Refusal(f"{task.sharing} rows share their keys, of {FEW_ROWS} at most", suits=False)
        reason = task.unknown({*task.roles.free})
        return Refusal(reason) if reason else FewRowsMatch(task, target)
