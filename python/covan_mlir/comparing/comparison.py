"""The result of a comparison, and how people read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from covan_mlir.comparing.measure import Measured
from covan_mlir.provenance.model import Action, Site
from covan_mlir.reporting.comparison_json import (
    Status,
    StoredComparedAction,
    StoredComparison,
    StoredResult,
    StoredSuspicion,
)
from covan_mlir.support.columns import aligned
from covan_mlir.support.fragments import folded, paragraph, table, whole


@dataclass(frozen=True)
class ActionComparison:
    """One action's tensor.

    Attributes:
        status: ``agrees``: within tolerance; ``beyond``; ``inherited``: beyond, but right for what the compiled program
            had computed before (a near tie decided the other way); ``crash``: the program fails as soon as it is
            computed; ``unobserved``: see ``why``.
        sites: that perform the action in the compiled program, or read the constant or the twin that it became.
        fate: what became of it there; empty if that was not recorded.
        measured: None unless it was observed.
        sampled: of how many elements along the longest dimension one was looked at; 1: all.
    """

    action: Action
    status: Status
    sites: tuple[Site, ...] = ()
    measured: Measured | None = None
    why: str = ""
    sampled: int = 1
    fate: str = ""

    def stored(self) -> StoredComparedAction:
        """As JSON has it."""
        action = StoredComparedAction(
            action=self.action.name,
            op=self.action.op,
            module=self.action.module,
            line=self.action.line,
            status=self.status,
            why=self.why,
            fate=self.fate,
            sites=tuple(site.id for site in self.sites),
            kernels=tuple(site.kernel for site in self.sites),
            sampled=self.sampled,
        )
        return replace(action, **self.measured.stored()) if self.measured else action


@dataclass(frozen=True)
class Result:
    """One result of the compiled program, as it is, with nothing observed; ``index`` counts tensors and others."""

    index: int
    name: str
    measured: Measured


@dataclass(frozen=True)
class Suspicion:
    """Where a fault is that vanishes when the tensors around it are observed.

    Attributes:
        actions: it is in what is computed for these.
        sites: that perform them.
        complete: whether the search came to its end.
    """

    actions: tuple[Action, ...]
    sites: tuple[Site, ...]
    complete: bool


@dataclass(frozen=True)
class Comparison:
    """The compiled program against eager PyTorch. True if it agrees.

    Attributes:
        rows: one per action that the results need and whose tensor is one, in source order.
        results: of the program as it is.
        crash: how the program as it is ended, if not with results.
        first: the first action that is wrong, or at which the program crashes; None: none is, or see ``suspicion``.
        suspicion: where the fault is if observing hides it.
        persists: whether the fault shows in the program as it is, or with the first wrong tensor alone observed;
            None: there is none. True without ``first`` and ``suspicion``: it shows in the program's results only.
        notes: what was found out about it, and what could not be looked at; sentences.
        compilations: how many programs were compiled for this.
    """

    rows: tuple[ActionComparison, ...]
    results: tuple[Result, ...] = ()
    crash: str = ""
    first: ActionComparison | None = None
    suspicion: Suspicion | None = None
    persists: bool | None = None
    notes: tuple[str, ...] = ()
    compilations: int = 0

    def __bool__(self) -> bool:
        return self.first is None and self.suspicion is None and not self.crash and not self.persists

    def row(self, name: str) -> ActionComparison:
        """The row of an action.

        Raises:
            KeyError: there is none.
        """
        for row in self.rows:
            if row.action.name == name:
                return row
        raise KeyError(f"no tensor of an action {name!r} was compared")

    def to_json(self) -> dict[str, Any]:
        """The comparison as JSON (docs/comparing.md)."""
        suspicion = None
        if self.suspicion:
            suspicion = StoredSuspicion(
                [action.name for action in self.suspicion.actions],
                [site.id for site in self.suspicion.sites],
                self.suspicion.complete,
            )
        comparison = StoredComparison(
            agrees=bool(self),
            first=self.first.stored() if self.first else None,
            suspicion=suspicion,
            persists=self.persists,
            crash=self.crash,
            notes=self.notes,
            compilations=self.compilations,
            results=tuple(StoredResult(index=r.index, name=r.name, **r.measured.stored()) for r in self.results),
            rows=[row.stored() for row in self.rows],
        )
        return comparison.to_json()

    def __str__(self) -> str:
        return "\n".join([*self.verdict(), "", *self.table()]) + "\n"

    def _repr_html_(self) -> str:
        """For notebooks: the verdict, then the tensors that are not within tolerance, and folded all."""
        first, *rest = self.verdict()
        wrong = [row for row in self.rows if row.status != "agrees"]
        return whole(
            "comparison",
            [
                paragraph("agrees" if self else "does not agree", strong=True),
                paragraph(first),
                *map(paragraph, rest),
                table(_HEAD, [list(_cells(row)) for row in wrong]),
                folded(f"all {len(self.rows)} tensors", table(_HEAD, [list(_cells(row)) for row in self.rows])),
            ],
        )

    def verdict(self) -> list[str]:
        """What was found, in lines of text."""
        counts = {status: sum(row.status == status for row in self.rows) for status in _WORDS}
        said = ", ".join(f"{count} {_WORDS[status]}" for status, count in counts.items() if count)
        lines = [f"{len(self.rows)} tensors: {said or 'none'}"]
        if self.first is not None:
            lines += _told(self.first)
        if self.suspicion is not None:
            names = ", ".join(f"{a.name} ({a.op}){f' at {a.line}' if a.line else ''}" for a in self.suspicion.actions)
            lines.append(f"the fault is in what is computed for {names}")
            lines += [f"  site {site.id}, kernel {site.kernel}" for site in self.suspicion.sites]
        for result in self.results:
            measured = result.measured
            state = "beyond tolerance" if measured.beyond else "within tolerance"
            lines.append(f"result {result.index} ({result.name}) of the program as it is: {state}, {_errors(measured)}")
        if self.crash:
            lines.append(f"the program as it is gives no results: {self.crash}")
        return [*lines, *self.notes]

    def table(self) -> list[str]:
        """The tensors in source order."""
        return aligned([_HEAD, *(_cells(row) for row in self.rows)])


_HEAD = ("action", "op", "line", "max abs", "max rel", "ulp", "eager's abs", "of allowed", "sites", "")

_WORDS: dict[Status, str] = {
    "agrees": "within tolerance",
    "beyond": "beyond tolerance",
    "inherited": "beyond tolerance, but right for their inputs",
    "crash": "crash the program",
    "unobserved": "not observed",
}


_FATES = {"folded": "a constant, read by ", "merged": "computed once for several, in ", "view": "an index of "}


def _told(row: ActionComparison) -> list[str]:
    action = row.action
    where = f" at {action.line}" if action.line else ""
    module = f", in {action.module}" if action.module else ""
    what = "crashes the program" if row.status == "crash" else "is the first that is beyond tolerance"
    lines = [f"{action.name} ({action.op}){where}{module} {what}{f': {row.why}' if row.why else ''}"]
    if row.measured is not None:
        measured = row.measured
        got, eager, truth = measured.values
        lines.append(f"  {_errors(measured)}")
        lines.append(
            f"  worst at {list(measured.worst)}: {got:.9g}; eager gives {eager:.9g}, "
            + (f"in float64 {truth:.17g}" if measured.exact else "and does not run in float64")
        )
    how = _FATES.get(row.fate, "")
    return [*lines, *(f"  {how}site {site.id}, kernel {site.kernel}" for site in row.sites)]


def _errors(measured: Measured) -> str:
    odd = f", {measured.error.wrong} elements wrong altogether" if measured.error.wrong else ""
    return (
        f"error {_number(measured.error.abs)} (relative {_number(measured.error.rel)}, "
        f"{_number(measured.error.ulp)} ulp{odd}), "
        f"{_number(measured.excess)} of what is allowed; eager's own {_number(measured.eager.abs)}"
    )


def _cells(row: ActionComparison) -> tuple[str, ...]:
    action, measured = row.action, row.measured
    line = action.line.rpartition("/")[2]
    sites = ",".join(str(site.id) for site in row.sites)
    if measured is None:
        return (action.name, action.op, line, "", "", "", "", "", sites, f"{row.status}: {row.why}")
    mark: str = "" if row.status == "agrees" else row.status
    if row.sampled > 1:
        mark = f"{mark} sampled 1:{row.sampled}".strip()
    error = measured.error
    numbers = (
        _number(error.abs),
        _number(error.rel),
        _number(error.ulp),
        _number(measured.eager.abs),
        _number(measured.excess),
    )
    return (action.name, action.op, line, *numbers, sites, mark)


def _number(value: float) -> str:
    return f"{value:.2g}"
