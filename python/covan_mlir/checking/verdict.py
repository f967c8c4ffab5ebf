"""What a verification says: per check its outcome, and where it fails the place and the reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from covan_mlir.support.fragments import Cell, folded, paragraph, table, whole

Outcome = Literal["yes", "no", "incomplete"]
_SHOWN = 10
_SAID: dict[Outcome, str] = {
    "yes": "the lineage holds",
    "no": "the lineage does not hold",
    "incomplete": "not everything was checked",
}


@dataclass(frozen=True)
class Counterexample:
    """One place where the lineage does not hold.

    Attributes:
        phase: the step of the compiler, ``program``, or ``fates``.
        why: the reason.
        site: id of the site, if it is about one.
        actions: names of the actions it is about.
        kernel: of the site.
    """

    phase: str
    why: str
    site: int | None = None
    actions: tuple[str, ...] = ()
    kernel: str = ""

    def __str__(self) -> str:
        where = "" if self.site is None else f" site {self.site} ({self.kernel}):"
        return f"{self.phase}:{where} {self.why}"


@dataclass(frozen=True)
class Check:
    """One comparison of the source with what the lineage says of one phase.

    Attributes:
        phase: the step of the compiler after which the program was observed; ``program``: the final one; ``source``,
            ``sites``, ``fates``, ``history``, ``fusions``: what else the lineage says.
        outcome: ``yes`` only if everything was checked and holds.
        related: pairs of related states (of values and of executions), the size of the bisimulation.
        states: states of the two systems together.
        counterexamples: why not.
        missing: what could not be checked.
        exact: of the related pairs, those whose equality was decided in exact arithmetic.
        rounded: those which float64 decided, in words: site, part, and why.
        play: how the two systems come apart: moves and answers, for people; empty if they do not.
        seconds: how long it took.
    """

    phase: str
    outcome: Outcome
    related: int = 0
    states: int = 0
    counterexamples: tuple[Counterexample, ...] = ()
    missing: tuple[str, ...] = ()
    exact: int = 0
    rounded: tuple[str, ...] = ()
    play: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Verification:
    """The outcome of `Executable.verify`; true only if every check ran to its end and holds.

    Attributes:
        checks: in the order of the compiler's steps; the final program and the fates last.
    """

    checks: tuple[Check, ...]

    def __bool__(self) -> bool:
        return self.outcome == "yes"

    @property
    def outcome(self) -> Outcome:
        """``no`` if any check fails, else ``incomplete`` if any could not be finished, or none was run."""
        outcomes = {check.outcome for check in self.checks}
        if "no" in outcomes:
            return "no"
        return "yes" if outcomes == {"yes"} else "incomplete"

    @property
    def counterexamples(self) -> tuple[Counterexample, ...]:
        """Those of all checks."""
        return tuple(example for check in self.checks for example in check.counterexamples)

    def _repr_html_(self) -> str:
        """For notebooks."""
        rows: list[list[Cell | str]] = [
            [
                check.phase,
                check.outcome,
                Cell(f"{check.related:,}" if check.states else "", number=True),
                Cell(f"{check.states:,}" if check.states else "", number=True),
                Cell(f"{check.seconds:.2f}", number=True),
            ]
            for check in self.checks
        ]
        wrong = [[str(example), ", ".join(example.actions)] for example in self.counterexamples]
        missing = [[check.phase, reason] for check in self.checks for reason in check.missing]
        return whole(
            "verification",
            [
                paragraph(f"{self.outcome}: {_SAID[self.outcome]}", strong=True),
                table(("where it does not hold", "actions"), wrong),
                table(("phase", "not checked"), missing),
                folded(f"{len(rows)} checks", table(("phase", "outcome", "related", "states", "s"), rows)),
            ],
        )

    def __str__(self) -> str:
        lines = [f"{self.outcome}: {_SAID[self.outcome]}"]
        width = max((len(check.phase) for check in self.checks), default=0)
        for check in self.checks:
            size = f"{check.related:,} related pairs among {check.states:,} states" if check.states else ""
            lines.append(f"  {check.phase.ljust(width)}  {check.outcome.ljust(10)}  {size}".rstrip())
            if check.exact or check.rounded:
                lines[-1] += f"  {check.exact:,} results by exact arithmetic, {len(check.rounded):,} by float64"
            lines += [f"    {example}" for example in check.counterexamples[:_SHOWN]]
            if len(check.counterexamples) > _SHOWN:
                lines.append(f"    and {len(check.counterexamples) - _SHOWN} more")
            lines += [f"    not checked: {reason}" for reason in check.missing]
        return "\n".join(lines)
