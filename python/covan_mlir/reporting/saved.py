"""Comparisons as ``covan compare --json`` prints them, for reports: to compare takes the model, this does not."""

from __future__ import annotations

import os
from dataclasses import dataclass

from covan_mlir.artifacts import json_checks
from covan_mlir.errors import CovanError
from covan_mlir.provenance.model import Action, LineageData


@dataclass(frozen=True)
class Measured:
    """How far a tensor is off, in what is allowed."""

    excess: float


@dataclass(frozen=True)
class Row:
    """One action that was compared; see `covan_mlir.comparing.comparison.Row`."""

    action: Action
    status: str
    measured: Measured | None


@dataclass(frozen=True)
class SavedComparison:
    """What a report needs of a comparison."""

    rows: tuple[Row, ...]


def comparison(path: str | os.PathLike[str], lineage: LineageData) -> SavedComparison:
    """Read the comparison of a program.

    Raises:
        CovanError: the file cannot be read, holds no comparison, or one of another program.
    """
    value = json_checks.read(path, "comparison", CovanError)
    by_name = {action.name: action for action in lineage.actions}
    found: list[Row] = []
    try:
        for row in value["rows"]:
            action = by_name.get(row["action"])
            if action is None or action.op != row["op"]:
                what = f"{row['op']} that is called {row['action']!r}"
                raise CovanError(f"{path} is a comparison of another program: this one has no {what}")
            measured = Measured(float(row["excess"])) if "excess" in row else None
            found.append(Row(action, str(row["status"]), measured))
    except (KeyError, TypeError, ValueError) as error:
        raise CovanError(f"{path} is no comparison: 'covan compare --json' prints them") from error
    return SavedComparison(tuple(found))
