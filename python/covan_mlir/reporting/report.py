"""A program's provenance as one HTML file that needs nothing else: source, source graph and compiled graph.

The page is package data (`covan_mlir.reporting.document`): page.html, page.css and scripts; its content is made by
`covan_mlir.reporting.content`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any, Protocol

from covan_mlir.errors import InputError
from covan_mlir.provenance.model import LineageData
from covan_mlir.reporting.content import content
from covan_mlir.reporting.document import document, save
from covan_mlir.reporting.sources import listing

_SCRIPTS = ("model.js", "graph.js", "details.js", "page.js")


class TimedProgram(Protocol):
    """What a report needs of a `covan_mlir.profiling.profile.Profile`."""

    @property
    def lineage(self) -> LineageData:
        """Of the program that was timed."""

    @property
    def times(self) -> Mapping[int, Any]:
        """By site, for those that have a time."""

    def time(self, site: int) -> float:
        """Nanoseconds that a call spends in a site."""


class Compared(Protocol):
    """What a report needs of a `covan_mlir.comparing.comparison.Comparison`."""

    @property
    def rows(self) -> Iterable[Any]:
        """One per action, with ``action``, ``status``, and ``measured``, which is None or has ``excess``."""


def write(
    path: str | os.PathLike[str],
    lineage: LineageData,
    *,
    title: str = "",
    target: str = "",
    profile: TimedProgram | Mapping[int, float] | None = None,
    comparison: Compared | Mapping[int, float] | None = None,
    source: bool = True,
    written: float | None = None,
) -> None:
    """Write the report of a program.

    Args:
        path: the file, replaced if it exists.
        title, target: of the heading.
        profile: times of sites, for colours: a profile, or seconds by site.
        comparison: errors of actions, for colours: a comparison, whose errors are counted in what is allowed, or
            numbers by action.
        source: show the text of source lines, where their files can be read.
        written: see `covan_mlir.reporting.sources.listing`.

    Raises:
        InputError: there is no lineage, or the profile or comparison is of another program.
        CovanError: the file cannot be written.
    """
    text = page(
        lineage, title=title, target=target, profile=profile, comparison=comparison, source=source, written=written
    )
    save(path, text)


def page(
    lineage: LineageData,
    *,
    title: str = "",
    target: str = "",
    profile: TimedProgram | Mapping[int, float] | None = None,
    comparison: Compared | Mapping[int, float] | None = None,
    source: bool = True,
    written: float | None = None,
) -> str:
    """The text of the report; see `write`."""
    if not lineage.actions:
        raise InputError("the program has no lineage: compile it again with provenance=True")
    errors, unit = _errors(lineage, comparison)
    value = content(
        lineage,
        listing(lineage.actions, read=source, written=written),
        seconds=_seconds(lineage, profile),
        errors=errors,
    )
    value |= {"title": title or "program", "target": target, "unit": unit}
    title = f"{value['title']}: covan report"
    return document(resources.files(__package__), title, _SCRIPTS, value)


def _seconds(lineage: LineageData, profile: TimedProgram | Mapping[int, float] | None) -> Mapping[int, float] | None:
    if profile is None or isinstance(profile, Mapping):
        return profile
    timed = profile.lineage
    if timed is not lineage and [site.kernel for site in timed.sites] != [site.kernel for site in lineage.sites]:
        raise InputError("the profile is of another program: its kernels are others")
    return {site: profile.time(site) * 1e-9 for site in profile.times}


def _errors(
    lineage: LineageData, comparison: Compared | Mapping[int, float] | None
) -> tuple[Mapping[int, float] | None, str]:
    """The error of each action, and what it is counted in."""
    if comparison is None or isinstance(comparison, Mapping):
        return comparison, ""
    errors: dict[int, float] = {}
    for row in comparison.rows:
        action = row.action
        if action.id >= len(lineage.actions) or lineage.actions[action.id].name != action.name:
            raise InputError(f"the comparison is of another program: this one has no action {action.id}, {action.name}")
        if row.status == "crash":
            errors[action.id] = math.inf
        elif row.measured is not None:
            errors[action.id] = row.measured.excess
    return errors, "of what is allowed"
