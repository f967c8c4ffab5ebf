"""Chains whose reductions all run over the same axes: a row for each invocation.

::

    for row in invocations:
        for sweep in sweeps:
            for j in reduced axes:                  # one element after the other
                accumulators of the sweep's reductions; outputs of the last sweeps are stored

It is the CPU's nest with vectors of one element.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.forms import Fusion
from covan_mlir.lowering.kernels.cpu.emission import Emitter
from covan_mlir.lowering.kernels.cpu.schedule import VectorSchedule, predict
from covan_mlir.lowering.kernels.kernel import Executable, Refusal
from covan_mlir.lowering.kernels.reductions.operands import elements, traffic
from covan_mlir.lowering.kernels.reductions.redundant_precision import without_redundant_precision
from covan_mlir.lowering.kernels.reductions.sweeps import SEVERAL_ROWS, Sweeps
from covan_mlir.lowering.kernels.registry import register
from covan_mlir.lowering.kernels.template import ChainKind, Cost, Match, Template
from covan_mlir.lowering.kernels.vulkan.invocation import Invocation
from covan_mlir.lowering.kernels.vulkan.limits import endless, iterations_of_rows, seconds, unsupported
from covan_mlir.lowering.kernels.vulkan.target import VulkanTarget
from covan_mlir.lowering.source_lines import SourceLines


@dataclass(frozen=True)
class RowsMatch(Match[VectorSchedule]):
    """A chain of sweeps over rows.

    Attributes:
        chain: no reduction in it repeats another one in less precision.
    """

    chain: Chain
    target: VulkanTarget

    def schedules(self) -> Iterator[VectorSchedule]:
        """See `Match`: there is one."""
        sweeps = Sweeps(self.chain)
        lane = max(self.chain.inputs, key=lambda value: len(value.axes)).axes[-1]
        inner = lane in sweeps.over
        stream = lane if inner else next(iter(sweeps.over))
        yield VectorSchedule("rows" if inner else "columns", lane, stream, (("", 1),), 1, 1, 1, 1)

    def predict(self, schedule: VectorSchedule) -> float:
        """See `Match`."""
        return seconds(self.chain, schedule, self._computing(schedule), 0, self.target.device.speed)

    def _computing(self, schedule: VectorSchedule) -> float:
        return predict(self.chain.nominal, self.target.device.invocation, schedule)

    def cost(self, schedule: VectorSchedule) -> Cost:
        """See `Match`; of the time, what memory takes besides that is read out of order is left out."""
        return Cost(self._computing(schedule), 0, traffic(self.chain), elements(self.chain))

    def emit(self, schedule: VectorSchedule, name: str, lines: SourceLines) -> Executable:
        """See `Match`."""
        return Emitter(self.target.device.invocation, Invocation).rows(self.chain, schedule, name)


@register
class Rows(Template[VulkanTarget, VectorSchedule]):
    """Sweeps over rows."""

    name: ClassVar[str] = "rows"
    target: ClassVar[str] = "vulkan"
    chains: ClassVar[tuple[ChainKind, ...]] = ("rows",)

    def match(self, chain: Chain, target: VulkanTarget, fusion: Fusion | None = None) -> RowsMatch | Refusal:
        """See `Template`."""
        reason = unsupported(chain, target.device) or endless(iterations_of_rows(chain), target.device)
        reason = reason or ("" if Sweeps(chain).rows_have_a_value else SEVERAL_ROWS)
        return Refusal(reason) if reason else RowsMatch(without_redundant_precision(chain), target)
