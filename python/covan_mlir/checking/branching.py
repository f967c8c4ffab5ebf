"""What cannot be decided where a program branches or loops.

Branches and bodies of loops are performed any number of times, also none, and values go round in them: states of a body
are not those of the systems that are compared. What is found wrong about them is no proof that the lineage is false.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from covan_mlir.checking.verdict import Check, Counterexample

if TYPE_CHECKING:
    from covan_mlir.provenance.model import LineageData

_TAKES_FUNCTIONS = "higher_order."


def undecided(check: Check, lineage: LineageData) -> Check:
    """The check, with what it says of branches and loops as not checked."""
    actions = {part.action for part in lineage.parts.values() if part.op.startswith(_TAKES_FUNCTIONS)}
    if not actions:
        return check
    actions |= {action.id for action in lineage.actions if action.body}
    names = {lineage.actions[action].name for action in actions}
    sites = {site.id for site in lineage.sites if not actions.isdisjoint(site.trace)}

    def stands(example: Counterexample) -> bool:
        about = example.site is not None or example.actions
        return bool(about) and example.site not in sites and names.isdisjoint(example.actions)

    wrong = tuple(example for example in check.counterexamples if stands(example))
    open_ = tuple(f"branches and loops: {e.why}" for e in check.counterexamples if not stands(e))
    what = ", ".join(sorted(names - {a.name for a in lineage.actions if a.body}))
    missing = (*check.missing, *open_, f"what the functions do that {what} takes, each time that they are called")
    return replace(check, outcome="no" if wrong else "incomplete", counterexamples=wrong, missing=missing)
