"""A call runs the version whose sizes are those of its arguments."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covan_mlir.artifacts.pytree import LEAF, Tree
from covan_mlir.artifacts.schema import SizeRange
from covan_mlir.artifacts.signature import Leaf, Signature
from covan_mlir.runtime.contract import ContractError
from covan_mlir.runtime.size_guard import SizeGuard

SIGNATURE = Signature(
    Tree("tuple", (Tree("tuple", (LEAF,) * 3), Tree("dict", ()))),
    LEAF,
    (Leaf("scalar", "int"), Leaf("tensor", "float32", (3, "s0")), Leaf("tensor", "float32", ("s1", "s0", 2))),
    (),
)
SIZE = st.integers(0, 12)
RANGE = st.tuples(SIZE, st.one_of(st.none(), SIZE)).map(lambda row: row if row[1] is None else (min(row), max(row)))
VERSION = st.dictionaries(st.sampled_from(["s0", "s1"]), RANGE, min_size=1)


def holds(version: dict[str, tuple[int, int | None]], sizes: dict[str, int]) -> bool:
    return all(low <= sizes[name] and (high is None or sizes[name] <= high) for name, (low, high) in version.items())


@given(st.lists(VERSION, min_size=1, max_size=6), st.lists(st.tuples(SIZE, SIZE), min_size=1, max_size=8))
def test_sizes_go_to_a_version_that_holds_them(
    rows: list[dict[str, tuple[int, int | None]]], calls: list[tuple[int, int]]
) -> None:
    guard = SizeGuard(SIGNATURE, [[SizeRange(name, name, *row) for name, row in each.items()] for each in rows])
    for s0, s1 in calls * 2:  # the second time they are remembered
        number = guard([1, np.empty((3, s0)), np.empty((s1, s0, 2))])
        fitting = [place for place, row in enumerate(rows) if holds(row, {"s0": s0, "s1": s1})]
        assert (number in fitting) if fitting else number is None


def test_the_smallest_range_wins() -> None:
    rows = [(1, None), (2, 9), (4, 4)]
    guard = SizeGuard(SIGNATURE, [[SizeRange("n", "s0", *row)] for row in rows])
    assert [guard([1, np.empty((3, size)), None]) for size in (4, 5, 10, 0)] == [2, 1, 0, None]


def test_what_has_no_such_size_is_the_general_programs() -> None:
    guard = SizeGuard(SIGNATURE, [[SizeRange("n", "s0", 1, 4)]])
    assert [guard([1, value, None]) for value in (3.0, np.empty(3), "text")] == [None] * 3
    assert guard([]) is None


def test_versions_differ_in_a_size_of_an_argument() -> None:
    with pytest.raises(ContractError, match="no argument has the size"):
        SizeGuard(SIGNATURE, [[SizeRange("n", "s7", 1, 4)]])
