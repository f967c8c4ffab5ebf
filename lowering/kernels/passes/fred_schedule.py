"""``fred-schedule``: how chains are laid out on a machine, as data beside them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from torch_mlir import ir

from covan_mlir.dialects.fred_chain import chains, read_chain
from covan_mlir.dialects.fred_data import attribute
from covan_mlir.dialects.fred_fused import read_fusion
from covan_mlir.fred.scaled_weights import scaled
from covan_mlir.lowering.request import WINOGRAD
from covan_mlir.passes.framework.interface import PassFailure

if TYPE_CHECKING:
    from covan_mlir.lowering.kernels.target import KernelTarget


@dataclass(frozen=True)
class FredSchedule:
    """Gives each chain and each fused form its ``schedule``: tile sizes, unrolling, parallel axes, vector width.

    A template and a cost model choose, from the description of the machine. A chain that no shape of code holds says
    why, in ``unscheduled``.

    Before::

        "fred.fused"(%q, %k, %v) ({...}, {...}) {axes = ["h", "i", "d", "j", "e"], ...}

    After::

        "fred.fused"(%q, %k, %v) ({...}, {...}) {axes = ["h", "i", "d", "j", "e"], predicted_seconds = 1.3e-3,
            schedule = {shape = "queries", lane = "i", stream = "j", parallel = [["i", 64]], vectors = 4, ...}}

    Options:
        target: the target whose schedules these are
        machine: host, or the name of a machine that the target describes; by default host, for GPUs the first
        machine-with: what to change in its description, such as cores=4
        winograd: how many times as large as that of a direct sum the rounding error of a convolution by Winograd's
            filtering may be; 0: there are none
        override: what to change in the schedule that was chosen, such as block=64; it must be legal
        candidate: number of the schedule among the legal ones of all templates; 0 is the cost model's choice
        list: write all legal schedules to standard error, with their predicted times and templates
    """

    name: ClassVar[str] = "fred-schedule"
    op_name: ClassVar[str | None] = "func.func"

    target: str = "cpu"
    machine: str = ""
    machine_with: tuple[str, ...] = ()
    winograd: int = WINOGRAD
    override: tuple[str, ...] = ()
    candidate: int = 0
    list: bool = False

    def run(self, op: ir.Operation) -> None:
        # Here, for these are the code generators of all targets, and covan-opt starts without.
        from covan_mlir.lowering.kernels import targets
        from covan_mlir.lowering.kernels.overrides import IllegalError

        try:
            target = targets.named(self.target, self.machine, _pairs(self.machine_with)).allowing(self.winograd)
            for chain in chains(op, "fred.chain", "fred.fused"):
                self._schedule(chain, target)
        except IllegalError as error:
            raise PassFailure(str(error), op.location) from error

    def _schedule(self, op: ir.Operation, target: KernelTarget) -> None:
        from covan_mlir.lowering.kernels.kernel import Refusal
        from covan_mlir.lowering.kernels.select import choices

        fusion = read_fusion(op) if op.name == "fred.fused" else None
        choice = choices(fusion.chain if fusion else scaled(read_chain(op)).chain, target, fusion)
        if isinstance(choice, Refusal):
            op.attributes["unscheduled"] = ir.StringAttr.get(choice.reason, op.context)
            return
        if self.list:
            for number, (candidate, schedule) in enumerate(choice.schedules()):
                predicted = candidate.match.predict(schedule)
                said = f"{number}: {predicted:.3g} s {candidate.template.name}: {_text(schedule.to_json())}"
                print(said, file=sys.stderr)
        candidate, schedule = choice.pick(self.candidate, _pairs(self.override))
        op.attributes["schedule"] = attribute(schedule.to_json(), op.context)
        op.attributes["predicted_seconds"] = attribute(candidate.match.predict(schedule), op.context)


def _pairs(items: Sequence[str]) -> dict[str, str]:
    overrides = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals:
            raise PassFailure(f"{item!r} changes nothing: write key=value")
        overrides[key.strip().replace("-", "_")] = value.strip()
    return overrides


def _text(schedule: dict[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in schedule.items())
