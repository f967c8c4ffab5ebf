"""Chains with contractions: a row for each invocation, or, where no rows share keys, a position of the others.

::

    for row in invocations:
        for key in stream:                          # as many as masks leave to the row
            score = sum over depth of row * key
            statistics repaired
            accumulators of the features = repaired, + value * weight
        results

It is the CPU's nest for many rows (``shape = "queries"``), or for few (``keys``), with vectors of one element.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.forms import Fusion
from covan_mlir.lowering.kernels.cpu.contraction import Contraction, check_stack, contraction
from covan_mlir.lowering.kernels.cpu.emission import Emitter
from covan_mlir.lowering.kernels.cpu.schedule import VectorSchedule, predict
from covan_mlir.lowering.kernels.kernel import Executable, Refusal
from covan_mlir.lowering.kernels.registry import register
from covan_mlir.lowering.kernels.template import ChainKind, Cost, Match, Template
from covan_mlir.lowering.kernels.vulkan.invocation import Invocation
from covan_mlir.lowering.kernels.vulkan.limits import (
    BLOCK,
    TOGETHER,
    endless,
    iterations_of_contractions,
    seconds,
    unsupported,
)
from covan_mlir.lowering.kernels.vulkan.target import VulkanTarget
from covan_mlir.lowering.source_lines import SourceLines


@dataclass(frozen=True)
class ContractionsMatch(Match[VectorSchedule]):
    """A chain with contractions."""

    task: Contraction
    target: VulkanTarget

    def schedules(self) -> Iterator[VectorSchedule]:
        """See `Match`: there is one."""
        roles, sizes = self.task.roles, self.task.fusion.chain.sizes
        if not roles.free:
            yield VectorSchedule("keys", roles.reduction_axis, roles.reduction_axis, (("", 1),), 1, 1, 1, BLOCK)
        else:
            lane = max(roles.free, key=lambda axis: sizes[axis] or 0)
            yield VectorSchedule("queries", lane, roles.reduction_axis, ((lane, 1),), 1, 1, TOGETHER, BLOCK)

    def predict(self, schedule: VectorSchedule) -> float:
        """See `Match`."""
        return seconds(self.task.chain, schedule, self._computing(schedule), self.task.flops, self.target.device.speed)

    def _computing(self, schedule: VectorSchedule) -> float:
        return predict(self.task.chain.nominal, self.target.device.invocation, schedule)

    def cost(self, schedule: VectorSchedule) -> Cost:
        """See `Match`; of the time, what memory takes besides that is read out of order is left out."""
        return self.task.cost(self._computing(schedule))

    def emit(self, schedule: VectorSchedule, name: str, lines: SourceLines) -> Executable:
        """See `Match`."""
        emitter = Emitter(self.target.device.invocation, Invocation)
        return (emitter.many_rows if self.task.roles.free else emitter.few_rows)(self.task, schedule, name)


@register
class Contractions(Template[VulkanTarget, VectorSchedule]):
    """A loop with contractions."""

    name: ClassVar[str] = "contractions"
    target: ClassVar[str] = "vulkan"
    chains: ClassVar[tuple[ChainKind, ...]] = ("contractions",)

    def match(self, chain: Chain, target: VulkanTarget, fusion: Fusion | None = None) -> ContractionsMatch | Refusal:
        """See `Template`."""
        if (reason := unsupported(chain, target.device)) is not None:
            return Refusal(reason)
        task = contraction(chain, fusion)
        if (reason := task.unknown(set())) is not None:
            return Refusal(reason)
        match = ContractionsMatch(task, target)
        check_stack(task, target.device.invocation, next(match.schedules()))
        reason = endless(iterations_of_contractions(task), target.device)
        return Refusal(reason) if reason else match
