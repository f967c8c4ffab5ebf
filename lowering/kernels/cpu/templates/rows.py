"""Chains whose reductions all run over the same axes.

Lanes along a reduced trailing axis (``shape = "rows"``)::

    for row in workgroup's rows, unroll at a time:          # parallel
        for sweep in sweeps:                                # softmax: maxima, sums, quotients
            for j in 0, vectors * lanes, ...:               # vectors of every value that the sweep needs
                accumulators of the sweep's reductions; outputs of the last sweeps are stored
            lanes of the accumulators are combined

Lanes along a kept axis (``shape = "columns"``)::

    for columns in workgroup's columns, unroll * lanes at a time:
        for sweep in sweeps:
            for j in reduced axes:
                accumulators: one lane for each column
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import prod
from typing import ClassVar

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.expression import reads
from covan_mlir.fred.forms import Fusion
from covan_mlir.lowering.kernels.cpu.emission import Emitter
from covan_mlir.lowering.kernels.cpu.schedule import UNROLLS, VECTORS, VectorSchedule, lanes, predict
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.kernel import Executable, Refusal
from covan_mlir.lowering.kernels.reductions.hoist import Scope
from covan_mlir.lowering.kernels.reductions.operands import elements, traffic
from covan_mlir.lowering.kernels.reductions.redundant_precision import without_redundant_precision
from covan_mlir.lowering.kernels.reductions.sweeps import SEVERAL_ROWS, Sweeps
from covan_mlir.lowering.kernels.registry import register
from covan_mlir.lowering.kernels.structure import Structure
from covan_mlir.lowering.kernels.template import ChainKind, Cost, Match, Template
from covan_mlir.lowering.source_lines import SourceLines
from covan_mlir.machine.elements import bits

ACROSS = 12
"""Instructions that combine the lanes of a vector."""
GATHERED = 2
"""Instructions that gather an element."""


@dataclass(frozen=True)
class RowsMatch(Match[VectorSchedule]):
    """A chain of sweeps over rows.

    Attributes:
        chain: no reduction in it repeats another one in less precision.
    """

    chain: Chain
    target: CpuTarget

    @cached_property
    def nominal(self) -> Chain:
        """The chain with a size for every axis."""
        return self.chain.nominal

    def schedules(self) -> Iterator[VectorSchedule]:
        """See `Match`."""
        first = self._first()
        yield first
        seen = {first}
        for unroll, vectors in product(UNROLLS, VECTORS):
            schedule = replace(first, unroll=unroll, vectors=vectors)
            if schedule not in seen and self._fits(schedule):
                seen.add(schedule)
                yield schedule

    def _first(self) -> VectorSchedule:
        chain, machine = self.nominal, self.target.machine
        sizes = chain.known_sizes
        sweeps = Sweeps(chain)
        widest = max(chain.inputs, key=lambda value: len(value.axes))
        lane, width = widest.axes[-1], lanes(chain, machine)
        kept = prod(n for a, n in sizes.items() if a not in sweeps.over and a != lane)
        length = prod(sizes[a] for a in sweeps.over)
        if lane in sweeps.over:
            registers = -(-sizes[lane] // width)
            if length <= 16 * width:
                # What a row costs beside its elements is paid for several rows together.
                vectors = min(2, registers)
                together = min(8 // vectors, kept)
            else:
                vectors, together = max(1, min(8 // len(chain.reductions) or 1, 4, registers)), 1
            units, work = kept, length
        else:
            vectors, together = 1, max(1, min(4, sizes[lane] // width))
            units, work = kept * -(-sizes[lane] // (width * together)), length * width * together
        group = max(1, min(-(-units // (machine.cores * 8)), -(-(1 << 15) // work) * 4))
        if lane in sweeps.over:
            group = -(-group // together) * together
        return VectorSchedule(
            shape="rows" if lane in sweeps.over else "columns",
            lane=lane,
            stream=lane if lane in sweeps.over else next(iter(sweeps.over)),
            parallel=(("", group),),
            lanes=width,
            vectors=vectors,
            unroll=together,
            block=length,
            keep=sweeps.shared,
            ahead=lane in sweeps.over and machine.l1 > 0,
        )

    def _fits(self, schedule: VectorSchedule) -> bool:
        held, registers = schedule.unroll * schedule.vectors, self.target.machine.registers
        if schedule.shape == "columns":
            return schedule.vectors == 1 and held <= registers // 2
        over = Sweeps(self.nominal).over
        kept = prod(size for axis, size in self.nominal.known_sizes.items() if axis not in over)
        return schedule.unroll <= kept and held <= registers

    def predict(self, schedule: VectorSchedule) -> float:
        """See `Match`."""
        swept = predict(self.nominal, self.target.machine, schedule)
        swept += self._gathering(schedule)
        return swept + self._contracting(schedule) if self.nominal.contraction_flops else swept

    def _gathering(self, schedule: VectorSchedule) -> float:
        """Seconds that reads take whose elements do not lie together along the lanes, of sweeps over more than they
        have."""
        chain, machine, total = self.nominal, self.target.machine, 0
        for step in chain.reductions:
            axes = {*step.axes, *step.over}
            for name in reads(Scope(chain, {}).inlined(step.expr)):
                own = chain.values[name].axes
                if schedule.lane in own[:-1] and axes - {*own}:
                    total += prod(chain.known_sizes[axis] for axis in axes) * GATHERED
        return total * 2 * schedule.lanes / machine.flops / machine.cores

    def _contracting(self, schedule: VectorSchedule) -> float:
        """Seconds that a contraction takes besides what it computes: each of its results combines the lanes of its
        own accumulator, and what is no longer in the first cache is read again for it."""
        chain, machine = self.nominal, self.target.machine
        sizes, seconds = chain.known_sizes, 0.0
        for step in chain.reductions:
            results, terms = prod(sizes[a] for a in step.axes), prod(sizes[a] for a in step.over)
            seconds += results * ACROSS * 2 * schedule.lanes / machine.flops / machine.cores
            for name in reads(step.expr):
                value = chain.values[name]
                size = prod(sizes[a] for a in value.axes) * bits(value.dtype) // 8
                if size > machine.l1:
                    moved = results * terms * bits(value.dtype) // 8
                    seconds += moved / (machine.cache_bandwidth * machine.cores)
        return seconds

    def cost(self, schedule: VectorSchedule) -> Cost:
        """See `Match`."""
        return Cost(self.predict(schedule), 0, traffic(self.chain), elements(self.chain))

    def structure(self, schedule: VectorSchedule) -> Structure:
        """See `Match`."""
        return Structure("rows", factored="lanes" if schedule.shape == "rows" else "")

    def emit(self, schedule: VectorSchedule, name: str, lines: SourceLines) -> Executable:
        """See `Match`."""
        return Emitter(self.target.machine).rows(self.chain, schedule, name)


@register
class Rows(Template[CpuTarget, VectorSchedule]):
    """Sweeps over rows."""

    name: ClassVar[str] = "rows"
    target: ClassVar[str] = "cpu"
    chains: ClassVar[tuple[ChainKind, ...]] = ("rows", "products")

    def match(self, chain: Chain, target: CpuTarget, fusion: Fusion | None = None) -> RowsMatch | Refusal:
        """See `Template`."""
        chain = without_redundant_precision(chain)
        return RowsMatch(chain, target) if Sweeps(chain).rows_have_a_value else Refusal(SEVERAL_ROWS)
