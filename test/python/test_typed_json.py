"""JSON as types: what is of another form is refused with its place; what JSON cannot say survives."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covan_mlir.comparing import exchange
from covan_mlir.comparing.exchange import PlainValue, TensorFile
from covan_mlir.support.typed_json import (
    Amount,
    Constant,
    JsonObject,
    Natural,
    SchemaError,
    checked,
    constant,
    convert,
    decode,
    dumps,
    scalar,
)


class Leaf(JsonObject, frozen=True):
    value: Constant
    size: Natural = 0


class Whole(JsonObject, frozen=True):
    leaves: tuple[Leaf, ...]
    amount: Amount


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"leaves": [{"value": [1]}], "amount": 1}', "x.json: .*got `array` - at `$.leaves[0].value`"),
        ('{"leaves": [{"value": 1, "size": -1}], "amount": 1}', "`int` >= 0 - at `$.leaves[0].size`"),
        ('{"leaves": [{"value": 1, "size": true}], "amount": 1}', "got `bool` - at `$.leaves[0].size`"),
        ('{"leaves": [{"value": 1, "size": 1.0}], "amount": 1}', "got `float` - at `$.leaves[0].size`"),
        ('{"leaves": [{"value": {"float": "1"}}], "amount": 1}', "none of inf, -inf and nan - at `$.leaves[0].value`"),
        ('{"leaves": [{"value": 1, "colour": 2}], "amount": 1}', "unknown field `colour` - at `$.leaves[0]`"),
        ('{"leaves": []}', "missing required field `amount`"),
        ('{"leaves": [], "amount": -0.5}', ">= 0.0 - at `$.amount`"),
        ('{"leaves": [], "amount": NaN}', "x.json: it is not JSON: NaN is no finite number"),
        ('{"leaves": [], "amount": 1e999}', "x.json: "),
        ('{"leaves": [', "x.json: it is not JSON"),
        ("[" * 100_000, "x.json: "),
    ],
)
def test_other_forms_are_refused_with_their_place(text: str, problem: str) -> None:
    with pytest.raises(SchemaError) as info:
        decode(text.encode(), Whole, "x.json")
    start, _, end = problem.partition(".*")
    assert start in str(info.value)
    assert end in str(info.value)


@given(st.integers() | st.floats() | st.text(st.characters(exclude_categories=())) | st.booleans() | st.none())
def test_constants_come_back(value: Any) -> None:
    """Of any size, finite or not, with lone surrogates (paths that are no UTF-8 have them)."""
    back = scalar(decode(dumps(Leaf(constant(value)).to_json()), Leaf).value)
    assert type(back) is type(value)
    assert back == value or (math.isnan(back) and math.isnan(value))


def test_numbers_stay_as_they_were_written() -> None:
    for text in ('{"leaves":[],"amount":3}', '{"leaves":[],"amount":3.0}'):
        assert dumps(decode(text, Whole).to_json()).decode() == text


def test_what_a_process_put_together_is_checked_as_what_it_reads() -> None:
    whole = Whole((Leaf(1),), 2.5)
    assert checked(whole, "x") == whole == convert(whole.to_json(), Whole) == Whole.from_json(whole.to_json())
    wrong: Any
    for wrong in (Leaf(object()), Leaf({1: 2}), Leaf([math.inf]), Leaf(1, -1)):  # type: ignore[arg-type]
        with pytest.raises(SchemaError):
            checked(Whole((wrong,), 1), "x")


def test_values_for_another_process(tmp_path: Path) -> None:
    values = (*(PlainValue(constant(v)) for v in (1, 2.5, -math.inf, True, None, "a")), TensorFile("a", "int8", (2,)))
    exchange.write(tmp_path / "values.json", values)
    assert exchange.read(tmp_path / "values.json") == values
    (tmp_path / "values.json").write_text(json.dumps({"values": [{"kind": "file"}]}))
    with pytest.raises(SchemaError, match=r"values\.json: .*\$\.values\[0\]"):
        exchange.read(tmp_path / "values.json")
