"""From ``CompileOptions.attach`` to a program with the operators in it, and to what `Executable.attachments` tells."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from covan_mlir.artifacts.attachment import TAG, Attach, Attached, AttachmentCost, Outcome, attachments, digest
from covan_mlir.attaching import locate, place
from covan_mlir.attaching.insert import Goal, Inserted, Insertion, insert
from covan_mlir.attaching.place import AccessPlanner, ChosenAccess
from covan_mlir.compilation.captured import EXPORT_LOCK, VersionFacts, compile_captured, machine_of
from covan_mlir.compilation.options import CompileOptions
from covan_mlir.compilation.origin import Origin
from covan_mlir.errors import InputError
from covan_mlir.frontend.capture import Capture
from covan_mlir.lowering import targets
from covan_mlir.machine.description import TYPICAL, Machine
from covan_mlir.provenance.explain import became
from covan_mlir.provenance.model import Action, LineageData
from covan_mlir.provenance.tags import TagRule
from covan_mlir.runtime.compiled_program import CompiledProgram
from covan_mlir.support.collector import uncollected

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AttachmentPlan:
    """What is to be attached to an exported program.

    Attributes:
        source: the program without.
        captured: with.
        machine: whose speeds the estimates are of.
    """

    source: Capture
    goals: tuple[Goal, ...]
    insertion: Insertion
    choices: tuple[ChosenAccess, ...] = ()
    machine: Machine = TYPICAL

    @property
    def captured(self) -> Capture:
        return self.insertion.captured

    @property
    def symbols(self) -> Mapping[str, int]:
        """Sizes of the example."""
        return place.sizes(self.source.program.graph)


def compile_attached(
    captured: Capture,
    goals: Sequence[targets.Target],
    options: CompileOptions,
    *,
    rules: Sequence[TagRule] = (),
    tell: Callable[[str], None] = lambda step: None,
    facts: VersionFacts | None = None,
) -> tuple[CompiledProgram, Origin]:
    """Compile an exported program with ``options.attach`` in it; -> (the programs, what they can be compiled from
    again).

    Compiled without as well, for the lineage of that says where each operator gets its tensor from; and once more
    with sites cut, where the compiler found out that what was computed again is what the model computes.

    Raises:
        InputError: see `plan`, `placed` and `records`.
        CompileError: as `covan_mlir.compile_module`.
    """
    with EXPORT_LOCK, uncollected():
        tell("attach")
        attached = plan(captured, options.attach)
    tell("compile without attachments")
    plain = compile_captured(captured, goals, options, rules=rules, tell=tell).variants
    with EXPORT_LOCK, uncollected():
        attached = placed(attached, [variant.lineage for variant in plain], machine_of(goals[0]) or TYPICAL)
    compiled = compile_captured(attached.captured, goals, options, rules=rules, tell=tell, facts=facts)
    cut = undone(attached, [variant.lineage for variant in compiled.variants])
    if cut is not None:
        attached = cut
        compiled = compile_captured(attached.captured, goals, options, rules=rules, tell=tell, facts=facts)
    variants = []
    for before, variant in zip(plain, compiled.variants, strict=True):
        tag(attached, variant.lineage)
        variants.append(replace(variant, attachments=records(attached, before.lineage, variant.lineage)))
    origin = Origin(attached.captured, replace(options, attach={}))
    return replace(compiled, variants=tuple(variants)), origin


def plan(captured: Capture, attach: Attach) -> AttachmentPlan:
    """Find the tensors and trace the functions.

    Raises:
        InputError: a key names no tensor or several, or a function does not fit.
    """
    graph = captured.program.graph
    targets = [(key, attachment, locate.named(graph, key)) for key, attachment in attachments(attach)]
    goals = tuple(Goal(key, attachment, target.node.name, target.action) for key, attachment, target in targets)
    return AttachmentPlan(captured, goals, insert(captured, goals))


def placed(planned: AttachmentPlan, lineages: Sequence[LineageData], machine: Machine = TYPICAL) -> AttachmentPlan:
    """Decide where each operator gets its tensor from.

    Args:
        lineages: of the program without attachments, for each target; the first decides.
        machine: the first target's.

    Raises:
        InputError: a tensor is in no form in the compiled program: its fate.
    """
    for goal in planned.goals:
        for lineage in lineages:
            _exists(goal, lineage)
    planner = AccessPlanner(planned.source.program, lineages[0], planned.symbols, machine)
    choices = planner.choose([(goal.node, goal.attachment.mode == "tap") for goal in planned.goals])
    goals = tuple(replace(goal, again=choice.again) for goal, choice in zip(planned.goals, choices, strict=True))
    insertion = insert(planned.source, goals) if any(goal.again for goal in goals) else planned.insertion
    return AttachmentPlan(planned.source, goals, insertion, choices, machine)


def undone(planned: AttachmentPlan, lineages: Sequence[LineageData]) -> AttachmentPlan | None:
    """The plan with sites cut wherever something was to be computed again, if the compiler found out that it is the
    same as what the model computes; None if it did not.

    Barriers last until dispatches are formed; equal dispatches are merged after that, where nobody observes it.
    """
    lost = [
        action
        for lineage in lineages
        for inserted in planned.insertion.inserted
        for action in lineage.actions
        if action.name in inserted.copies and not action.view and lineage.fates[action.id].kind == "view"
    ]
    if not lost:
        return None
    log.info("%s was merged with what the model computes: the sites are cut instead", lost[0].name)
    goals = tuple(replace(goal, again=frozenset()) for goal in planned.goals)
    choices = tuple(
        ChosenAccess("split" if choice.way == "recompute" else choice.way, choice.places) for choice in planned.choices
    )
    return AttachmentPlan(planned.source, goals, insert(planned.source, goals), choices, planned.machine)


def restored(captured: Capture, attach: Attach, them: Sequence[Attached]) -> Capture:
    """The program of a compilation with attachments, made again.

    Args:
        attach: as it was compiled with.
        them: what that compilation tells of its attachments.

    Raises:
        InputError: ``attach`` is not what the program was compiled with.
    """
    planned = plan(captured, attach)
    if [goal.attachment.name for goal in planned.goals] != [attached.name for attached in them]:
        raise InputError(
            f"attach: the program was compiled with {', '.join(attached.name for attached in them)}, not with "
            f"{', '.join(goal.attachment.name for goal in planned.goals) or 'nothing'}: give the same functions"
        )
    insertion = insert(
        captured, [replace(g, again=frozenset(attached.again)) for g, attached in zip(planned.goals, them, strict=True)]
    )
    for attached, now, goal in zip(them, insertion.inserted, planned.goals, strict=True):
        same = (now.nodes, now.source, dict(now.constants), goal.action, goal.attachment.mode)
        if same != (attached.actions, attached.source, dict(attached.constants), attached.target, attached.mode):
            raise InputError(f"attach: {attached.name!r} is not the function that the program was compiled with")
    return insertion.captured


def _exists(goal: Goal, lineage: LineageData) -> None:
    action = next(action for action in lineage.actions if action.name == goal.action)
    fate = lineage.fates[action.id]
    if fate.kind in ("dispatched", "view"):
        return
    hint = {
        "merged": "attach to that one",
        "folded": "its values never change: compute with it before, or attach to what reads it",
        "dead": "return it, or attach to a tensor that the results need",
    }[fate.kind]
    if fate.kind == "merged" and fate.twin is not None:
        hint = f"attach to {lineage.actions[fate.twin].name}"
    raise InputError(f"attach: {_shown(goal.key, action)} is {became(lineage, fate)}; {hint}")


def _shown(key: str | int, action: Action) -> str:
    where = f" at {action.line}" if action.line else ""
    what = f"{action.name} ({action.op}){where}"
    return what if key == action.name else f"{key!r}, which is {what},"


def tag(planned: AttachmentPlan, lineage: LineageData) -> None:
    """Tag the actions of attached operators."""
    for inserted in planned.insertion.inserted:
        for name in inserted.nodes:
            lineage.tag(name, TAG)


def records(planned: AttachmentPlan, without: LineageData, lineage: LineageData) -> tuple[Attached, ...]:
    """What became of the attached operators in a compiled program.

    Raises:
        InputError: one does not depend on its tensor at run time, or the results do not need it.
    """
    symbols = planned.symbols
    before, after = (place.totals(each, symbols, planned.machine) for each in (without, lineage))
    moved, flops, time = (b - a for a, b in zip(before, after, strict=True))
    attached = []
    for goal, inserted, choice in zip(planned.goals, planned.insertion.inserted, planned.choices, strict=True):
        actions = [next(a for a in lineage.actions if a.name == name) for name in inserted.nodes]
        old = without.where(goal.action)
        names = {without.actions[i].name for site in old for i in site.trace} | set(inserted.nodes)
        new = [s for s in lineage.sites if any(lineage.actions[i].name in names for i in s.trace)]
        cost = AttachmentCost(
            choice.way,
            choice.places,
            tuple(site.kernel for site in old),
            tuple(site.kernel for site in new if site.phase == "call"),
            moved,
            flops,
            time,
        )
        own = {action.id for action in actions}
        record = Attached(
            name=goal.attachment.name,
            target=goal.action,
            mode=goal.attachment.mode,
            actions=tuple(action.name for action in actions),
            again=tuple(sorted(goal.again)),
            types=inserted.types,
            sites=tuple(site.id for site in lineage.sites if not own.isdisjoint(site.trace)),
            fate=_fate(goal, inserted, lineage),
            source=inserted.source,
            constants=inserted.constants,
            sha256="",
            cost=cost,
        )
        attached.append(structs.replace(record, sha256=digest(record, lineage)))
    return tuple(attached)


def _fate(goal: Goal, inserted: Inserted, lineage: LineageData) -> Outcome:
    """What became of the operator as a whole: all of it that the tensor's values reach has to be there."""
    name = goal.attachment.name
    kinds: set[str] = set()
    for result in inserted.results:
        action = next(a for a in lineage.actions if a.name == result)
        fate = lineage.fates[action.id]
        kinds.add(fate.kind)
        if fate.kind == "folded":
            raise InputError(f"attach: what {name!r} gives is {became(lineage, fate)}: it is the same in every call")
        if fate.kind == "dead":
            raise InputError(f"attach: what {name!r} gives in place of {goal.action} is {became(lineage, fate)}")
        if fate.kind == "merged":
            log.warning("attached %r: its result is %s; the two share a kernel", name, became(lineage, fate))
    if "merged" in kinds:
        return "merged"
    dispatched = any(lineage.fates[a.id].kind == "dispatched" for a in lineage.actions if a.name in inserted.nodes)
    return "dispatched" if dispatched else "view"
