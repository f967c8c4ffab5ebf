"""Saved profiles: a versioned JSON form, tied to its program by checksum."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from covan_mlir.artifacts import json_checks
from covan_mlir.artifacts.variant import Variant
from covan_mlir.errors import ProfileError
from covan_mlir.machine.description import Ceilings
from covan_mlir.profiling import views
from covan_mlir.profiling.join import Event
from covan_mlir.profiling.model import ProfileData
from covan_mlir.provenance.model import LineageData

FORMAT = 1


def checksum(program: bytes | memoryview) -> str:
    """SHA-256 of a program, in hexadecimal."""
    return hashlib.sha256(program).hexdigest()


def dump(profile: ProfileData) -> dict[str, Any]:
    """Samples, from which a profile is read back, and the rows by line, module and site for other programs."""
    return {
        "format": FORMAT,
        "kind": "covan profile",
        "program": profile.program,
        "target": profile.target,
        "driver": profile.driver,
        "totals": list(profile.totals),
        "sites": [[site, profile.runs[site], list(times)] for site, times in profile.times.items()],
        "timeline": [[event.site, event.start, event.duration] for event in profile.timeline],
        "unprofiled": profile.unprofiled,
        "symbols": dict(profile.symbols),
        "machine": asdict(profile.machine) if profile.machine else None,
        "notes": list(profile.notes),
        "total_ns": profile.total,
        "outside_ns": profile.outside,
        "overhead": profile.overhead,
        **{f"by_{by}": [_row(profile, row) for row in views.rows(profile, by)] for by in ("line", "module", "site")},
    }


def _row(profile: ProfileData, row: views.Row) -> dict[str, Any]:
    return {**asdict(row), "actions": [profile.lineage.actions[i].name for i in row.actions]}


def save(profile: ProfileData, path: str | os.PathLike[str]) -> None:
    """Write a profile."""
    Path(path).write_text(json.dumps(dump(profile)), encoding="utf-8")


def load(path: str | os.PathLike[str], variants: Iterable[Variant]) -> ProfileData:
    """Read a profile of one of these programs.

    Raises:
        ProfileError: the file cannot be read, is no profile, or is one of another program.
    """
    row = json_checks.read(path, "profile", ProfileError)
    if not isinstance(row, dict) or row.get("kind") != "covan profile":
        raise ProfileError(f"{path} is no profile\n'covan profile --save' writes them")
    if row.get("format") != FORMAT:
        raise ProfileError(f"{path} has format {row.get('format')!r}; this version of covan reads {FORMAT}")
    for variant in variants:
        if row.get("program") == checksum(variant.program):
            try:
                return _profile(row, variant.lineage)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise ProfileError(f"{path} is damaged: {error}") from error
    raise ProfileError(f"{path} is a profile of another program\nProfile this one anew")


def _profile(row: Mapping[str, Any], lineage: LineageData) -> ProfileData:
    totals = tuple(_number(value) for value in row["totals"])
    times: dict[int, tuple[float, ...]] = {}
    runs: dict[int, int] = {}
    for site, often, values in row["sites"]:
        times[lineage.site(int(site)).id] = tuple(_number(value) for value in values)
        runs[int(site)] = int(often)
    if not totals or any(len(values) != len(totals) for values in times.values()):
        raise ValueError("its samples are not of the same calls")
    return ProfileData(
        lineage=lineage,
        program=row["program"],
        target=str(row["target"]),
        driver=str(row["driver"]),
        totals=totals,
        times=times,
        runs=runs,
        timeline=tuple(
            Event(lineage.site(int(site)).id, int(start), int(duration)) for site, start, duration in row["timeline"]
        ),
        unprofiled=None if row["unprofiled"] is None else _number(row["unprofiled"]),
        symbols={str(name): int(value) for name, value in row["symbols"].items()},
        machine=Ceilings(**row["machine"]) if row["machine"] else None,
        notes=tuple(map(str, row["notes"])),
    )


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{value!r} is no time")
    return float(value)
