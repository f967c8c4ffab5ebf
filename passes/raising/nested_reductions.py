"""A reduction of nothing but another reduction's results, as one over the axes of both."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import inf

from covan_mlir.fred.chain import Combine, Reduce, Step
from covan_mlir.fred.expression import Const, Read, reads

_NEUTRAL: Mapping[Combine, float | bool] = {
    "add": 0,
    "mul": 1,
    "max": -inf,
    "min": inf,
    "maxnum": -inf,
    "minnum": inf,
    "and": True,
    "or": False,
}


def unnested(
    steps: Sequence[Step], outputs: Collection[str], sources: Mapping[str, frozenset[int]], order: Sequence[str]
) -> tuple[list[Step], dict[str, frozenset[int]]]:
    """Steps without the reductions that only others of the same kind read: torch takes a maximum over several axes one
    by one. What starts with the neutral element may be combined in any order, a sum as it is in every kernel.

    Args:
        sources: of each step.
        order: the axes that are reduced, those of inputs as these have them.

    Returns:
        The steps, and their sources.
    """
    result, merged_sources = list(steps), dict(sources)
    for inner in [step for step in steps if isinstance(step, Reduce)]:
        readers = [step for step in result if inner.name in reads(step.expr)]
        if len(readers) != 1 or inner.name in outputs or not neutral(inner.combine, inner.initial):
            continue
        (outer,) = readers
        alike = isinstance(outer, Reduce) and (outer.combine, outer.dtype) == (inner.combine, inner.dtype)
        if not alike or not isinstance(outer, Reduce) or outer.expr != Read(inner.name, inner.dtype):
            continue
        inner = next(step for step in result if isinstance(step, Reduce) and step.name == inner.name)
        over = sorted({*outer.over, *inner.over}, key=order.index)
        result[result.index(outer)] = replace(outer, over=tuple(over), expr=inner.expr)
        result.remove(inner)
        merged_sources[outer.name] |= merged_sources.pop(inner.name)
    return result, merged_sources


def neutral(combine: Combine, initial: Const) -> bool:
    """Whether a reduction starts with what changes nothing."""
    return bool(initial.value == _NEUTRAL[combine])
