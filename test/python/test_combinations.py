"""The order in which the checker tries which constant of a kernel is which of the model."""

from __future__ import annotations

from itertools import product

import pytest

from covan_mlir.checking.choices import combinations
from covan_mlir.provenance.arguments import Operand

Ways = list[tuple[Operand, None]]


def ways(*names: int) -> Ways:
    return [(("p", name), None) for name in names]


def test_the_first_takes_none_twice() -> None:
    """However many have the same choices: this would take for ever if all were tried in their order."""
    first = next(combinations([ways(*range(14))] * 14))
    assert [operand[1] for operand, _ in first] == list(range(14))


def test_what_has_one_choice_has_it_first() -> None:
    assert next(combinations([ways(0, 1), ways(0)])) == (*ways(1), *ways(0))


def test_one_is_taken_twice_if_there_are_too_few() -> None:
    first = next(combinations([ways(*range(5))] * 6))
    assert len(set(first)) == 5


@pytest.mark.parametrize("choices", [[], [ways(0)], [ways(0, 1, 2)] * 3, [ways(0, 1), ways(1, 2, 3), ways(2)]])
def test_all_come_once(choices: list[Ways]) -> None:
    every = list(combinations(choices))
    assert len(every) == len(set(every))
    assert set(every) == set(product(*choices))
