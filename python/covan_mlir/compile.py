"""`compile_module`: from a model to an executable that knows where its kernels came from."""

from __future__ import annotations

import importlib.metadata
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from covan_mlir import __version__
from covan_mlir.artifacts.variant import Variant
from covan_mlir.attaching import attach
from covan_mlir.attaching.mlir import functions, has_own
from covan_mlir.collector import uncollected
from covan_mlir.errors import CompileError, Diagnostic, InputError, TagError, TargetError
from covan_mlir.executable import Executable
from covan_mlir.frontend.capture import Capture, Model, capture
from covan_mlir.frontend.groups import groups
from covan_mlir.frontend.importer import Imported, import_program
from covan_mlir.frontend.precision import first_double
from covan_mlir.lineage import Action, Lineage
from covan_mlir.lowering import pool, targets
from covan_mlir.lowering.request import Job
from covan_mlir.machine import host
from covan_mlir.machine.description import TYPICAL, Machine
from covan_mlir.options import CompileOptions
from covan_mlir.origin import Origin
from covan_mlir.provenance.fusion import FusionRecord
from covan_mlir.provenance.tags import TagRule, Tags
from covan_mlir.provenance.tags import apply as apply_tags
from covan_mlir.provenance.tags import rules as tag_rules
from covan_mlir.provenance.tracing import trace_program

log = logging.getLogger(__name__)

_WORDS, _WIDTH = 8, 200  # of a crashed compiler's output in the message; all that was kept is in ``CompileError.log``
_export_lock = threading.Lock()  # torch.export keeps global state
_TOOLS = ("torch", "torch-mlir", "iree-base-compiler", "iree-base-runtime")


def compile_module(
    model: Model,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    target: str | Sequence[str] = "cpu",
    dynamic_shapes: Any = None,
    provenance: bool = True,
    options: CompileOptions | None = None,
    tags: Tags | None = None,
    progress: Callable[[str], None] | None = None,
) -> Executable:
    """Compile a model for example arguments.

    Args:
        model: an ``nn.Module``, a function, a ``torch.export.ExportedProgram``, or the path of a ``.pt2`` file. The
            module's weights are compiled in as they are now; its mutated buffers stay its own.
        args, kwargs: example arguments, any pytree of tensors (torch or numpy), numbers, strings and None.
        target: what to compile for: ``cpu`` (this machine), ``cpu:znver4``, ``cpu:aarch64-linux-gnu``, ``vulkan`` (this
            machine's device), ``vulkan:lavapipe``, ``cuda``, ``cuda:sm_90``; or several, in the order in which they
            are preferred: the executable, and the artifact that it saves, take the first that a machine can run.
        dynamic_shapes: as `torch.export.export` takes it.
        provenance: record the lineage. Without it the machine code is the same and ``lineage`` is empty.
        options: see `CompileOptions`.
        tags: tags by action name, module path, group or source line (``{"blocks.0": ["audit:pii"]}``), or what
            `covan_mlir.tag` makes; beside those of enclosing ``with covan_mlir.tag(...)``.
        progress: is told the name of each step before it runs.

    Raises:
        ExportError: the model does not export or import.
        CompileError: the compiler failed or crashed; this process goes on unharmed.
        InputError, TargetError: wrong arguments. A target that this machine cannot run is none: the executable can be
            saved and asked, and only calling it raises `DeviceError`.
        TagError: a tag is malformed, or for something that the model does not have.
    """
    options = options or CompileOptions()
    goals = targets.parse_all(target)
    rules = tag_rules(tags)
    if rules and not provenance:
        raise TagError("tags are kept in the lineage: compile with provenance=True")
    tell = progress or (lambda step: None)
    pool.prepare(options.trace if provenance else "phases")
    if (options.fuse_reductions or options.attach) and any(goal.is_host for goal in goals):
        host.prepare()
    with _export_lock, uncollected():
        tell("export")
        captured = capture(model, args, kwargs, dynamic_shapes)
    return compile_captured(captured, goals, options, provenance=provenance, rules=rules, tell=tell)


def compile_captured(
    captured: Capture,
    goals: Sequence[targets.Target],
    options: CompileOptions,
    *,
    provenance: bool = True,
    rules: Sequence[TagRule] = (),
    tell: Callable[[str], None] = lambda step: None,
) -> Executable:
    """Compile a program that is exported already; see `compile_module`."""
    if options.attach and not provenance:
        raise InputError("what is attached is placed by the lineage: compile with provenance=True")
    origin = Origin(captured, options)
    attached: attach.Plan | None = None
    plain: Sequence[Variant] = ()
    if options.attach:
        with _export_lock, uncollected():
            tell("attach")
            attached = attach.plan(captured, options.attach)
        tell("compile without attachments")
        _, plain = _compiled(captured, goals, options, provenance, rules, tell)
        with _export_lock, uncollected():
            attached = attach.placed(attached, [it.lineage for it in plain], _machine(goals[0]) or TYPICAL)
        captured = attached.captured
        origin = Origin(captured, replace(options, attach={}))
    imported, variants = _compiled(captured, goals, options, provenance, rules, tell)
    if attached is not None:
        other = attach.undone(attached, [it.lineage for it in variants])
        if other is not None:
            attached, captured = other, other.captured
            origin = Origin(captured, origin.options)
            imported, variants = _compiled(captured, goals, options, provenance, rules, tell)
        for number, (before, it) in enumerate(zip(plain, variants, strict=True)):
            attach.tag(attached, it.lineage)
            variants[number] = replace(it, attachments=attach.records(attached, before.lineage, it.lineage))
    tell("load")
    return Executable(
        variants,
        imported.signature,
        device=options.device,
        weights=imported.weights,
        states=_ModuleState(captured),
        versions={"covan": __version__, **{name: importlib.metadata.version(name) for name in _TOOLS}},
        origin=origin,
    )


def _compiled(
    captured: Capture,
    goals: Sequence[targets.Target],
    options: CompileOptions,
    provenance: bool,
    rules: Sequence[TagRule],
    tell: Callable[[str], None],
) -> tuple[Imported, list[Variant]]:
    """The program of an exported model for each target."""
    trace = options.trace if provenance else "phases"
    with _export_lock, uncollected():
        tell("import")
        imported = import_program(captured, provenance=provenance, external_weight_bytes=options.external_weight_bytes)
    tagged = Lineage(imported.actions)
    if provenance:
        calls, marks = groups(captured.program.graph)
        tagged = Lineage(imported.actions, groups=calls, tags=marks)
    apply_tags(tagged, rules)  # before the compiler's long work: a name may be wrong
    weights = tuple(imported.weights)
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
        weights=weights,
        provenance=provenance,
        reproducer=options.reproducer,
        trace=trace,
        sizes=imported.signature.size_names,
        fuse=options.fuse_reductions,
        extra=options.extra_steps,
        functions=functions(captured.program.graph),
        attached=has_own(captured.program.graph),
    )
    variants = []
    for goal in goals:
        if len(goals) > 1:
            tell(f"target {goal.name}")
        own = goal.compiler_flags(double is not None)
        flags = (*own, *options.iree_flags)
        job = replace(job, flags=flags, target=goal.name, kind=goal.kind, devices=goal.devices, target_flags=own)
        job = replace(job, machine=_machine(goal) if options.fuse_reductions else None)
        variants.append(_variant(goal, job, imported, tagged, options, tell))
    return imported, variants


def _machine(goal: targets.Target) -> Machine | None:
    """What is measured of the machine that a target is; None: it is not this one."""
    return host.host() if goal.is_host else None


def _variant(
    goal: targets.Target,
    job: Job,
    imported: Imported,
    tagged: Lineage,
    options: CompileOptions,
    progress: Callable[[str], None],
) -> Variant:
    """The program for one target."""
    try:
        result, program = pool.compile_program(imported.bytecode, job, timeout=options.timeout, progress=progress)
    except pool.WorkerError as error:
        if error.phase == "target":  # the compiler knows no such CPU, and ends
            said = next(
                (line for line in error.log.splitlines() if "not a recognized processor" in line), error.message
            )
            raise TargetError(f"target {goal.name!r}: {said.strip()}") from None
        raise _compile_error(error, imported.actions) from None
    _report_frontend(result, imported.actions)
    _report_fusion(result, imported.actions)
    for step, number in result["unseen"].items():
        log.info("%s: what became of %d parts could not be told pass by pass", step, number)
    start = time.perf_counter()
    lineage = _lineage(imported, result, tagged)
    info = {
        "frontend": result["frontend"],
        "flags": list(job.flags),
        "options": options.to_json(),
        "flops": imported.flops,
        "elements": imported.elements,
        "shared": result["shared"],
        "seconds": {**result["seconds"], "lineage": time.perf_counter() - start},
        "weights": "globals" if result["frontend"] == "linalg" else "arguments",
    }
    requires = {**goal.requires, **result["requires"]}
    return Variant(goal.name, program, lineage, info, requires)


class _ModuleState:
    """Mutated buffers live where the model keeps them."""

    def __init__(self, captured: Capture) -> None:
        self._captured = captured

    def read(self, name: str) -> torch.Tensor:
        return self._captured.state(name)

    def write(self, name: str, value: Any) -> None:
        with torch.no_grad():
            self._captured.state(name).copy_(value)


def _lineage(imported: Imported, result: Mapping[str, Any], tagged: Lineage) -> Lineage:
    if not result["graph"]:
        return Lineage()
    return trace_program(
        imported.actions,
        imported.results,
        imported.identity,
        result["graph"],
        result["sites"],
        result["commands"],
        [(step, {int(part): names for part, names in changed.items()}) for step, changed in result["history"]],
        tagged.groups,
        tagged.action_tags,
        result["phases"],
        [FusionRecord.from_json(row) for row in result["fusion"]],
    )


def _diagnostics(rows: list[dict[str, Any]], actions: tuple[Action, ...]) -> tuple[Diagnostic, ...]:
    owner = {part.id: action.id for action in actions for part in action.parts}
    found = []
    for row in rows:
        ids = [owner.get(i, i) for i in row.get("ids", ())]
        file, line = row.get("file"), row.get("line")
        if not ids and file:  # IREE's messages name a line, not an action: tell it when the line has one action only
            there = [a.id for a in actions if any(f.file == file and f.line == line for f in a.frames)]
            ids = there if len(there) == 1 else []
        found.append(Diagnostic(row["severity"], row["message"], ids[0] if ids else None, file, line))
    return tuple(found)


def _culprit(
    diagnostics: tuple[Diagnostic, ...], actions: tuple[Action, ...]
) -> tuple[Action | None, str | None, int | None]:
    for diagnostic in diagnostics:
        if diagnostic.severity == "error" and (diagnostic.action is not None or diagnostic.file):
            action = actions[diagnostic.action] if diagnostic.action is not None else None
            user = next((f for f in action.frames if not f.internal), None) if action else None
            return action, user.file if user else diagnostic.file, user.line if user else diagnostic.line
    return None, None, None


def _compile_error(error: pool.WorkerError, actions: tuple[Action, ...]) -> CompileError:
    diagnostics = _diagnostics(error.diagnostics, actions)
    action, file, line = _culprit(diagnostics, actions)
    where = f"{file}:{line}: " if file else ""
    what = f"{action.name} ({action.op}): " if action else ""
    first = error.message.strip().splitlines()[0] if error.message.strip() else "no reason given"
    lines = [f"{where}{what}{first} [in {error.phase}]"]
    if error.reproducer:
        lines.append(f"reproducer: {error.reproducer}")
    elif error.crashed:
        lines.append("to keep the input of the failing step, pass CompileOptions(reproducer='failing.mlir')")
    if error.log:
        lines += ["the compiler's last words:", *(line[:_WIDTH] for line in error.log.splitlines()[-_WORDS:])]
    return CompileError(
        "\n".join(lines),
        phase=error.phase,
        diagnostics=diagnostics,
        action=action.name if action else None,
        file=file,
        line=line,
        reproducer=error.reproducer,
        log=error.log,
    )


def _report_frontend(result: Mapping[str, Any], actions: tuple[Action, ...]) -> None:
    reason = result.get("why_torch")
    if reason:
        action, file, line = _culprit(_diagnostics(reason["diagnostics"], actions), actions)
        what = f" {action.name} ({action.op}) at {file}:{line}" if action else ""
        log.info(
            "torch-mlir cannot lower%s: the whole program takes IREE's torch input instead. %s",
            what or " the program",
            reason["message"].strip().splitlines()[0],
        )


def _report_fusion(result: Mapping[str, Any], actions: tuple[Action, ...]) -> None:
    owner = {part.id: action for action in actions for part in action.parts}
    for row in result["fusion"]:
        if not row["reason"]:
            continue
        whole = dict.fromkeys(owner[i] for i in row["parts"] if i in owner)
        names = ", ".join(f"{action.name} ({action.op})" for action in whole) or "ops that no action names"
        user = next((frame for action in whole for frame in action.frames if not frame.internal), None)
        where = f"{user.file}:{user.line}: " if user else ""
        log.info("%snot fused into one kernel: %s: %s", where, names, row["reason"])
