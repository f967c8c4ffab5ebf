"""From an exported model to compiled programs: import, the worker's compilation for each target, lineages."""

from __future__ import annotations

import importlib.metadata
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch

from covan_mlir.artifacts.variant import Variant
from covan_mlir.compilation.messages import compile_error, report_frontend, report_fusion, report_substitution
from covan_mlir.compilation.mlir_functions import functions, has_own
from covan_mlir.compilation.options import CompileOptions
from covan_mlir.errors import TargetError
from covan_mlir.frontend.capture import Capture
from covan_mlir.frontend.groups import groups
from covan_mlir.frontend.identity import Identities
from covan_mlir.frontend.importer import Imported, import_program
from covan_mlir.frontend.precision import convolves_halves, first_double
from covan_mlir.lowering import pool, targets
from covan_mlir.lowering.kernels import targets as kernel_targets
from covan_mlir.lowering.kernels.cuda.target import CudaTarget
from covan_mlir.lowering.kernels.recorded import Recorded
from covan_mlir.lowering.kernels.taken import schedules_for, schedules_for_gpu
from covan_mlir.lowering.request import Job
from covan_mlir.lowering.result import JobResult
from covan_mlir.machine import host
from covan_mlir.machine.description import Machine
from covan_mlir.provenance.model import Action, LineageData
from covan_mlir.provenance.substituted import actions_after
from covan_mlir.provenance.tags import TagRule
from covan_mlir.provenance.tags import apply as apply_tags
from covan_mlir.provenance.tracing import SourceProgram, trace_program
from covan_mlir.runtime import values
from covan_mlir.runtime.compiled_program import CompiledProgram
from covan_mlir.subst import rule_file
from covan_mlir.support.collector import uncollected
from covan_mlir.version import __version__

log = logging.getLogger(__name__)

EXPORT_LOCK = threading.RLock()
"""Held by whoever exports or imports: torch.export keeps global state."""
_TOOLS = ("torch", "torch-mlir", "iree-base-compiler", "iree-base-runtime")


@dataclass(frozen=True)
class VersionFacts:
    """What is special about the programs of several versions: constants are parameters, which they share (on CPUs).

    Attributes:
        layouts: of weights that other versions hold; empty: there are none.
        usual: what kernels take open sizes for; 0: what they take them for in any program.
        others: of the general program: what versions are going to take them for.
    """

    layouts: tuple[str, ...] = ()
    usual: int = 0
    others: tuple[int, ...] = ()


def compile_captured(
    captured: Capture,
    goals: Sequence[targets.Target],
    options: CompileOptions,
    *,
    provenance: bool = True,
    rules: Sequence[TagRule] = (),
    tell: Callable[[str], None] = lambda step: None,
    facts: VersionFacts | None = None,
) -> CompiledProgram:
    """Compile a program that is exported already; see `covan_mlir.compile_module`.

    ``options.attach`` is not looked at: what is attached is in the captured program
    (`covan_mlir.attaching.attach.compile_attached`).
    """
    imported, variants, constants = _compiled(captured, goals, options, provenance, rules, tell, facts)
    return CompiledProgram(
        tuple(variants),
        imported.signature,
        options.device,
        {**imported.weights, **constants},
        _ModuleState(captured),
        {"covan": __version__, **{name: importlib.metadata.version(name) for name in _TOOLS}},
    )


def _compiled(
    captured: Capture,
    goals: Sequence[targets.Target],
    options: CompileOptions,
    provenance: bool,
    rules: Sequence[TagRule],
    tell: Callable[[str], None],
    facts: VersionFacts | None,
) -> tuple[Imported, list[Variant], dict[str, Any]]:
    """The program of an exported model for each target, and the constants that are shared."""
    with EXPORT_LOCK, uncollected():
        tell("import")
        imported = _imported(captured, provenance, options)
    tagged = LineageData(imported.actions)
    if provenance:
        calls, marks = groups(captured.program.graph)
        tagged = LineageData(imported.actions, groups=calls, tags=marks)
    apply_tags(tagged, rules)  # before the compiler's long work: a name may be wrong
    variants = []
    constants: dict[str, Any] = {}
    for goal, job in jobs(captured, goals, options, provenance, imported):
        if len(goals) > 1:
            tell(f"target {goal.name}")
        if facts is not None:
            job = replace(job, usual=facts.usual)
        if facts is not None and goal.kind == "cpu":
            job = replace(job, share=True, layouts=facts.layouts, others=facts.others)
        variant, held = _variant(goal, job, imported, tagged, options, tell)
        variants.append(variant)
        constants |= held
    return imported, variants, constants


def _imported(captured: Capture, provenance: bool, options: CompileOptions) -> Imported:
    return import_program(
        captured,
        provenance=provenance,
        external_weight_bytes=options.external_weight_bytes,
        random_numbers=options.random_numbers,
        check_integers=options.check_indices,
    )


def jobs(
    captured: Capture,
    goals: Sequence[targets.Target],
    options: CompileOptions,
    provenance: bool,
    imported: Imported,
) -> list[tuple[targets.Target, Job]]:
    """What is asked of the worker for each target."""
    double = first_double(captured.program.graph)
    for goal in goals:
        if double is not None and not goal.has_double:
            raise TargetError(
                f"{double} is in float64, and {goal.name} cannot compute in it: use model.float() and float32 "
                "arguments, or another target"
            )
    job = Job(
        frontend=options.frontend,
        flags=(),
        weights=tuple(imported.weights),
        changed=imported.signature.changed,
        provenance=provenance,
        reproducer=options.reproducer,
        trace=options.trace if provenance else "phases",
        fuse=options.fuse_reductions,
        winograd=options.winograd,
        extra=options.extra_steps,
        extensions=options.extensions,
        functions=functions(captured.program.graph),
        attached=has_own(captured.program.graph),
    )
    rules, assumed = _rules(options)
    halves = convolves_halves(captured.program.graph)
    asked = []
    for goal in goals:
        flags = (*goal.compiler_flags(double is not None, halves), *options.iree_flags)
        machine = machine_of(goal) if options.fuse_reductions or options.superoptimise else None
        seconds = int(options.superoptimise)
        if seconds and kernel_targets.of(goal.name, goal.devices) is None:
            log.warning("superoptimise: no times are predicted for %s; the program is compiled as it is", goal.name)
            seconds = 0
        goal_job = replace(
            job,
            flags=flags,
            target=goal.name,
            kind=goal.kind,
            devices=goal.devices,
            machine=machine,
            records=_records(goal, options, machine),
            superoptimise=seconds,
            rules=rules if seconds else "",
            assume=assumed and bool(seconds),
        )
        asked.append((goal, goal_job))
    return asked


def pipeline_of(captured: Capture, goal: targets.Target, options: CompileOptions) -> str:
    """The pipeline that is run on the imported program; see `covan_mlir.compile.pipeline_text`."""
    from covan_mlir.lowering.sequence import text  # with both compilers, which run in the worker only otherwise

    with EXPORT_LOCK, uncollected():
        imported = _imported(captured, True, options)
    ((_, job),) = jobs(captured, [goal], options, True, imported)
    return text(job)


def _records(goal: targets.Target, options: CompileOptions, machine: Machine | None) -> tuple[Recorded, ...]:
    """The schedules that were measured to be the best on what a target is."""
    if goal.kind == "cuda" and options.fuse_reductions:
        gpu = kernel_targets.of(goal.name, goal.devices)
        return schedules_for_gpu(options.records, gpu.device) if isinstance(gpu, CudaTarget) else ()
    return schedules_for(options.records, goal.kind, machine)


def _rules(options: CompileOptions) -> tuple[str, bool]:
    """The text of the user's own rules, and whether some of them are assumed.

    Raises:
        RuleFileError, UnprovedRuleError: they are none; one is not proved and nobody wants it all the same.
    """
    if options.rules is None:
        return "", False
    try:
        rules = rule_file.load(Path(options.rules), assume=options.assume)
    except OSError as error:
        raise rule_file.RuleFileError(f"{options.rules} cannot be read: {error.strerror}") from error
    return rule_file.write(rules), any(rule.certificate.status == "assumed" for rule in rules)


def machine_of(goal: targets.Target) -> Machine | None:
    """What is measured of the machine that a target is; None: it is not this one."""
    return host.host() if goal.is_host else None


def _variant(
    goal: targets.Target,
    job: Job,
    imported: Imported,
    tagged: LineageData,
    options: CompileOptions,
    progress: Callable[[str], None],
) -> tuple[Variant, dict[str, Any]]:
    """The program for one target, and the constants that it shares."""
    try:
        result, answer = pool.compile_program(
            imported.bytecode, job, timeout=options.timeout, progress=progress, cache=options.cache
        )
    except pool.WorkerError as error:
        failure = error.failure
        unknown = [line for line in failure.log.splitlines() if "not a recognized processor" in line]
        if failure.phase == "target" and unknown:  # the compiler knows no such CPU, and ends
            raise TargetError(f"target {goal.name!r}: {unknown[0].strip()}") from None
        raise compile_error(error, imported.actions) from None
    actions = actions_after(imported.actions, result.substituted)
    report_substitution(result, actions)
    report_frontend(result, actions)
    report_fusion(result, actions)
    for step, number in result.unseen.items():
        log.info("%s: what became of %d parts could not be told pass by pass", step, number)
    start = time.perf_counter()
    lineage = _lineage(imported, actions, result, tagged)
    info = {
        "frontend": result.frontend,
        "flags": list(job.flags),
        "options": options.to_json(),
        "flops": imported.flops,
        "elements": imported.elements,
        # All of a call, where its dispatches call teams.
        "shared": {"flops": imported.flops, "elements": imported.elements, "dispatches": result.shared}
        if result.shared
        else {},
        "seconds": {**result.seconds, "lineage": time.perf_counter() - start},
        "weights": "globals" if result.frontend == "linalg" else "arguments",
    }
    requires = {**goal.requires, **result.requires}
    program, constants = _apart(answer, result)
    return Variant(goal.name, program, lineage, info, requires), constants


def _apart(answer: bytes, result: JobResult) -> tuple[bytes, dict[str, Any]]:
    """The program, and the constants behind it by name."""
    if not result.constants:
        return answer, {}
    constants = {
        each.name: values.aligned_copy(
            np.frombuffer(answer, values.numpy_dtype(each.dtype), count=prod(each.shape), offset=each.start)
        ).reshape(each.shape)
        for each in result.constants
    }
    return answer[: result.constants[0].start], constants


class _ModuleState:
    """Mutated buffers live where the model keeps them, or where the capture says."""

    def __init__(self, captured: Capture) -> None:
        self._captured = captured

    def read(self, name: str) -> torch.Tensor:
        return self._captured.state(name)

    def write(self, name: str, value: Any) -> None:
        states = self._captured.states
        if states is not None:
            states[name] = value
            return
        with torch.no_grad():
            self._captured.state(name).copy_(value)


def _lineage(imported: Imported, actions: tuple[Action, ...], result: JobResult, tagged: LineageData) -> LineageData:
    if result.observed is None:
        return LineageData()
    graph = result.substituted
    changed = graph is not None and bool(graph.parts)
    source = SourceProgram(
        actions,
        graph.results if graph is not None and changed else imported.results,
        Identities({part.id: part for action in actions for part in action.parts}) if changed else imported.identity,
        imported.held,
        tagged.groups,
        tagged.action_tags,
        graph.substitution if graph is not None else None,
    )
    return trace_program(source, result.observed, result.fusions, result.left_over)
