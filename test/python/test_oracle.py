"""The oracle itself: what it must accept and what it must catch."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import pytest
import torch
from oracle import assert_same, depth_of, max_error, tolerance

Pair = namedtuple("Pair", "a b")
ONE = torch.ones(3)
NAN = torch.tensor([1.0, float("nan"), float("inf")])


@pytest.mark.parametrize(
    "value",
    [
        ONE,
        NAN,
        torch.zeros(0, 3),
        torch.tensor(True),
        torch.tensor([1 + 2j, 3j]),
        ONE.half(),
        (ONE, [ONE, None], {"k": 3}),
        Pair(ONE, "text"),
    ],
)
def test_same(value: Any) -> None:
    assert_same(value, value)


@pytest.mark.parametrize(
    ("actual", "expected", "message"),
    [
        (ONE, ONE.double(), "float32, not torch.float64"),
        (ONE, torch.ones(3, 1), "shape"),
        (ONE, 1.001 * ONE, "3 of 3 elements"),
        (ONE, NAN, "disagree on NaN"),
        (torch.tensor([1.0, float("nan"), -float("inf")]), NAN, r"\+inf"),
        ((ONE, ONE), [ONE, ONE], "tuple, not a list"),
        (Pair(ONE, ONE), (ONE, ONE), "Pair, not a tuple"),
        ({"a": ONE}, {"b": ONE}, "structure"),
        ({"a": (ONE, ONE + 1)}, {"a": (ONE, ONE)}, r"result\['a'\]\[1\]"),
        (torch.tensor([1, 2]), torch.tensor([1, 3]), r"first at \(1,\)"),
        ((1,), (1.0,), "int, not a float"),
        (torch.tensor([1 + 2j]), torch.tensor([1 - 2j]), "elements are off"),
        (torch.tensor(5), torch.tensor(6), "1 elements differ"),
    ],
)
def test_different(actual: Any, expected: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        assert_same(actual, expected)


def test_tolerance_follows_the_type_and_the_depth() -> None:
    assert tolerance(torch.int64) == 0
    assert tolerance(torch.float16) > 1000 * tolerance(torch.float32)
    off = ONE * (1 + 3e-6)
    assert_same(off, ONE, depth=10)
    with pytest.raises(AssertionError):
        assert_same(off, ONE)


def test_cancelled_elements_carry_the_error_of_the_tensor() -> None:
    assert_same(torch.tensor([1.0, 2e-7]), torch.tensor([1.0, 0.0]))


def test_depth_is_the_longest_path() -> None:
    class Two(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.sin().cos().exp() + x.neg()

    assert depth_of(torch.export.export(Two(), (ONE,))) == 4


def test_max_error() -> None:
    assert max_error((ONE, NAN), (ONE + 0.5, NAN)) == 0.5
