"""Operators of torch's at single positions: what eager gives there, and no more is computed than that takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from covan_mlir.checking.applied import applied, array_of
from covan_mlir.checking.layouts import Order, layouts, placements, spread
from covan_mlir.checking.slices import inputs_of
from covan_mlir.checking.tensors import Direct, Held, UnevaluatedError, limited
from covan_mlir.checking.tensors import Tensor as Lazy
from covan_mlir.fred.scalars import Array
from covan_mlir.provenance.arguments import Operand
from covan_mlir.provenance.bodies import Block, Body, Operation
from covan_mlir.provenance.model import Part

aten = torch.ops.aten


def _normal(*sizes: int) -> Tensor:
    return torch.randn(*sizes, dtype=torch.float64)


def _bound(args: Sequence[Any], values: Mapping[Operand, Any]) -> tuple[list[Any], dict[str, Any]]:
    def real(item: Any) -> Any:
        if isinstance(item, list):
            return [real(inner) for inner in item]
        return values[item] if isinstance(item, tuple) else item

    return [real(item) for item in args], {}


def _lazily(function: Any, args: Sequence[Any]) -> tuple[Any, Any]:
    """The result by position, and eager's. Tensors among the arguments are operands."""
    operands: dict[Operand, Tensor] = {}

    def numbered(item: Any) -> Any:
        if isinstance(item, list):
            return [numbered(inner) for inner in item]
        if not isinstance(item, Tensor):
            return item
        operands["a", len(operands)] = item
        return ("a", len(operands) - 1)

    call = [numbered(arg) for arg in args]
    values: dict[Operand, Any] = {operand: Held(array_of(tensor)) for operand, tensor in operands.items()}
    part = Part(0, 0, str(function), str(function), (), ())
    return applied(part, function, partial(_bound, call), values, {}), function(*args)


CALLS: dict[str, tuple[Any, list[Any]]] = {
    "rows and columns by indices": (
        aten.index.Tensor,
        [_normal(3, 48, 47, 5), [None, torch.randint(-48, 48, (7, 1)), torch.randint(0, 47, (9,))]],
    ),
    "indices that are no neighbours": (
        aten.index.Tensor,
        [_normal(6, 8, 30), [torch.tensor([3, -1, 0, 2]), None, torch.randint(-30, 30, (5, 4))]],
    ),
    "an index without dimensions": (aten.index.Tensor, [_normal(6, 80), [torch.tensor(4), torch.arange(0, 80, 3)]]),
    "rows": (aten.index_select.default, [_normal(9, 60, 3), -2, torch.randint(0, 60, (31,))]),
    "gathered": (aten.gather.default, [_normal(9, 60), 1, torch.randint(0, 60, (8, 40))]),
    "padded and cut": (aten.constant_pad_nd.default, [_normal(5, 16, 17), [2, -3, -1, 4, 0, 1], 2.5]),
    "element by element": (aten.add.Tensor, [_normal(9, 1, 40), _normal(30, 40)]),
    "a view": (aten.permute.default, [_normal(7, 8, 9), [2, 0, 1]]),
    "a piece": (aten.slice.Tensor, [_normal(20, 30), 1, 3, 29, 4]),
    "product": (aten.mm.default, [_normal(30, 17), _normal(17, 40)]),
    "products": (aten.bmm.default, [_normal(5, 12, 7), _normal(5, 7, 20)]),
    "product and sum": (aten.addmm.default, [_normal(40), _normal(30, 17), _normal(17, 40)]),
    "convolution": (
        aten.convolution.default,
        [_normal(2, 6, 40, 37), _normal(8, 3, 3, 2), _normal(8), [2, 1], [1, 2], [1, 3], False, [0, 0], 2],
    ),
    "rows of a table": (aten.embedding.default, [_normal(50, 20), torch.randint(0, 50, (6, 7))]),
    "pieces": (aten.cat.default, [[_normal(5, 30), _normal(9, 30), _normal(1, 30)], 0]),
    "softmax": (aten._softmax.default, [_normal(12, 9, 11), 1, False]),
    "sum": (aten.sum.dim_IntList, [_normal(30, 5, 40), [1], True]),
    "maximum and place": (aten.max.dim, [_normal(60, 9), 1]),
    "running sum": (aten.cumsum.default, [_normal(40, 9), 1]),
    "several pieces": (aten.split_with_sizes.default, [_normal(30, 10), [4, 6], 1]),
    "another operator": (aten.sort.default, [_normal(40, 9)]),
    "one number": (aten.full_like.default, [_normal(40, 9), 2.5]),
}


@pytest.mark.parametrize("name", CALLS)
def test_elements_are_those_of_eager(name: str) -> None:
    torch.manual_seed(0)
    got, want = _lazily(*CALLS[name])
    pairs = zip(got, want, strict=True) if isinstance(got, list) else [(got, want)]
    for lazy, tensor in pairs:
        expected = array_of(tensor).reshape(-1)
        assert lazy.shape == tuple(tensor.shape)
        some = spread(lazy.size, 5, seed=1)
        np.testing.assert_allclose(lazy.at(some), expected[some], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(lazy.all().reshape(-1), expected, rtol=1e-12, atol=1e-12)


def test_only_what_is_asked_for_is_computed() -> None:
    """A row and a column of matrices that would not fit into memory."""
    asked = 0

    def elements(flat: Array) -> Array:
        nonlocal asked
        asked += flat.size
        return np.ones(flat.shape)

    huge = Direct((1 << 20, 1 << 10), np.dtype(np.float64), elements)
    other = Direct((1 << 10, 1 << 20), np.dtype(np.float64), elements)
    values: dict[Operand, Any] = {("a", 0): huge, ("a", 1): other}
    part = Part(0, 0, "mm", "aten.mm.default", (), ())
    product = applied(part, aten.mm.default, partial(_bound, [("a", 0), ("a", 1)]), values, {})
    with limited(1 << 16):
        assert product.at(np.array([1 << 35]))[0] == 1 << 10
        assert asked == 2 << 10
        with pytest.raises(UnevaluatedError, match=r"aten\.mm\.default.*more work"):
            product.at(np.arange(1 << 16) * ((1 << 20) + 1))


def test_values_are_computed_once() -> None:
    for size in (1 << 10, 1 << 20):
        seen: list[int] = []

        def compute(index: tuple[Array, ...], seen: list[int] = seen) -> Array:
            seen.extend(index[0].tolist())
            return index[0] * 2.0

        tensor = Lazy((size,), np.dtype(np.float64), compute)
        for asked in ([5, 3, 5], [3, 900], [900, 7, 5]):
            assert tensor.at(np.array(asked)).tolist() == [2.0 * place for place in asked]
        assert sorted(seen) == [3, 5, 7, 900]


def test_orders() -> None:
    value = np.arange(24.0).reshape(2, 3, 4)
    transposed = np.ascontiguousarray(value.transpose(2, 0, 1)).reshape(-1)
    assert any(
        order is not None and (value.reshape(-1)[order.at(np.arange(24))] == transposed).all()
        for order in layouts((2, 3, 4), (4, 6))
    )
    there = Order.strided((4, 6), (1, 4))
    back = Order.strided((6, 4), (1, 6))
    assert not there.plain
    assert there.through(back).plain
    first, last = placements((2, 3), (2, 5))
    assert first.at(np.arange(10)).tolist() == [0, 1, 2, -1, -1, 3, 4, 5, -1, -1]
    assert last.at(np.arange(10)).tolist() == [-1, -1, 0, 1, 2, -1, -1, 3, 4, 5]


def test_results_of_one_body_depend_on_inputs_of_their_own() -> None:
    operations = (Operation("math.exp", (0,), ("f32[4]",)), Operation("arith.addf", (1, 3), ("f32[4]",)))
    body = Body(("f32[4]", "f32[4]", "f32[4]"), operations, (3, 4, 2))
    assert [inputs_of(body, result) for result in range(3)] == [{0}, {0, 1}, {2}]


def test_results_of_one_loop_depend_on_inputs_of_their_own() -> None:
    """Of values 6 to 10, the block's arguments, two are what is read and three what is written; the maximum is made of
    the first input, its place of both that and the maximum so far, and the last result of the second input alone."""
    yielded = (
        Operation("arith.maximumf", (6, 8), ("f32",)),
        Operation("arith.cmpf:ogt", (6, 8), ("i1",)),
        Operation("arith.select", (12, 2, 9), ("i64",)),
        Operation("math.exp", (7,), ("f32",)),
        Operation("linalg.yield", (11, 13, 14)),
    )
    block = Block(("f32", "f32", "f32", "i64", "f32"), yielded)
    loops = Operation(
        "linalg.generic", (0, 1, 3, 4, 5), ("f32[4]", "i64[4]", "f32[4]"), {"operandSegmentSizes": [2, 3]}, (block,)
    )
    kinds = ("f32[4]", "f32[4]", "i64[]", "f32[4]", "i64[4]", "f32[4]")
    body = Body(kinds, (loops,), (15, 16, 17))
    assert [inputs_of(body, result) for result in range(3)] == [{0, 3}, {0, 2, 3, 4}, {1, 5}]
