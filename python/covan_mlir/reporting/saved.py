"""Comparisons as ``covan compare --json`` prints them, for reports: to compare takes the model, this does not."""

from __future__ import annotations

import os
from dataclasses import dataclass

from msgspec import UnsetType

from covan_mlir.errors import CovanError
from covan_mlir.provenance.model import Action, LineageData
from covan_mlir.reporting.comparison_json import StoredComparedAction, StoredComparison
from covan_mlir.support import typed_json


@dataclass(frozen=True)
class Excess:
    """How far a tensor is off, in what is allowed."""

    excess: float


@dataclass(frozen=True)
class ComparedAction:
    """One action that was compared; see `covan_mlir.comparing.comparison.ActionComparison`."""

    action: Action
    status: str
    measured: Excess | None


@dataclass(frozen=True)
class SavedComparison:
    """What a report needs of a comparison."""

    rows: tuple[ComparedAction, ...]


def comparison(path: str | os.PathLike[str], lineage: LineageData) -> SavedComparison:
    """Read the comparison of a program.

    Raises:
        CovanError: the file cannot be read, holds no comparison, or one of another program.
    """
    data = typed_json.read(path, CovanError)
    try:
        stored = typed_json.decode(data, StoredComparison)
    except typed_json.SchemaError as error:
        raise CovanError(f"{path} is no comparison: {error}\n'covan compare --json' prints them") from error
    by_name = {action.name: action for action in lineage.actions}
    for compared in stored.rows:
        action = by_name.get(compared.action)
        if action is None or action.op != compared.op:
            what = f"{compared.op} that is called {compared.action!r}"
            raise CovanError(f"{path} is a comparison of another program: this one has no {what}")
    return SavedComparison(tuple(_compared(by_name[compared.action], compared) for compared in stored.rows))


def _compared(action: Action, stored: StoredComparedAction) -> ComparedAction:
    measured = None if isinstance(stored.excess, UnsetType) else Excess(float(stored.excess))
    return ComparedAction(action, stored.status, measured)
