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
iree:embed            calls to dispatches of executables without their code   where chains are fused
iree:input ...        IREE's phases (`iree_phases.PHASES`)                      always
iree:data-tiling      hints which products are to be laid out anew; after       on CPUs
                      iree:global-optimization
iree:strided-reads    element-wise operations beside convolutions that read at  on CPUs
                      strides read slices; after that
iree:sliced-gathers   elements of slices at strides are taken from what was     on CPUs
                      sliced; after that
iree:marked-halves    arithmetic on bf16 that the program decides on is         on CPUs
                      marked; after that
iree:filled-memory    constants of one number that are written into are memory  always
                      that is filled; after that
iree:concat-slices    concatenations of slices that are read with another axis  always
                      are written slice by slice; after that
iree:scalar-slices    slices of one element that get more axes than they were   always
                      cut from keep theirs; after that
iree:slices           what is copied into a slice of new memory is written      on CPUs
                      there; after iree:dispatch-creation
iree:alignment        what a kernel reads or writes at a place that it does    where chains are fused, not
                      not take is copied; after that                            on CPUs
iree:uneven-loops     loops that hand on other values than they begin with     always
                      are branches; after iree:flow
iree:late-readers     what reads a tensor comes behind what is written into    always
                      it; after that
iree:kept-arguments   what is written into an argument is written into a copy   on CPUs
                      of it; after that
iree:uneven-products  sums of products are kept from IREE's vectorizer that     on CPUs
                      it would make invalid; after that
iree:halves           what was marked is rounded; after that                    on CPUs
iree:concatenations   what is concatenated is written in place; after that      on CPUs
iree:shared-constants  large constants become parameters, which several       of versions for some sizes
                      programs may share; after that
iree:kernel-code      kernels get their code back, or a stub where machine     where chains are fused
                      code was compiled of it beside all this; before
                      iree:executable-sources: what comes before need not
                      walk through them
iree:machine-code     stubs call the machine code; after                       where chains are fused on CPUs,
                      iree:executable-targets                                  and nobody looks at code
iree:uncontracted     multiplications and additions that the program decides   on CPUs
                      on, or that sum nothing, stay two operations; after
                      that
iree:team             kernels share their work with a team; after               on CPUs
                      that: their code is there then, and is no machine code
                      yet
iree:wide-branches    what branches hand on has 64 bits; after iree:hal
====================  ========================================================  ==============================

Chains are fused in programs that go through linalg, for targets that kernels are written for. A user's extra step
(`covan_mlir.lowering.extra_steps`) follows the step that it names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from covan_mlir.lowering import (
    concatenated_slices,
    concatenations,
    data_tiling,
    exact_decisions,
    extra_steps,
    filled_memory,
    inlined,
    iree_phases,
    kept_arguments,
    late_readers,
    parameters,
    scalar_slices,
    shared_constants,
    sliced_gathers,
    slices_in_place,
    stages,
    strided_reads,
    unaligned_operands,
    uneven_loops,
    uneven_products,
    wide_branches,
)
from covan_mlir.lowering.pipeline import LoweringStep, Run
from covan_mlir.lowering.request import Job


@dataclass(frozen=True)
class Setting:
    """What decides on the pipeline.

    Attributes:
        frontend: the way to linalg: torch-mlir's lowering (``linalg``), or IREE's torch input.
        border: between the two compilers.
    """

    job: Job
    frontend: Literal["linalg", "torch"]
    border: stages.Border

    @property
    def through_linalg(self) -> bool:
        """Whether torch-mlir lowers the program."""
        return self.frontend == "linalg"

    @property
    def fused(self) -> bool:
        """Whether chains of reductions become kernels of their own."""
        return bool(self.job.fuse) and self.through_linalg


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
    return setting.fused


def _apart(setting: Setting) -> bool:
    return setting.fused and stages.apart(setting.job)


def _aligned(setting: Setting) -> bool:
    return setting.fused and stages.alignment(setting.job) > 1


def _shared(setting: Setting) -> bool:
    return setting.through_linalg and setting.job.share


def _on_cpu(setting: Setting) -> bool:
    return setting.job.kind == "cpu"


def _phases(first: str, last: str) -> tuple[Entry, ...]:
    """IREE's, from one to another."""
    start, stop = (iree_phases.PHASES.index(name) for name in (first, last))
    return tuple(_phase(name) for name in iree_phases.PHASES[start : stop + 1])


def _phase(name: str) -> Entry:
    return Entry(f"iree:{name}", lambda setting: iree_phases.phase(name))


SEQUENCE: tuple[Entry, ...] = (
    Entry("attach", lambda setting: inlined.bodies(setting.job.functions), _attached),
    Entry("torch-backend", lambda setting: stages.step(stages.BACKEND), _through_linalg),
    Entry("torch-to-linalg", lambda setting: stages.step(stages.to_linalg(setting.job)), _through_linalg),
    Entry("fred-raise", lambda setting: setting.border.deciding(stages.step(stages.raising(setting.job))), _fused),
    Entry("fred-kernels", lambda setting: stages.step(stages.kernels(setting.job)), _fused),
    Entry("iree:import", lambda setting: setting.border.cross),
    Entry("iree:attach", lambda setting: inlined.barriers, _attached),
    Entry("iree:externalize", lambda setting: parameters.externalize(setting.job.weights), _with_parameters),
    Entry("iree:embed", lambda setting: setting.border.embed, _fused),
    *_phases("input", "global-optimization"),
    Entry("iree:data-tiling", lambda setting: data_tiling.hint, _on_cpu),
    Entry("iree:strided-reads", lambda setting: strided_reads.cut, _on_cpu),
    Entry("iree:sliced-gathers", lambda setting: sliced_gathers.through, _on_cpu),
    Entry("iree:marked-halves", lambda setting: exact_decisions.mark_halves, _on_cpu),
    Entry("iree:filled-memory", lambda setting: filled_memory.fill),
    Entry("iree:concat-slices", lambda setting: concatenated_slices.write),
    Entry("iree:scalar-slices", lambda setting: scalar_slices.keep_axes),
    _phase("dispatch-creation"),
    Entry("iree:slices", lambda setting: slices_in_place.write, _on_cpu),
    Entry("iree:alignment", lambda setting: unaligned_operands.copied(stages.alignment(setting.job)), _aligned),
    _phase("flow"),
    Entry("iree:uneven-loops", lambda setting: uneven_loops.branch),
    Entry("iree:late-readers", lambda setting: late_readers.put_behind),
    Entry("iree:kept-arguments", lambda setting: kept_arguments.keep(setting.job.changed), _on_cpu),
    Entry("iree:uneven-products", lambda setting: uneven_products.hide, _on_cpu),
    Entry("iree:halves", lambda setting: exact_decisions.round_halves, _on_cpu),
    Entry("iree:concatenations", lambda setting: concatenations.in_place, _on_cpu),
    Entry("iree:shared-constants", lambda setting: shared_constants.share, _shared),
    _phase("stream"),
    Entry("iree:kernel-code", lambda setting: setting.border.restore, _fused),
    *_phases("executable-sources", "executable-targets"),
    Entry("iree:machine-code", lambda setting: setting.border.link, _apart),
    Entry("iree:uncontracted", lambda setting: exact_decisions.uncontract, _on_cpu),
    Entry("iree:team", lambda setting: setting.border.team, _on_cpu),
    _phase("hal"),
    Entry("iree:wide-branches", lambda setting: wide_branches.widen),
    *_phases("vm", "end"),
)


def pipeline(setting: Setting) -> tuple[LoweringStep, ...]:
    """The steps of one compilation, the user's own among them.

    Raises:
        StepError: an extra step has no place in it, or cannot be read.
    """
    steps = [LoweringStep(entry.name, entry.run(setting)) for entry in SEQUENCE if entry.when(setting)]
    return tuple(extra_steps.insert(steps, setting.job.extra))


_OWN: dict[str, Callable[[Job], stages.PassStage]] = {
    "torch-backend": lambda job: stages.BACKEND,
    "torch-to-linalg": stages.to_linalg,
    "fred-raise": stages.raising,
    "fred-kernels": stages.kernels,
}


def text(job: Job) -> str:
    """A job's pipeline as covan-opt runs it on the imported module; what comes before and after it as comments."""
    setting = Setting(job, "torch" if job.frontend == "torch" else "linalg", stages.Border(job))
    names = [step.name for step in pipeline(setting)]
    border = names.index("iree:import")
    own = [stages.prepared(job), *(_OWN[name](job) for name in names[:border] if name in _OWN)]
    lines = [f"// {name}" for name in names[:border] if name not in _OWN]
    return "\n".join([*lines, stages.text(own), *(f"// {name}" for name in names[border:])])
