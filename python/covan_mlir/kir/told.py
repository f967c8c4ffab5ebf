"""What an operator says of itself: as data, for attributes and JSON, and as a line for people."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.expression import Affine, Window
from covan_mlir.fred.formulas import position
from covan_mlir.kir.operators import Dequantization, Factor, Number, Operator, Requantization

ROUNDING = "half_even"
"""How real numbers are rounded to steps."""
TOLD = ("operands", "first", "second", "accumulator", "scales", "over", "mode", "table", "results")
"""All that an operator may say of itself."""


def told(operator: Operator, chain: Chain) -> dict[str, Any]:
    """As JSON values, but for the kind: what there is to say, by the names in `TOLD`; results always are."""
    sums = operator.contraction
    said: dict[str, Any] = {
        "operands": [_operand(one, chain) for one in operator.operands],
        "first": None if sums is None else _factor(sums.first),
        "second": None if sums is None else _factor(sums.second),
        "accumulator": operator.accumulator,
        "over": list(operator.over),
        "mode": operator.mode,
        "table": list(operator.table),
    }
    said = {name: value for name, value in said.items() if value}
    if sums is not None:
        said["scales"] = list(sums.scales)
    return {**said, "results": [_result(one, chain) for one in operator.results]}


def line(operator: Operator) -> str:
    """In one line."""
    texts = [*_read(operator), *_given(operator)]
    over = f" {operator.mode}" * bool(operator.mode) + f" over {', '.join(operator.over)}" * bool(operator.over)
    return f"{operator.kind}{over}: {'; '.join(texts)}" if texts else f"{operator.kind}{over}"


def _read(operator: Operator) -> Iterator[str]:
    if (sums := operator.contraction) is not None:
        factors = " times ".join(_steps(one.name, one.signed, one.zero) for one in (sums.first, sums.second))
        scales = "".join(f" * {scale}" for scale in sums.scales)
        yield f"{factors}, in {operator.accumulator}{scales}"
    for one in operator.operands:
        yield f"{_steps(one.name, one.signed, one.zero)} * {one.scale}"


def _given(operator: Operator) -> Iterator[str]:
    if operator.table:
        yield f"by a table of {len(operator.table)} steps"
    for number, steps in enumerate(operator.results):
        if steps is not None:
            told_of = f"result {number} in steps {steps.least} to {steps.largest}, of which {steps.zero} is 0"
            yield told_of if steps.again is None else f"{told_of}, as the numbers that they stand for"


def _steps(name: str, signed: bool, zero: int | str) -> str:
    return f"({'i8' if signed else 'u8'} {name}{f' - {zero}' if zero else ''})"


def _factor(factor: Factor) -> dict[str, Any]:
    known = {"name": factor.name, "signed": factor.signed, "zero": factor.zero, "at": _positions(factor.at)}
    return known if factor.outside is None else {**known, "outside": factor.outside}


def _positions(at: tuple[Affine, ...]) -> list[str]:
    return [position(one) for one in at]


def _operand(one: Dequantization, chain: Chain) -> dict[str, Any]:
    known = {"name": one.name, "signed": one.signed, "zero": one.zero, "scale": one.scale}
    known |= _along([one.zero, one.scale], chain)
    if isinstance(one.steps, Window):
        known |= {"at": _positions(one.steps.at), "outside": int(one.steps.outside.value)}
    return known


def _result(steps: Requantization | None, chain: Chain) -> dict[str, Any]:
    if steps is None:
        return {}
    known: dict[str, Any] = {
        "scale" if steps.divided else "inverse": steps.factor,
        "zero": steps.zero,
        "least": steps.least,
        "largest": steps.largest,
        "rounding": ROUNDING,
        **_along([steps.zero, steps.factor], chain),
    }
    if (again := steps.again) is not None:
        known["again"] = {"signed": again.signed, "zero": again.zero, "scale": again.scale}
    return known


def _along(numbers: list[Number], chain: Chain) -> dict[str, Any]:
    """The axes along which numbers differ (per channel); nothing where each is one number."""
    axes = [axis for number in numbers if isinstance(number, str) for axis in chain.values[number].axes]
    return {"axis": list(dict.fromkeys(axes))} if axes else {}
