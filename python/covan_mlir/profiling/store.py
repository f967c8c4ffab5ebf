"""Saved profiles: a versioned JSON form, tied to its program by checksum."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from covan_mlir.artifacts.variant import Variant
from covan_mlir.errors import ProfileError
from covan_mlir.machine.description import Ceilings
from covan_mlir.profiling import views
from covan_mlir.profiling.join import Event
from covan_mlir.profiling.model import By, ProfileData, Roofline, Statistics
from covan_mlir.provenance.model import LineageData
from covan_mlir.support import typed_json, whole_file
from covan_mlir.support.typed_json import Amount, JsonObject, Natural, SchemaError

FORMAT = 1


def checksum(program: bytes | memoryview) -> str:
    """SHA-256 of a program, in hexadecimal."""
    return hashlib.sha256(program).hexdigest()


class ProfileHeader(JsonObject, frozen=True, forbid_unknown_fields=False):
    """What profiles of all formats have in common."""

    kind: Literal["covan profile"]
    format: int
    program: str


class SiteTimes(NamedTuple):
    """Nanoseconds of a site in each call, and how often it runs in one."""

    site: Natural
    runs: Natural
    times: list[Amount]


class StoredEvent(NamedTuple):
    """A dispatch of the call whose total is the median."""

    site: Natural
    start: int
    duration: int


class StoredRow(JsonObject, frozen=True):
    """A line, module or site as `covan_mlir.profiling.views.ProfileRow`, with the names of its actions."""

    name: str
    time: float
    own: float
    estimated: float
    depth: int
    actions: list[str]
    sites: list[int]
    kernel: str
    statistics: Statistics | None
    roofline: Roofline | None


class StoredProfile(JsonObject, frozen=True):
    """Samples, from which a profile is read back; from ``total_ns`` on, what other programs want of it."""

    format: int
    kind: str
    program: str
    target: str
    driver: str
    totals: list[Amount]
    sites: list[SiteTimes]
    timeline: list[StoredEvent]
    unprofiled: Amount | None
    symbols: Mapping[str, int]
    machine: Ceilings | None
    notes: list[str]
    total_ns: float
    outside_ns: float
    overhead: float | None
    by_line: list[StoredRow]
    by_module: list[StoredRow]
    by_site: list[StoredRow]


def dump(profile: ProfileData) -> dict[str, Any]:
    """The JSON form; `load` reads it."""
    stored = StoredProfile(
        format=FORMAT,
        kind="covan profile",
        program=profile.program,
        target=profile.target,
        driver=profile.driver,
        totals=list(profile.totals),
        sites=[SiteTimes(site, profile.runs[site], list(times)) for site, times in profile.times.items()],
        timeline=[StoredEvent(event.site, event.start, event.duration) for event in profile.timeline],
        unprofiled=profile.unprofiled,
        symbols=dict(profile.symbols),
        machine=profile.machine,
        notes=list(profile.notes),
        total_ns=profile.total,
        outside_ns=profile.outside,
        overhead=profile.overhead,
        by_line=_rows(profile, "line"),
        by_module=_rows(profile, "module"),
        by_site=_rows(profile, "site"),
    )
    return stored.to_json()


def _rows(profile: ProfileData, by: By) -> list[StoredRow]:
    actions = profile.lineage.actions
    return [
        StoredRow(
            name=row.name,
            time=row.time,
            own=row.own,
            estimated=row.estimated,
            depth=row.depth,
            actions=[actions[i].name for i in row.actions],
            sites=row.sites,
            kernel=row.kernel,
            statistics=row.statistics,
            roofline=row.roofline,
        )
        for row in views.rows(profile, by)
    ]


def save(profile: ProfileData, path: str | os.PathLike[str]) -> None:
    """Write a profile.

    Raises:
        ProfileError: it cannot be written.
    """
    try:
        whole_file.write(path, json.dumps(dump(profile)).encode())
    except OSError as error:
        raise ProfileError(f"{os.fspath(path)}: cannot be written: {error.strerror or error}") from error


def load(path: str | os.PathLike[str], variants: Iterable[Variant]) -> ProfileData:
    """Read a profile of one of these programs.

    Raises:
        ProfileError: the file cannot be read, is no profile, or is one of another program.
    """
    data = typed_json.read(path, ProfileError)
    try:
        header = typed_json.decode(data, ProfileHeader)
    except SchemaError as error:
        raise ProfileError(f"{path} is no profile: {error}\n'covan profile --save' writes them") from error
    if header.format != FORMAT:
        raise ProfileError(f"{path} has format {header.format}; this version of covan reads {FORMAT}")
    for variant in variants:
        if header.program == checksum(variant.program):
            try:
                return _profile(typed_json.decode(data, StoredProfile), variant.lineage)
            except (SchemaError, KeyError, ValueError) as error:
                raise ProfileError(f"{path} is damaged: {error}") from error
    raise ProfileError(f"{path} is a profile of another program\nProfile this one anew")


def _profile(stored: StoredProfile, lineage: LineageData) -> ProfileData:
    if not stored.totals or any(len(site.times) != len(stored.totals) for site in stored.sites):
        raise ValueError("its samples are not of the same calls")
    return ProfileData(
        lineage=lineage,
        program=stored.program,
        target=stored.target,
        driver=stored.driver,
        totals=tuple(map(float, stored.totals)),
        times={lineage.site(site.site).id: tuple(map(float, site.times)) for site in stored.sites},
        runs={site.site: site.runs for site in stored.sites},
        timeline=tuple(Event(lineage.site(site).id, start, duration) for site, start, duration in stored.timeline),
        unprofiled=None if stored.unprofiled is None else float(stored.unprofiled),
        symbols=stored.symbols,
        machine=stored.machine,
        notes=tuple(stored.notes),
    )
