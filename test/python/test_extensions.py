"""What the check takes IREE's own operations for: prefix reductions and scatters, at once or number by number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from covan_mlir.checking.extensions import extension
from covan_mlir.checking.tensors import Held
from covan_mlir.provenance.bodies import Block, Operation

FIRST = 3
"""Number of the first value of a block: behind three operands."""


def block(name: str | None) -> tuple[Block, ...]:
    """One that combines its two numbers, or gives the first one."""
    last = Operation("iree_linalg_ext.yield", (FIRST if name is None else FIRST + 2,))
    combine = () if name is None else (Operation(name, (FIRST, FIRST + 1), ("f64",)),)
    return (Block(("f64", "f64"), (*combine, last)),)


def results(operation: Operation, *operands: Any) -> list[Any]:
    """All elements of each result."""
    values = [Held(np.asarray(operand)) for operand in operands]
    given = extension(operation, values, FIRST, dict(enumerate(values)))
    assert given is not None
    return [tensor.all().tolist() for tensor in given]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (None, [[0.0, 0.0], [3.0, 4.0], [0.0, 0.0], [5.0, 6.0]]),  # of two for one place, the last one stays
        ("arith.addf", [[0.0, 0.0], [4.0, 6.0], [0.0, 0.0], [5.0, 6.0]]),
        ("arith.subf", [[0.0, 0.0], [2.0, 2.0], [0.0, 0.0], [5.0, 6.0]]),  # what is there is taken from what is new
    ],
)
def test_scatters_write_in_order_and_nowhere_outside(name: str | None, expected: list[list[float]]) -> None:
    operation = Operation("iree_linalg_ext.scatter", (0, 1, 2), ("f64[4, 2]",), {"dimension_map": [0]}, block(name))
    updates = [[1.0, 2.0], [3.0, 4.0], [9.0, 9.0], [9.0, 9.0], [5.0, 6.0]]
    assert results(operation, updates, [[1], [1], [4], [-1], [3]], np.zeros((4, 2))) == [expected]


def test_scatters_write_boxes_that_begin_at_several_places() -> None:
    attributes = {"dimension_map": [1, 0]}
    operation = Operation("iree_linalg_ext.scatter", (0, 1, 2), ("f64[2, 3]",), attributes, block(None))
    box = [[[1.0, 2.0]], [[3.0, 4.0]]]
    whole = results(operation, box, [[1, 0], [2, 1]], np.zeros((2, 3)))  # the second box would end outside
    assert whole == [[[0.0, 1.0, 2.0], [0.0, 0.0, 0.0]]]


@pytest.mark.parametrize(
    ("name", "inclusive", "expected", "total"),
    [
        ("arith.addf", True, [3.0, 5.0, 9.0], 9.0),
        ("arith.addf", False, [1.0, 3.0, 5.0], 9.0),
        ("arith.subf", True, [-1.0, -3.0, -7.0], -7.0),
    ],
)
def test_scans_begin_with_what_is_there(name: str, inclusive: bool, expected: list[float], total: float) -> None:
    attributes = {"dimension": 0, "inclusive": inclusive}
    operation = Operation("iree_linalg_ext.scan", (0, 1, 2), ("f64[3]", "f64"), attributes, block(name))
    assert results(operation, [2.0, 2.0, 4.0], np.zeros(3), 1.0) == [expected, total]
