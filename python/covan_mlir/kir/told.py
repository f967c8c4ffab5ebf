"""What an operator says of itself: as data, for attributes and JSON, and as a line for people."""

from __future__ import annotations

from typing import Any

from covan_mlir.fred.formulas import position
from covan_mlir.kir.operators import ACCUMULATOR, Factor, Operator, Requantization

ROUNDING = "half_even"
"""How real numbers are rounded to steps."""


def told(operator: Operator) -> dict[str, Any]:
    """As JSON values, but for the kind."""
    results = [_result(one) for one in operator.results]
    if (sums := operator.contraction) is None:
        return {"results": results}
    return {
        "first": _factor(sums.first),
        "second": _factor(sums.second),
        "accumulator": ACCUMULATOR,
        "scales": list(sums.scales),
        "results": results,
    }


def line(operator: Operator) -> str:
    """In one line."""
    texts = []
    if (sums := operator.contraction) is not None:
        factors = " times ".join(map(_steps, (sums.first, sums.second)))
        scales = "".join(f" * {scale}" for scale in sums.scales)
        texts.append(f"{factors}, in {ACCUMULATOR}{scales}")
    texts += [
        f"result {number} in steps {steps.least} to {steps.largest}, of which {steps.zero} is 0"
        for number, steps in enumerate(operator.results)
        if steps is not None
    ]
    return f"{operator.kind}: {'; '.join(texts)}" if texts else operator.kind


def _steps(factor: Factor) -> str:
    zero = f" - {factor.zero}" if factor.zero else ""
    return f"({'i8' if factor.signed else 'u8'} {factor.name}{zero})"


def _factor(factor: Factor) -> dict[str, Any]:
    known = {
        "name": factor.name,
        "signed": factor.signed,
        "zero": factor.zero,
        "at": [position(at) for at in factor.at],
    }
    return known if factor.outside is None else {**known, "outside": factor.outside}


def _result(steps: Requantization | None) -> dict[str, Any]:
    if steps is None:
        return {}
    return {
        "scale" if steps.divided else "inverse": steps.factor,
        "zero": steps.zero,
        "least": steps.least,
        "largest": steps.largest,
        "rounding": ROUNDING,
    }
