"""A seeded sample of the sweep over torch's own samples (`bench/operators.py`), and what it makes of them."""

from __future__ import annotations

import math
import random
import sys
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import operators
import opinfo_samples
from operators_table import counts, page
from opinfo_samples import DTYPES, Judged, Key, Outcome, Record

COMMON = (
    "abs", "add", "amax", "cat", "clamp", "cumsum", "flip", "gather", "index_select", "maximum", "permute", "prod",
    "roll", "sign", "sort", "sum", "tril", "unsqueeze", "where", "isnan", "logical_and", "nn.functional.relu", "eq",
    "expand",
)  # fmt: skip
"""Of these some are drawn for each dtype."""


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_few_operators_of_each_dtype(dtype: str) -> None:
    draw = random.Random(dtype)
    names = draw.sample([op for op in COMMON if opinfo_samples.takes(op, dtype)], 4)
    counted = {op: len(opinfo_samples.samples(op, dtype)) for op in names}
    keys = [
        Key(op, dtype, index) for op, count in counted.items() for index in draw.sample(range(count), min(3, count))
    ]
    verdicts = opinfo_samples.judged(keys)
    assert isinstance(verdicts, list), verdicts
    assert [verdict for verdict in verdicts if verdict.outcome != "agrees"] == []


def test_what_cannot_be_compared_is_told_apart() -> None:
    assert [v.outcome for v in opinfo_samples.judged([Key("bernoulli", "f32", 1)])] == ["random"]
    assert [v.outcome for v in opinfo_samples.judged([Key("equal", "f32", 0)])] == ["not exported"]
    (refused,) = opinfo_samples.judged([Key("linalg.ldl_factor_ex", "f32", 0)])
    assert refused.outcome == "refused"
    assert "no lowering" in refused.reason


def test_wrong_values_are_seen() -> None:
    (key,) = [Key("sin", "f32", 0)]
    (sample,) = opinfo_samples.samples("sin", "f32")
    right = sample.call(sample.copies())
    with mock.patch.object(opinfo_samples, "_compiled", return_value=[right + 1e-3]):
        (verdict,) = opinfo_samples.judged([key])
    assert verdict.outcome == "differs"
    assert "Tensor-likes are not close" in verdict.reason
    with mock.patch.object(opinfo_samples, "_compiled", return_value=[right.double()]):
        assert opinfo_samples.judged([key])[0].outcome == "differs"


def test_places_of_equal_elements_are_as_good_as_eagers() -> None:
    """All elements of the first sample are equal, and its sort need not be stable."""
    key, (sample, *_) = Key("argsort", "bool", 0), opinfo_samples.samples("argsort", "bool")
    for elements, outcome in (([1] * 8, "agrees"), ([1, 0] * 4, "differs")):
        x = torch.tensor(elements, dtype=torch.bool)
        for places in (torch.arange(8).flip(0), torch.zeros(8, dtype=torch.int64)):
            with (
                mock.patch.object(opinfo_samples, "samples", return_value=[replace(sample, tensors=(x,))]),
                mock.patch.object(opinfo_samples, "_compiled", return_value=[places]),
            ):
                assert opinfo_samples.judged([key])[0].outcome == (
                    outcome if len(set(places.tolist())) > 1 else "differs"
                )


class Lists(operators.Judge):
    """Judges without compiling: ``bad`` samples are refused, alone, and fail a program that they are in."""

    def __init__(self, bad: set[Key]) -> None:
        self.bad, self.programs = bad, 0

    def ask(self, keys: list[Key]) -> list[Judged] | opinfo_samples.Suspect:
        self.programs += 1
        if not self.bad.intersection(keys):
            return [Judged(key, "agrees") for key in keys]
        return [Judged(keys[0], "refused", "why")] if len(keys) == 1 else opinfo_samples.Suspect()

    def end(self) -> None:
        pass


def swept(tmp_path: Path, bad: set[Key], most: int = 10**6) -> tuple[dict[str, Record], int]:
    judge = Lists(bad)
    with mock.patch.object(operators, "Judge", return_value=judge):
        work = operators.chunks(["cat", "sort", "sin"], ["f32"], set(), most)
        operators.Sweep(tmp_path, float("inf"), most).run(work)
    return {record.op: record for record in operators.recorded(tmp_path)}, judge.programs


def test_a_program_that_fails_is_split_until_it_is_known_which_samples_do(tmp_path: Path) -> None:
    bad = {Key("sort", "f32", 5), Key("cat", "f32", 0)}
    records, _ = swept(tmp_path, bad)
    assert {verdict.key for record in records.values() for verdict in record.apart} == bad
    assert {op: record.samples for op, record in records.items()} == {
        op: len(opinfo_samples.samples(op, "f32")) for op in ("cat", "sin", "sort")
    }


def test_some_samples_of_each_operator_lie_far_apart(tmp_path: Path) -> None:
    count = len(opinfo_samples.samples("sort", "f32"))
    records, _ = swept(tmp_path, {Key("sort", "f32", count - 1)}, most=2)
    assert [verdict.key.sample for verdict in records["sort"].apart] == [count - 1]
    assert (records["sort"].samples, records["sort"].of) == (2, count)
    assert (records["sin"].samples, records["sin"].of) == (1, 1)
    assert f"| sort | f32 | 2 of {count} | 1 of 2 | 1 of 2 | why (1) |" in page(list(records.values()), operators.ALIKE)


def test_signs_of_singular_vectors_are_free() -> None:
    key = Key("linalg.svd", "f64", 0)
    sample = opinfo_samples.samples("linalg.svd", "f64")[0]
    u, values, v = torch.linalg.svd(torch.tensor([[3.0, 1], [1, 2], [0, 1]], dtype=torch.float64))
    signs = torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64)
    for given, outcome in (
        ((u * signs, values, v * signs[:2, None]), "agrees"),
        ((u * signs, values, v), "differs"),
        ((u * 2, values, v / 2), "differs"),
    ):
        with (
            mock.patch.object(opinfo_samples.Sample, "call", return_value=(u, values, v)),
            mock.patch.object(opinfo_samples, "samples", return_value=[sample]),
            mock.patch.object(opinfo_samples, "_compiled", return_value=[given]),
        ):
            assert opinfo_samples.judged([key])[0].outcome == outcome


def test_what_fails_alike_is_not_tried_to_the_end(tmp_path: Path) -> None:
    count = len(opinfo_samples.samples("sort", "f32"))
    records, programs = swept(tmp_path, {Key("sort", "f32", index) for index in range(count)})
    assert len(records["sort"].apart) == count
    assert programs < count / 2


def test_the_page_counts_what_was_recorded() -> None:
    def record(op: str, dtype: str, *apart: Outcome) -> Record:
        verdicts = tuple(Judged(Key(op, dtype, index), outcome, "because") for index, outcome in enumerate(apart))
        return Record(op, dtype, 4, verdicts, 4)

    records = [
        record("first", "f32"),
        record("first", "i64"),
        record("second", "f32", "refused", "differs"),
        record("third", "f32", "not exported", "random"),
    ]
    assert counts(records[2]) == {"agrees": 2, "refused": 1, "differs": 1}
    text = page(records, 4)
    assert "| f32 | 3 | 3 | 2 (66.7 %) | 12 | 10 | 8 | 1 | 1 | 0 |" in text
    assert "| first | f32 i64 | 4 | yes | yes |  |" in text
    assert "| second | f32 | 4 | 3 of 4 | 2 of 4 | because (1); differs: because (1) |" in text


@pytest.mark.parametrize(
    ("exact", "eager", "given", "near"),
    [
        ([1e6, 1.0], [1e6 + 1, 1.0], [1e6 + 2, 1.0], True),
        ([1e6, 1.0], [1e6 + 1, 1.0], [1e6, 2.5], False),  # far off where eager is not
        ([8.0, 9.0], [8.5, 9.0], [8.0, 9.9], True),  # as eager is at a number of this size
        ([math.inf, 1.0], [math.inf, 1.0], [-math.inf, 1.0], False),
        ([math.nan, 1.0], [3.0, 1.0], [7e9, 1.0], False),
        ([math.nan, 1.0], [3.0, 1.0], [3.0, 1.0], True),
        ([5.0, 1.0], [math.inf, 1.0], [5.0, 1.0], True),  # eager overflowed on its way
        ([5.0, 1.0], [5.0, 1.0], [math.nan, 1.0], False),
    ],
)
def test_elements_are_judged_one_by_one(exact: list[float], eager: list[float], given: list[float], near: bool) -> None:
    judged = opinfo_samples._near(torch.tensor(exact, dtype=torch.float64), torch.tensor(eager), torch.tensor(given))
    assert bool(judged.all()) == near


def test_rows_that_were_not_swept_stay() -> None:
    """Of an operator that was swept in one dtype, the row of the others stays; totals are those of whole sweeps."""
    before = page([operators.Record(op, dtype, 3, (), 3) for op in ("abs", "sin") for dtype in ("f32", "i64")], 4)
    assert page([], 4, before) == before
    after = page([operators.Record("sin", "i64", 5, (), 5)], 4, before)
    rows = [line for line in after.splitlines() if line.startswith(("| abs", "| sin", "| f32", "| i64"))]
    totals = [line for line in before.splitlines() if line.startswith(("| f32", "| i64"))]
    assert rows == [
        *totals,
        "| abs | f32 i64 | 3 | yes | yes |  |",
        "| sin | f32 | 3 | yes | yes |  |",
        "| sin | i64 | 5 | yes | yes |  |",
    ]
    assert page([operators.Record("sin", "i64", 3, (), 3)], 4, after) == before  # rows that say the same are one
