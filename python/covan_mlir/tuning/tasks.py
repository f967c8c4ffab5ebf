"""What there is to tune in a program: its distinct kernels, and how often each runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from covan_mlir.fred import chain_json
from covan_mlir.fred.chain import Chain
from covan_mlir.fred.scaled_weights import scaled
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.recorded import workload
from covan_mlir.lowering.kernels.reductions.operands import traffic
from covan_mlir.lowering.kernels.target import KernelTarget
from covan_mlir.provenance.model import LineageData
from covan_mlir.tuning.space import Space, space_of


@dataclass(frozen=True)
class Task:
    """A kernel of a program.

    Attributes:
        kernel: its name in the program.
        workload: the name of what it computes.
        count: how often a call runs it.
        what: the actions that it performs, of one place where it runs.
        space: the schedules that it may have.
    """

    kernel: str
    workload: str
    chain: Chain
    count: int
    what: str
    space: Space

    @property
    def work(self) -> float:
        """Operations of its contractions, or bytes, if it has none."""
        return float(self.chain.contraction_flops or traffic(self.chain))

    @property
    def kind(self) -> str:
        """What tasks that are alike have in common."""
        return f"{self.space.default.candidate.template} {'flops' if self.chain.contraction_flops else 'bytes'}"


def tasks_of(
    lineage: LineageData, target: KernelTarget, spaces: dict[str, Space | Refusal] | None = None
) -> tuple[list[Task], dict[str, str]]:
    """The kernels of a program that can be tuned, and why others cannot, by name.

    Args:
        spaces: by workload; those that are not there are added.
    """
    spaces = {} if spaces is None else spaces
    runs = Counter(site.kernel for site in lineage.sites if site.phase == "call")
    tasks: dict[str, Task] = {}
    left: dict[str, str] = {}
    for record in lineage.fusions:
        if not record.kernel or record.kernel in tasks or record.kernel in left:
            continue
        chain = scaled(chain_json.load(record.source)).chain
        if chain.extents:
            left[record.kernel] = "it has sizes that are known at run time only"
            continue
        name = workload(chain)
        space = spaces.get(name) or space_of(chain, target)
        spaces[name] = space
        if isinstance(space, Refusal):
            left[record.kernel] = space.reason
            continue
        names = dict.fromkeys(
            lineage.actions[owner].name
            for i in record.parts
            if (part := lineage.parts.get(i)) is not None
            for owner in part.owners
        )
        count = runs[record.kernel] or 1
        tasks[record.kernel] = Task(record.kernel, name, chain, count, ", ".join(names), space)
    return list(tasks.values()), left
