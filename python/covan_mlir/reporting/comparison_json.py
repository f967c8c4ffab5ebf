"""A comparison as ``covan compare --json`` prints it and reports read it (docs/comparing.md). Needs no torch."""

from __future__ import annotations

import math
from typing import Literal

from msgspec import UNSET, UnsetType

from covan_mlir.support.typed_json import JsonObject, Natural

Status = Literal["agrees", "beyond", "inherited", "crash", "unobserved"]
StoredFloat = float | Literal["inf", "-inf", "nan"]


def stored(value: float) -> StoredFloat:
    """A float as JSON, which knows finite ones only."""
    if math.isnan(value):
        return "nan"
    return value if math.isfinite(value) else "inf" if value > 0 else "-inf"


class StoredError(JsonObject, frozen=True):
    """As `covan_mlir.comparing.measure.Error`."""

    abs: StoredFloat
    rel: StoredFloat
    ulp: StoredFloat
    wrong: Natural


class StoredResult(JsonObject, frozen=True):
    """A result of the program and how far it is off; see `covan_mlir.comparing.measure.Measured`."""

    index: Natural
    name: str
    error: StoredError
    eager: StoredError
    difference: StoredError
    excess: StoredFloat
    worst: list[Natural]
    values: tuple[StoredFloat, StoredFloat, StoredFloat]
    exact: bool


class StoredComparedAction(JsonObject, frozen=True, kw_only=True):
    """An action's tensor; how far it is off only where that was measured."""

    action: str
    op: str
    module: str = ""
    line: str = ""
    status: Status
    why: str = ""
    fate: str = ""
    sites: tuple[Natural, ...] = ()
    kernels: tuple[str, ...] = ()
    sampled: Natural = 1
    error: StoredError | UnsetType = UNSET
    eager: StoredError | UnsetType = UNSET
    difference: StoredError | UnsetType = UNSET
    excess: StoredFloat | UnsetType = UNSET
    worst: list[Natural] | UnsetType = UNSET
    values: tuple[StoredFloat, StoredFloat, StoredFloat] | UnsetType = UNSET
    exact: bool | UnsetType = UNSET


class StoredSuspicion(JsonObject, frozen=True):
    """Where a fault is that vanishes when it is observed: names of actions, ids of sites."""

    actions: list[str]
    sites: list[Natural]
    complete: bool


class StoredComparison(JsonObject, frozen=True, kw_only=True):
    """The whole; of the attributes see `covan_mlir.comparing.comparison.Comparison`."""

    agrees: bool = False
    first: StoredComparedAction | None = None
    suspicion: StoredSuspicion | None = None
    persists: bool | None = None
    crash: str = ""
    notes: tuple[str, ...] = ()
    compilations: Natural = 0
    results: tuple[StoredResult, ...] = ()
    rows: list[StoredComparedAction]
