"""Values beside eager's as a check of a lineage: what a site is said to compute is what its program computes there."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from covan_mlir.checking.verdict import Check, Counterexample
from covan_mlir.comparing.compare import CompareOptions, compare
from covan_mlir.comparing.comparison import ActionComparison, Comparison
from covan_mlir.comparing.eager import Eager
from covan_mlir.comparing.source import captured_of
from covan_mlir.compilation.origin import Origin
from covan_mlir.provenance.model import Action, LineageData
from covan_mlir.runtime.compiled import CompiledModel

VALUES = "values"


def check_values(
    compiled: CompiledModel,
    origin: Origin | None,
    leaves: Sequence[Any],
    model: Any = None,
    arguments: tuple[tuple[Any, ...], Mapping[str, Any]] = ((), {}),
    options: CompareOptions | None = None,
    tell: Callable[[str], None] = lambda step: None,
) -> Check:
    """Every tensor of the program beside eager's, as `covan_mlir.comparing.compare.compare` observes them.

    Tensors that these arguments do not tell apart are named: where two are equal, a lineage that takes the one for the
    other is not found out.

    Args:
        As of `covan_mlir.comparing.compare.compare`.
    """
    start = time.perf_counter()
    options = options or CompareOptions()
    comparison = compare(compiled, origin, leaves, model, arguments, options, tell)
    captured, _ = captured_of(compiled, origin, model, arguments, options.attach, options.compiled_with)
    wrong = _wrong(comparison)
    missing = [f"{row.action.name}: {row.why}" for row in comparison.rows if row.status == "unobserved" and row.sites]
    missing += _alike(Eager(captured, leaves, options.tolerance).equal(), compiled.lineage)
    return Check(
        VALUES,
        "no" if wrong else "incomplete" if missing else "yes",
        related=sum(row.status in ("agrees", "inherited") for row in comparison.rows),
        counterexamples=tuple(wrong),
        missing=tuple(missing),
        seconds=time.perf_counter() - start,
    )


def _wrong(comparison: Comparison) -> list[Counterexample]:
    wrong = [_example(row) for row in comparison.rows if row.status in ("beyond", "crash")]
    if comparison.crash:
        wrong.append(Counterexample(VALUES, f"the program gives no results: {comparison.crash}"))
    if not comparison and not wrong:
        names = tuple(result.name for result in comparison.results if result.measured.beyond)
        wrong.append(Counterexample(VALUES, "results of the program as it is are not eager's", None, names))
    return wrong


def _example(row: ActionComparison) -> Counterexample:
    site = row.sites[0].id if row.sites else None
    action = row.action
    line = f", {action.line}" if action.line else ""
    off = "has no value, for the program crashes" if row.measured is None else f"is off by {row.measured.error.abs}"
    return Counterexample(VALUES, f"{action.name} ({action.op}{line}) {off}", site, (action.name,))


def _alike(groups: Sequence[Sequence[str]], lineage: LineageData) -> list[str]:
    """Tensors with the same values of which neither is computed from the other, and that are not known to be equal."""
    actions = {action.name: action for action in lineage.actions}
    known = {part.id: part.twin for part in lineage.parts.values()}
    behind: dict[int, set[int]] = {}
    for action in lineage.actions:
        behind[action.id] = {action.id}.union(*(behind.get(index, set()) for index in action.inputs))
    told: list[str] = []
    for group in groups:
        first, *others = (actions[name] for name in group if name in actions)
        for other in others:
            related = other.id in behind[first.id] or first.id in behind[other.id]
            if not related and not _twins(first, other, known):
                told.append(f"{first.name} and {other.name} have the same values: give arguments that tell them apart")
    return told


def _twins(one: Action, other: Action, twin: Mapping[int, int]) -> bool:
    if not one.parts or not other.parts:
        return True  # gone in decomposition: they are what others are
    return twin[one.parts[-1].id] == twin[other.parts[-1].id]
