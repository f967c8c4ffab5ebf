"""What the compiler said, in the words of the user's model: errors and notes name actions and source lines."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from covan_mlir.errors import CompileError, Diagnostic
from covan_mlir.frontend.refusals import advice, plainly, said
from covan_mlir.lowering import pool
from covan_mlir.lowering.request import FUSING, TO_LINALG
from covan_mlir.lowering.result import CompilerDiagnostic, JobResult
from covan_mlir.provenance.model import Action

log = logging.getLogger(__name__)

_OTHER_WAYS = {
    **dict.fromkeys(FUSING, ". CompileOptions(fuse_reductions=False) compiles without it"),
    **dict.fromkeys(TO_LINALG, ". CompileOptions(frontend='torch') compiles without it"),
}
"""What leaves out the passes of covan's, by the step that they are in."""
_WORDS, _WIDTH = 8, 200  # of a crashed compiler's output in the message; all that was kept is in ``CompileError.log``


def _diagnostics(messages: Sequence[CompilerDiagnostic], actions: tuple[Action, ...]) -> tuple[Diagnostic, ...]:
    owner = {part.id: action.id for action in actions for part in action.parts}
    diagnostics = []
    for message in messages:
        ids = [owner.get(i, i) for i in message.ids]
        file, line = message.file, message.line
        if not ids and file:  # IREE's messages name a line, not an action: tell it when the line has one action only
            there = [a.id for a in actions if any(f.file == file and f.line == line for f in a.frames)]
            ids = there if len(there) == 1 else []
        diagnostics.append(Diagnostic(message.severity, message.message, ids[0] if ids else None, file, line))
    return tuple(diagnostics)


def _culprit(
    diagnostics: tuple[Diagnostic, ...], actions: tuple[Action, ...]
) -> tuple[Action | None, str | None, int | None]:
    for diagnostic in diagnostics:
        if diagnostic.severity == "error" and (diagnostic.action is not None or diagnostic.file):
            action = actions[diagnostic.action] if diagnostic.action is not None else None
            user = next((f for f in action.frames if not f.internal), None) if action else None
            return action, user.file if user else diagnostic.file, user.line if user else diagnostic.line
    return None, None, None


def compile_error(error: pool.WorkerError, actions: tuple[Action, ...]) -> CompileError:
    """The error of a compilation that gave no program."""
    failure = error.failure
    diagnostics = _diagnostics(failure.diagnostics, actions)
    action, file, line = _culprit(diagnostics, actions)
    where = f"{file}:{line}: " if file else ""
    what = f"{action.name} ({action.op}): " if action else ""
    if failure.own_pass:  # nothing that the user could do otherwise
        first = (failure.diagnostics[0].message if failure.diagnostics else failure.message).strip().splitlines()[0]
        why = f"covan's pass {failure.own_pass} failed: {first}"
        other = _OTHER_WAYS.get(failure.phase, "")
        do = f"; this is a mistake of covan's, or of a step of your own: please report it{other}"
    else:
        why = plainly(failure.message)
        do = f"; {advice(action.op if action else '')}" if action or file else ""
    lines = [f"{where}{what}{why}{do} [in {failure.phase}]"]
    if failure.reproducer:
        lines.append(f"reproducer: {failure.reproducer}")
    elif error.crashed:
        lines.append("to keep the input of the failing step, pass CompileOptions(reproducer='failing.mlir')")
    if words := said(failure.log):
        lines += ["the compiler's last words:", *(line[:_WIDTH] for line in words[-_WORDS:])]
    return CompileError(
        "\n".join(lines),
        phase=failure.phase,
        diagnostics=diagnostics,
        action=action.name if action else None,
        file=file,
        line=line,
        reproducer=failure.reproducer,
        log=failure.log,
    )


def report_frontend(result: JobResult, actions: tuple[Action, ...]) -> None:
    """Log why the program did not go through torch-mlir, if it did not: a warning where a pass of covan's is why."""
    reason = result.why_torch
    if reason is None:
        return
    action, file, line = _culprit(_diagnostics(reason.diagnostics, actions), actions)
    if reason.own_pass:
        log.warning(
            "%scovan's pass %s failed%s: %s. The whole program takes IREE's torch input instead, without kernels of "
            "covan's own. Its results are the same; please report this",
            f"{file}:{line}: " if file else "",
            reason.own_pass,
            f" at {action.name} ({action.op})" if action else "",
            (reason.diagnostics[0].message if reason.diagnostics else reason.message).strip().splitlines()[0],
        )
    else:
        what = f" {action.name} ({action.op}) at {file}:{line}" if action else ""
        log.info(
            "torch-mlir cannot lower%s: the whole program takes IREE's torch input instead. %s",
            what or " the program",
            reason.message.strip().splitlines()[0],
        )


def report_substitution(result: JobResult, actions: tuple[Action, ...]) -> None:
    """Log that rules could not be applied, or which were."""
    if (failure := result.why_unsubstituted) is not None:
        action, file, line = _culprit(_diagnostics(failure.diagnostics, actions), actions)
        log.warning(
            "%sno rules were applied, for %s failed%s: %s. The program's results are the same, but perhaps later",
            f"{file}:{line}: " if file else "",
            failure.own_pass,
            f" at {action.name} ({action.op})" if action else "",
            (failure.diagnostics[0].message if failure.diagnostics else failure.message).strip().splitlines()[0],
        )
    if result.substituted is None:
        return
    done = result.substituted.substitution
    if not done.before:
        log.warning(
            "superoptimise: nothing was looked for, as rules know none of the program's operations: they are about "
            "products, convolutions and element-wise operations on tensors of f32 or f64 whose sizes are known"
        )
        return
    rules = ", ".join(dict.fromkeys(step.rule for step in done.steps)) or "no program was predicted to be faster"
    log.info(
        "superoptimise: %d substitutions (%s), %.1f us predicted instead of %.1f",
        len(done.steps),
        rules,
        done.after * 1e6,
        done.before * 1e6,
    )


def report_fusion(result: JobResult, actions: tuple[Action, ...]) -> None:
    """Log which chains of reductions have no kernel of their own, and why."""
    if (failure := result.why_unfused) is not None:
        action, file, line = _culprit(_diagnostics(failure.diagnostics, actions), actions)
        log.warning(
            "%sthe program has no kernels of covan's own, for %s failed%s: %s. Its results are the same, but later",
            f"{file}:{line}: " if file else "",
            failure.phase,
            f" at {action.name} ({action.op})" if action else "",
            (failure.diagnostics[0].message if failure.diagnostics else failure.message).strip().splitlines()[0],
        )
    if result.broken:
        log.warning("kernels are not one to one with the model's operators any more: %s", result.broken)
    owner = {part.id: action for action in actions for part in action.parts}
    for record in result.fusions:
        if not record.reason:
            continue
        whole = dict.fromkeys(owner[i] for i in record.parts if i in owner)
        names = ", ".join(f"{action.name} ({action.op})" for action in whole) or "ops that no action names"
        user = next((frame for action in whole for frame in action.frames if not frame.internal), None)
        where = f"{user.file}:{user.line}: " if user else ""
        log.info("%snot fused into one kernel: %s: %s", where, names, record.reason)
