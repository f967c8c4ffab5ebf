"""The steps of a compilation, in their order, and when each is part of it.

====================  ========================================================  ==============================
step                  what it does                                              part of the pipeline
====================  ========================================================  ==============================
attach                operators of covan's own become bodies and regions        if the program has any
torch-backend         torch dialect to its backend contract                     through linalg
torch-to-linalg       backend contract to linalg on tensors                     through linalg
fred-raise            linalg to chains of reductions                            where chains are fused
fred-kernels          chains to calls of kernels                                where chains are fused
iree:import           bytecode into an IREE session                             always
iree:attach           regions to barriers                                       if the program has any
iree:externalize      weights become parameters                                 through linalg, if it has any
iree:embed            calls to dispatches of executables                        where chains are fused
iree:input ...        IREE's phases (`iree_phases.PHASES`)                      always
iree:team             kernels share their work with a team; after               where chains are fused, on CPUs
                      iree:executable-sources: targets are known then, and
                      code is still to be generated
====================  ========================================================  ==============================

Chains are fused in programs that go through linalg, for targets that kernels are written for. A user's extra step
(`covan_mlir.lowering.extra_steps`) follows the step that it names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from covan_mlir.lowering import extra_steps, inlined, iree_phases, parameters, torch_to_linalg
from covan_mlir.lowering.kernels.cpu import team
from covan_mlir.lowering.kernels.fused import Fusion
from covan_mlir.lowering.pipeline import Run, Step
from covan_mlir.lowering.request import Job


@dataclass(frozen=True)
class Setting:
    """What decides on the pipeline.

    Attributes:
        frontend: the way to linalg: torch-mlir's lowering (``linalg``), or IREE's torch input.
        fusion: of chains of reductions, if they become kernels of their own.
    """

    job: Job
    frontend: Literal["linalg", "torch"]
    fusion: Fusion | None = None

    @property
    def through_linalg(self) -> bool:
        """Whether torch-mlir lowers the program."""
        return self.frontend == "linalg"

    @property
    def fused(self) -> Fusion:
        """The fusion, for steps that are there with it only."""
        assert self.fusion is not None
        return self.fusion


@dataclass(frozen=True)
class Entry:
    """One step of the sequence.

    Attributes:
        run: what it does in a setting.
        when: whether it is part of a setting's pipeline.
    """

    name: str
    run: Callable[[Setting], Run]
    when: Callable[[Setting], bool] = lambda setting: True


def _attached(setting: Setting) -> bool:
    return setting.job.attached


def _through_linalg(setting: Setting) -> bool:
    return setting.through_linalg


def _with_parameters(setting: Setting) -> bool:
    return setting.through_linalg and bool(setting.job.weights)


def _fused(setting: Setting) -> bool:
    return setting.fusion is not None


def _fused_on_cpu(setting: Setting) -> bool:
    return setting.fusion is not None and setting.job.kind == "cpu"


def _phases(first: str, last: str) -> tuple[Entry, ...]:
    """IREE's, from one to another."""
    start, stop = (iree_phases.PHASES.index(name) for name in (first, last))
    return tuple(_phase(name) for name in iree_phases.PHASES[start : stop + 1])


def _phase(name: str) -> Entry:
    return Entry(f"iree:{name}", lambda setting: iree_phases.phase(name))


SEQUENCE: tuple[Entry, ...] = (
    Entry("attach", lambda setting: inlined.bodies(setting.job.functions), _attached),
    Entry("torch-backend", lambda setting: torch_to_linalg.to_backend, _through_linalg),
    Entry("torch-to-linalg", lambda setting: torch_to_linalg.to_linalg, _through_linalg),
    Entry("fred-raise", lambda setting: setting.fused.steps()[0].run, _fused),
    Entry("fred-kernels", lambda setting: setting.fused.steps()[1].run, _fused),
    Entry("iree:import", lambda setting: iree_phases.enter(setting.job.flags, setting.job.devices)),
    Entry("iree:attach", lambda setting: inlined.barriers, _attached),
    Entry("iree:externalize", lambda setting: parameters.externalize(setting.job.weights), _with_parameters),
    Entry("iree:embed", lambda setting: setting.fused.embedding().run, _fused),
    *_phases("input", "executable-sources"),
    Entry("iree:team", lambda setting: team.STEP.run, _fused_on_cpu),
    *_phases("executable-configurations", "end"),
)


def pipeline(setting: Setting) -> tuple[Step, ...]:
    """The steps of one compilation, the user's own among them.

    Raises:
        StepError: an extra step has no place in it, or cannot be read.
    """
    steps = [Step(entry.name, entry.run(setting)) for entry in SEQUENCE if entry.when(setting)]
    return tuple(extra_steps.insert(steps, setting.job.extra))
