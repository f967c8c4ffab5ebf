"""What happens in torch-mlir's context, as the text of a pipeline: covan-opt runs it as the compiler does.

The compiler runs it stage by stage, with observers between them. What crosses to IREE then says itself what is needed
there; `Border` takes off what is not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from torch_mlir import ir

import covan_mlir.lowering.kernels.passes  # noqa: F401  # makes fred-raise and fred-kernels known
from covan_mlir.dialects import prov_locations
from covan_mlir.dialects.arguments import ArgumentFacts, read_arguments, write_arguments
from covan_mlir.dialects.kir_graph import FROZEN, LEFT_OVER
from covan_mlir.dialects.prov_baseline import erase_baseline
from covan_mlir.dialects.prov_graph import functions
from covan_mlir.dialects.prov_kept import KEPT
from covan_mlir.dialects.prov_lines import LINES
from covan_mlir.dialects.substituted import ASSUMED, RULES, SUBSTITUTED
from covan_mlir.lowering import iree_phases
from covan_mlir.lowering.kernels import targets
from covan_mlir.lowering.kernels.chain_body import KernelBody
from covan_mlir.lowering.kernels.choice import DECISIONS, DEVICE, OTHERS, USUAL, telling
from covan_mlir.lowering.kernels.cpu import team
from covan_mlir.lowering.kernels.cpu.machine_code import MachineCode
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.declarations import bodies, embed_declared
from covan_mlir.lowering.kernels.kernel_code import KernelCode
from covan_mlir.lowering.kernels.layouts import LAYOUTS
from covan_mlir.lowering.kernels.recorded import RECORDS, dump
from covan_mlir.lowering.kernels.reductions import demote
from covan_mlir.lowering.kernels.registry import templates
from covan_mlir.lowering.pipeline import PipelineState, Run, StepError
from covan_mlir.lowering.request import SUPEROPTIMISE, WINOGRAD, Job
from covan_mlir.lowering.result import CompilerDiagnostic, Severity
from covan_mlir.passes.framework import registry
from covan_mlir.passes.framework.pipeline import parse_pipeline
from covan_mlir.provenance.fusion import FusionRecord, LeftOverRecord
from covan_mlir.provenance.substitution import SubstitutedGraph
from covan_mlir.support.typed_json import convert


@dataclass(frozen=True)
class PassStage:
    """Passes that run one after the other without an observer between them.

    Attributes:
        name: of the step.
        passes: elements of a pipeline on the module.
        watched: the history pass by pass looks at each pass of it.
    """

    name: str
    passes: tuple[str, ...]
    watched: bool = False

    @property
    def pipeline(self) -> str:
        """Its passes as a pipeline of their own."""
        return f"builtin.module({','.join(self.passes)})"


BACKEND = PassStage(
    "torch-backend",
    (
        "func.func(torch-match-quantized-custom-ops)",
        "torchdynamo-export-to-torch-backend-pipeline{backend-legal-ops=aten.flatten.using_ints}",
    ),
    watched=True,
)
"""Torch dialect to its backend contract, by torch-mlir's own pipeline."""

LINALG = PassStage(
    "torch-to-linalg",
    (
        "torch-return-bytes",
        "torch-backend-to-linalg-on-tensors-backend-pipeline{allow-non-finites=true}",
        "func.func(linalg-name-scatters)",
    ),
    watched=True,
)
"""The backend contract to linalg on tensors, by torch-mlir's own pipeline."""

FOR_CHAINS = ("linalg-rematerialize", "linalg-sink-transpose")
"""Give each reduction what it shares with others, and what is done to its elements, before chains take them in."""

INTEGERS = "linalg-integer-products"
"""Multiplies integers where quantised models multiply what they stand for, on machines that are made for it."""

NARROW_WEIGHTS = "linalg-narrow-weights"
"""Reads weights of few bits as they are, on CPUs, whose kernels make floats of them in registers."""

FOR_IREE = ("linalg-cut-windows", "linalg-rotate-halves")
"""Bring what is left for IREE into forms that it takes."""

BEFORE_CHAINS, BEFORE_IREE = (tuple(f"func.func({name})" for name in names) for names in (FOR_CHAINS, FOR_IREE))
"""Those as elements of a pipeline."""

OPERATORS = ("func.func(kir-raise,kir-freeze)", "kir-check", "func.func(kir-lower)")
"""Before and behind the pass that makes kernels of chains: each is an operator that says what it is, and one kernel.
What no kernel takes in is an operator in between, too."""

CHECK = "prov-check"
"""Fails where the traces no longer say, to the last operation, what the program computes."""


def prepared(job: Job) -> PassStage:
    """What comes before all else, and is not observed: substitutions, and the table out of the way."""
    options = ["lines=true"] if targets.names_lines(job.target) else []
    options += ["keep=true"] if job.provenance and job.fuse and job.frontend != "torch" else []
    table = f"prov-drop-table{{{' '.join(options)}}}" if options else "prov-drop-table"
    return PassStage("prepare", (*superoptimised(job), table))


def superoptimised(job: Job) -> tuple[str, ...]:
    """The pass that applies rules, where somebody asks for it."""
    if not job.superoptimise:
        return ()
    options = _options(replace(job, fuse=bool(job.fuse)))[1:-1]
    return (f"{SUPEROPTIMISE}{{seconds={job.superoptimise} {options}}}",)


def to_linalg(job: Job) -> PassStage:
    """`LINALG`, and what chains need of it; where none are raised, what IREE does."""
    target = targets.of(job.target, _device(job)) if job.fuse else None
    lanes = target.integer_lanes if target is not None else None
    integers = (f"func.func({INTEGERS}{{lanes={lanes}}})",) if lanes is not None else ()
    weights = (f"func.func({NARROW_WEIGHTS})",) if job.fuse and _cpu(job) is not None else ()
    return replace(LINALG, passes=(*LINALG.passes, *integers, *weights, *(BEFORE_CHAINS if job.fuse else BEFORE_IREE)))


def _cpu(job: Job) -> CpuTarget | None:
    """The target, where it is one."""
    target = targets.of(job.target, _device(job))
    return target if isinstance(target, CpuTarget) else None


def raising(job: Job) -> PassStage:
    """Linalg to chains of reductions. The checks around are against what torch-mlir's passes left of the traces."""
    passes = (f"func.func(fred-raise{_options(job)})",)
    return PassStage("fred-raise", ("prov-baseline", *passes, CHECK) if job.provenance else passes)


def kernels(job: Job) -> PassStage:
    """Chains to calls of kernels; traces as names, which every context understands."""
    check = (CHECK,) if job.provenance else ()
    raised, told, lowered = OPERATORS
    passes = (raised, f"fred-kernels{_options(job)}", told, lowered, *check)
    return PassStage("fred-kernels", (*passes, *BEFORE_IREE, "prov-lower-locations"))


def _options(job: Job) -> str:
    options = [f"target={job.target}"]
    options += ["fuse=always"] if job.fuse == "always" else []
    options += [f"winograd={job.winograd}"] if job.winograd != WINOGRAD else []
    options += ["demote-f64=true"] if demote.FLAG in job.flags else []
    return f"{{{' '.join(options)}}}"


def text(all_stages: Sequence[PassStage]) -> str:
    """The pipeline that stages are together, one pass on a line."""
    return "builtin.module(\n  " + ",\n  ".join(element for stage in all_stages for element in stage.passes) + "\n)"


def step(stage: PassStage) -> Run:
    """What a stage does as a step of the compiler."""
    return lambda state: run(stage, state)


def run(stage: PassStage, state: PipelineState) -> None:
    """Runs a stage on the module of torch-mlir's.

    Raises:
        StepError: a pass failed, with what the passes said.
    """
    with state.module.context as context:
        # Some passes emit errors without failing, which ends in a native assertion unless they are collected.
        context.emit_error_diagnostics = True
        seen: list[CompilerDiagnostic] = []

        def told(info: Any) -> bool:
            seen.append(_diagnostic(info))
            return True

        handler = context.attach_diagnostic_handler(told)
        raised: list[tuple[Any, Exception]] = []
        try:
            manager = parse_pipeline(stage.pipeline, context).build(context, raised)
            if state.watch and stage.watched:
                state.watch(manager)
            manager.run(state.module.operation)
        except ir.MLIRError as error:
            told_of = [_diagnostic(info) for info in error.error_diagnostics] or seen
            if raised:
                failed, cause = raised[0]
                raise StepError(str(error), told_of, failed.name) from cause
            raise StepError(str(error), told_of) from error
        finally:
            handler.detach()


_SEVERITIES: dict[ir.DiagnosticSeverity, Severity] = {
    ir.DiagnosticSeverity.ERROR: "error",
    ir.DiagnosticSeverity.WARNING: "warning",
    ir.DiagnosticSeverity.NOTE: "note",
    ir.DiagnosticSeverity.REMARK: "remark",
}


def _diagnostic(info: Any) -> CompilerDiagnostic:
    severity = _SEVERITIES[info.severity]
    file, line = prov_locations.user_line(info.location) or (None, None)
    return CompilerDiagnostic(severity, info.message, tuple(sorted(prov_locations.ids(info.location))), file, line)


def load_passes() -> None:
    """Imports what every job for a CPU needs, which the first one would wait for."""
    templates("cpu", "rows")
    names = (
        "prov-drop-table",
        *FOR_CHAINS,
        *FOR_IREE,
        "prov-baseline",
        "fred-raise",
        CHECK,
        "kir-raise",
        "kir-freeze",
        "fred-kernels",
        "kir-check",
        "kir-lower",
        "prov-lower-locations",
    )
    for name in names:
        registry.lookup(name)


def prepare_target(job: Job) -> None:
    """Looks up what kernels are written for, which passes ask for by name later on."""
    targets.of(job.target, _device(job))


def alignment(job: Job) -> int:
    """Bytes that the operands of kernels are aligned to; see `KernelTarget.alignment`."""
    target = targets.of(job.target, _device(job))
    return 1 if target is None else target.alignment


def set_facts(module: ir.Module, job: Job) -> None:
    """Tells passes which device it is that a target's name stands for, where that is the one that is here, and which
    schedules were measured to be the best there; and how weights lie that other versions hold."""
    if device := _device(job):
        module.operation.attributes[DEVICE] = ir.StringAttr.get(device, module.context)
    if job.records:
        module.operation.attributes[RECORDS] = ir.StringAttr.get(dump(job.records), module.context)
    if job.usual:
        i64 = ir.IntegerType.get_signless(64, module.context)
        module.operation.attributes[USUAL] = ir.IntegerAttr.get(i64, job.usual)
    if job.others:
        module.operation.attributes[OTHERS] = ir.StringAttr.get(json.dumps(job.others), module.context)
    if job.layouts:
        module.operation.attributes[LAYOUTS] = ir.StringAttr.get(json.dumps(job.layouts), module.context)
    if job.rules:
        module.operation.attributes[RULES] = ir.StringAttr.get(job.rules, module.context)
    if job.assume:
        module.operation.attributes[ASSUMED] = ir.UnitAttr.get(module.context)


def substituted(module: ir.Module) -> SubstitutedGraph | None:
    """What rules made of a module, which it says no longer then."""
    attributes = module.operation.attributes
    for name in (RULES, ASSUMED):
        if name in attributes:
            del attributes[name]
    if SUBSTITUTED not in attributes:
        return None
    graph = convert(json.loads(attributes[SUBSTITUTED].value), SubstitutedGraph)
    del attributes[SUBSTITUTED]
    return graph


def _device(job: Job) -> str:
    return "" if ":" in job.target else job.devices


def apart(job: Job) -> bool:
    """Whether kernels are compiled apart from the program: not where somebody is to see the program whole."""
    return job.kind == "cpu" and not job.extra and job.reproducer is None


class Border:
    """Between the two compilers: what crosses, and what is taken off before.

    Attributes:
        decisions: on chains of reductions.
        left_over: operators that no kernel was written for.
        shared: dispatches whose work the caller shares with a team of threads.
        kernels: what kernels of our own compute, by the symbol of each of their dispatches.
    """

    def __init__(self, job: Job) -> None:
        self.kernels: dict[str, KernelBody] = {}
        self.decisions: list[FusionRecord] = []
        self.left_over: list[LeftOverRecord] = []
        self.shared = 0
        self._enter = iree_phases.enter(job.flags, job.devices)
        # Where the compiler prints after each pass, it prints no passes over kernels while the program waits for them.
        beside = job.trace != "passes"
        self._code = KernelCode(MachineCode(job.flags, job.machine_code, beside=beside) if apart(job) else None)

    def deciding(self, raising: Run) -> Run:
        """The step that decides on kernels: each begins to be compiled while others are decided on. One that the
        program does not call in the end was compiled for nothing."""

        def run(state: PipelineState) -> None:
            with telling(lambda kernel: self._code.begin([kernel])):
                raising(state)

        return run if self._code.beside else raising

    def cross(self, state: PipelineState) -> None:
        """The step into IREE's context, without what passes of ours left for each other."""
        self.decisions, self.left_over = take_off(state.module)
        self._enter(state)

    def embed(self, state: PipelineState) -> None:
        """The step that makes dispatches of the calls of kernels, whose code it puts aside."""
        with state.session.context:
            self.kernels |= bodies(state.module)
            embedded = embed_declared(state.module)
            self._code.put_aside(state.module)
        self._code.begin(embedded)

    def restore(self, state: PipelineState) -> None:
        """The step that gives kernels their code back, or what stands for it where it was compiled apart."""
        with state.session.context:
            self._code.restore(state.module)

    def link(self, state: PipelineState) -> None:
        """The step that has kernels call the machine code that was compiled apart."""
        with state.session.context:
            self._code.link(state.module)

    def close(self) -> None:
        """Nothing is compiled any more."""
        self._code.close()

    def team(self, state: PipelineState) -> None:
        """The step that has dispatches call teams."""
        with state.session.context:
            self.shared = team.share(state.module)

    @contextmanager
    def whole(self, state: PipelineState) -> Iterator[None]:
        """While active, no code is aside: whoever prints the program wants to compile what is printed."""
        aside = self._code.is_aside
        if aside:
            self.restore(state)
        try:
            yield
        finally:
            if aside:
                with state.session.context:
                    self._code.put_aside(state.module)


def take_off(module: ir.Module) -> tuple[list[FusionRecord], list[LeftOverRecord]]:
    """Removes what passes of ours left for each other in a module of torch-mlir's.

    Returns:
        what was decided about chains of reductions, and the operators that no kernel was written for.
    """
    decisions: list[FusionRecord] = []
    left_over: list[LeftOverRecord] = []
    operation = module.operation
    for name in (LINES, KEPT, DEVICE, RECORDS):
        if name in operation.attributes:
            del operation.attributes[name]
    for function in functions(operation):
        erase_baseline(function)
        if FROZEN in function.attributes:
            del function.attributes[FROZEN]
        if DECISIONS in function.attributes:
            decisions += map(FusionRecord.from_json, json.loads(function.attributes[DECISIONS].value))
            del function.attributes[DECISIONS]
        if LEFT_OVER in function.attributes:
            left_over += map(LeftOverRecord.from_json, json.loads(function.attributes[LEFT_OVER].value))
            del function.attributes[LEFT_OVER]
        write_arguments(function, [ArgumentFacts()] * len(read_arguments(function)))
    return decisions, left_over
