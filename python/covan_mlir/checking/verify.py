"""Checks a lineage instead of trusting it: is the compiled program, as the lineage describes it, the source model?

For every phase that was observed, and for the final program, source and program are read as systems of states
(`covan_mlir.checking.source_system`, `covan_mlir.checking.program_system`), their executions made explicit (action
reflection), and compared by weak bisimulation up to what the lineage says of each site
(`covan_mlir.checking.phase_check`). What else a lineage says is checked against the source, against the phases, or
against each other: one file of this package for each section. At last, what each site's own code computes is
evaluated beside the operators that it is said to perform (`covan_mlir.checking.operators`). Where rules rewrote the
model before it was compiled, the source is what they made of it, and it is checked that they do
(`covan_mlir.checking.substitutions`).

Nothing here uses what makes lineages: both know the data (`covan_mlir.provenance.model`), and no more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from covan_mlir.checking.branching import turned, undecided
from covan_mlir.checking.fates import check_fates
from covan_mlir.checking.fusions import check_fusions
from covan_mlir.checking.history import check_history
from covan_mlir.checking.ledger_rows import check_source
from covan_mlir.checking.operators import check_operators
from covan_mlir.checking.phase_check import PhaseCheck
from covan_mlir.checking.site_rows import check_sites
from covan_mlir.checking.subject import Subject
from covan_mlir.checking.substitutions import PHASE as SUBSTITUTIONS
from covan_mlir.checking.substitutions import check_substitutions
from covan_mlir.checking.successors import Successors
from covan_mlir.checking.verdict import Check, Counterexample, Outcome, Verification
from covan_mlir.provenance.phases import PROGRAM
from covan_mlir.support.collector import uncollected

if TYPE_CHECKING:
    from covan_mlir.provenance.model import LineageData
    from covan_mlir.provenance.program_graph import ProgramGraph

Findings = tuple[list[Counterexample], list[str]]
"""Counterexamples, and what could not be checked."""


def verify(lineage: LineageData, *, operators: bool = True) -> Verification:
    """Check all of a lineage. Never raises for a wrong one: that is what the result says.

    Args:
        operators: whether what each site's own code computes is evaluated, too: some seconds of large programs, and
            torch. Of a site whose code takes too much work for that it is said.
    """
    if not lineage.phases:
        return Verification((Check(PROGRAM, "incomplete", missing=("the program was compiled without provenance",)),))
    if not lineage.actions and _names_actions(lineage):
        why = "the lineage has no actions, but the program's operations and results are named after some"
        return Verification((Check(PROGRAM, "no", counterexamples=(Counterexample(PROGRAM, why),)),))
    with uncollected():
        subject = Subject(lineage)
        gone = turned(subject)
        return Verification(tuple(undecided(check, lineage, gone) for check in _checks(subject, operators)))


def verify_all(lineage: LineageData, versions: Mapping[str, LineageData], *, operators: bool = True) -> Verification:
    """As `verify`, of a program with versions for some sizes, by what these are.

    Returns:
        The checks of the program itself, then those of each version, whose phases begin with its sizes.
    """
    checks = list(verify(lineage, operators=operators).checks)
    for name, version in versions.items():
        for check in verify(version, operators=operators).checks:
            wrong = tuple(replace(each, phase=f"{name}: {each.phase}") for each in check.counterexamples)
            checks.append(replace(check, phase=f"{name}: {check.phase}", counterexamples=wrong))
    return Verification(tuple(checks))


def _names_actions(lineage: LineageData) -> bool:
    nodes = (node for phase in lineage.phases for node in phase.graph.nodes)
    return any(node.evidence for node in nodes) or any(kind == "p" for kind, _ in lineage.results)


def _checks(subject: Subject, operators: bool) -> list[Check]:
    lineage = subject.lineage
    checks = [_finding("source", lambda: check_source(subject))]
    if lineage.substitution is not None and lineage.substitution.steps:
        checks.append(_finding(SUBSTITUTIONS, lambda: check_substitutions(subject)))
    before: ProgramGraph | None = None
    successors = Successors(subject)
    for phase in lineage.phases:
        start = time.perf_counter()
        if phase.graph is before and phase.step != PROGRAM:  # the step changed nothing: what was found holds
            checks.append(_again(checks[-1], phase.step))
            continue
        last = PhaseCheck(subject, phase)
        last.wrong += successors.check(phase.step, phase.graph, last.source)
        checks.append(last.check(start))
        before = phase.graph
    if phase.step != PROGRAM:
        wrong = subject.example(PROGRAM, f"the program was last seen after {phase.step}, and not when it was done")
        return [*checks, Check(PROGRAM, "no", counterexamples=(wrong,))]
    final = checks[-1]
    checks.append(_finding("sites", lambda: check_sites(subject, phase.graph)))
    checks.append(_finding("fates", lambda: (check_fates(subject, last.source, phase.graph), list(final.missing))))
    checks.append(_finding("history", lambda: check_history(subject)))
    checks.append(_finding("fusions", lambda: check_fusions(subject)))
    if operators:
        performed = [claim.performed if claim else () for claim in last.claims]
        checks.append(check_operators(lineage, phase.graph, performed))
    return checks


def _finding(name: str, find: Callable[[], Findings]) -> Check:
    start = time.perf_counter()
    wrong, missing = find()
    reasons = tuple(dict.fromkeys(missing))
    outcome: Outcome = "no" if wrong else "incomplete" if reasons else "yes"
    return Check(name, outcome, counterexamples=tuple(wrong), missing=reasons, seconds=time.perf_counter() - start)


def _again(check: Check, step: str) -> Check:
    wrong = tuple(replace(example, phase=step) for example in check.counterexamples)
    return replace(check, phase=step, counterexamples=wrong, seconds=0.0)
