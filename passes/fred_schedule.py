"""``fred-schedule``: how chains are laid out on a machine, as data beside them."""

import importlib
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from torch_mlir import ir

from covan_mlir.dialects.fred_chain import read_chain
from covan_mlir.dialects.fred_data import attribute
from covan_mlir.dialects.fred_fused import read_fusion
from covan_mlir.passes.framework.interface import PassFailure
from covan_mlir.passes.fred_rolling_update import chains


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
        machine: host, or the name of a machine that the target describes
        machine-with: what to change in its description, such as cores=4
        override: what to change in the schedule that was chosen, such as block=64; it must be legal
        candidate: number of the schedule among the legal ones; 0 is the cost model's choice
        list: write all legal schedules to standard error, with their predicted times
    """

    name: ClassVar[str] = "fred-schedule"
    op_name: ClassVar[str | None] = "func.func"

    target: str = "cpu"
    machine: str = "host"
    machine_with: tuple[str, ...] = ()
    override: tuple[str, ...] = ()
    candidate: int = 0
    list: bool = False

    def run(self, op: ir.Operation) -> None:
        # By name, for passes do not know targets: a target is a package of the room that lowers to it.
        try:
            target = importlib.import_module(f"covan_mlir.lowering.kernels.{self.target}.choose")
        except ModuleNotFoundError as error:
            raise PassFailure(f"there is no target {self.target!r} with schedules", op.location) from error
        try:
            machine = target.machine(self.machine, _pairs(self.machine_with))
            for found in chains(op, "fred.chain", "fred.fused"):
                self._schedule(found, target, machine)
        except target.IllegalError as error:
            raise PassFailure(str(error), op.location) from error

    def _schedule(self, op: ir.Operation, target: Any, machine: Any) -> None:
        fusion = read_fusion(op) if op.name == "fred.fused" else None
        choice = target.choice(fusion.chain if fusion else read_chain(op), machine, fusion)
        if isinstance(choice, str):
            op.attributes["unscheduled"] = ir.StringAttr.get(choice, op.context)
            return
        if self.list:
            for number, schedule in enumerate(choice.schedules):
                print(f"{number}: {choice.seconds(schedule):.3g} s {_text(asdict(schedule))}", file=sys.stderr)
        schedule = choice.pick(self.candidate, _pairs(self.override))
        op.attributes["schedule"] = attribute(asdict(schedule), op.context)
        op.attributes["predicted_seconds"] = attribute(choice.seconds(schedule), op.context)


def _pairs(items: Sequence[str]) -> dict[str, str]:
    found = {}
    for item in items:
        key, equals, value = item.partition("=")
        if not equals:
            raise PassFailure(f"{item!r} changes nothing: write key=value")
        found[key.strip().replace("-", "_")] = value.strip()
    return found


def _text(schedule: dict[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in schedule.items())
