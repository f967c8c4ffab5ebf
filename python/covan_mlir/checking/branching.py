"""What cannot be decided where a program computes with numbers that it reads from tensors, or a branch or loop is gone.

Numbers are computed between dispatches, where no site is. A branch or loop that the compiler decided ahead of time, or
unrolled, has bodies that are done once, or several times, and values that nothing carries. What is found wrong about
them is no proof that the lineage is false.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from typing import TYPE_CHECKING

from covan_mlir.checking import joins
from covan_mlir.checking.verdict import Check, Counterexample, Outcome

if TYPE_CHECKING:
    from covan_mlir.checking.subject import Subject
    from covan_mlir.provenance.model import LineageData, Part

_TAKES_FUNCTIONS = "higher_order."
_READS_NUMBERS = "aten._local_scalar_dense."


def turned(subject: Subject) -> set[int]:
    """Actions that take functions and that some phase of the program has no branch or loop for."""
    parts, source = subject.lineage.parts, subject.source()
    graphs = {id(phase.graph): phase.graph for phase in subject.lineage.phases}
    gone = {part for graph in graphs.values() for part in joins.undecided(source, graph)}
    others = {part.action for part in parts.values() if part.op.startswith(_TAKES_FUNCTIONS)}
    return others.union(*(parts[part].owners for part in gone))


def undecided(check: Check, lineage: LineageData, takers: Set[int]) -> Check:
    """The check, with what it says of numbers, and of some branches and loops, as not checked.

    Args:
        takers: those of `turned`.
    """
    actions = takers | _numbers(lineage)
    if not actions:
        return check
    actions |= {action.id for action in lineage.actions if takers and action.body}
    names = {lineage.actions[action].name for action in actions}
    sites = {site.id for site in lineage.sites if not actions.isdisjoint(site.trace)}

    def stands(example: Counterexample) -> bool:
        about = example.site is not None or example.actions
        return bool(about) and example.site not in sites and names.isdisjoint(example.actions)

    wrong = tuple(example for example in check.counterexamples if stands(example))
    missing = (*check.missing, *(f"not decided: {e.why}" for e in check.counterexamples if not stands(e)))
    if takers:
        what = ", ".join(sorted(lineage.actions[action].name for action in takers))
        missing += (f"what the functions do that {what} takes, each time that they are called",)
    outcome: Outcome = "no" if wrong else "incomplete" if missing else check.outcome
    return replace(check, outcome=outcome, counterexamples=wrong, missing=missing)


def _numbers(lineage: LineageData) -> set[int]:
    """Actions that read numbers from tensors, compute with them, or are given one."""
    parts: set[int] = set()
    for part in sorted(lineage.parts.values(), key=lambda part: part.id):
        if part.op.startswith(_READS_NUMBERS) or (parts.intersection(part.inputs) and not _is_tensor(part)):
            parts.add(part.id)
    readers = {owner for part in lineage.parts.values() if parts.intersection(part.inputs) for owner in part.owners}
    return readers.union(*(lineage.parts[part].owners for part in parts))


def _is_tensor(part: Part) -> bool:
    return any("[" in kind for kind in part.types)
