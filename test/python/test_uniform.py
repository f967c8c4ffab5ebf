"""Values that are one number everywhere whatever the arguments are: the compilers fold them, so the graph says so."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from covan_mlir.frontend.graph_passes.uniform import fold_uniform

FLOATS = torch.tensor([[0.5, -1.0, torch.inf], [torch.nan, 0.0, 2.0]])
NUMBERS = torch.tensor([[3, -2, 0], [1, 7, -5]])

Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

CONSTANT: dict[str, Function] = {
    "times zeros": lambda x, i: torch.zeros_like(i) * i,
    "minus itself": lambda x, i: i - i,
    "by one": lambda x, i: i % 1,
    "all bits": lambda x, i: i | -1,
    "all bits of bytes": lambda x, i: i.to(torch.uint8) | 255,
    "between equal limits": lambda x, i: i.clamp(3, 3),
    "between crossed limits": lambda x, i: i.clamp(4, 2),
    "and its complement": lambda x, i: (x > 0) & ~(x > 0),
    "or its complement": lambda x, i: ~i | i,
    "a copy of a constant": lambda x, i: (i * 0).clone().float().exp(),
}

VARYING: dict[str, Function] = {
    "some bits": lambda x, i: i | 1,
    "bits of another width": lambda x, i: i | 255,
    "a number by it": lambda x, i: 1 % i.abs().clamp(min=1),
    "a float by zero": lambda x, i: x * 0,
    "between limits": lambda x, i: i.clamp(2, 3),
    "floats between equal limits": lambda x, i: x.clamp(1.0, 1.0),
    "and another's complement": lambda x, i: (x > 0) & ~(x > 1),
    "complements of different types": lambda x, i: i.bool() & ~i,
}


def folded(function: Function) -> torch.fx.GraphModule:
    module = make_fx(function, tracing_mode="fake")(FLOATS, NUMBERS)
    fold_uniform(module.graph, {})
    module.graph.eliminate_dead_code()
    module.recompile()
    torch.testing.assert_close(module(FLOATS, NUMBERS), function(FLOATS, NUMBERS), equal_nan=True, rtol=0, atol=0)
    return module


def is_read(module: torch.fx.GraphModule) -> bool:
    return any(node.users for node in module.graph.find_nodes(op="placeholder"))


@pytest.mark.parametrize("name", CONSTANT)
def test_reads_no_argument(name: str) -> None:
    assert not is_read(folded(CONSTANT[name]))


@pytest.mark.parametrize("name", VARYING)
def test_reads_what_it_depends_on(name: str) -> None:
    assert is_read(folded(VARYING[name]))


@pytest.mark.parametrize("piece", [lambda two: two[:2], lambda two: two.chunk(2)[0], lambda two: two[0]])
def test_parts_of_what_is_joined_of_constants(piece: Callable[[torch.Tensor], torch.Tensor]) -> None:
    def function(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x[:1] + piece(torch.cat([torch.full((2, 3), 2.0), torch.full((2, 3), 3.0)])) * -1

    module = folded(function)
    assert not module.graph.find_nodes(op="call_function", target=torch.ops.aten.mul.Tensor)


def test_parts_of_many_constants_that_are_joined() -> None:
    """torch-mlir's remainders are those of C."""

    def function(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        joined = torch.cat([torch.full((5000, 2), 2), torch.full((3, 2), -7)])
        return torch.remainder(joined.view(-1)[10_000:], 3)

    module = folded(function)
    assert not module.graph.find_nodes(op="call_function", target=torch.ops.aten.remainder.Scalar)


def test_zeros_of_both_signs_are_two_numbers() -> None:
    folded(lambda x, i: 1 / (torch.cat([torch.full((1,), 0.0), torch.full((1,), -0.0)]) * 1.0))


def test_two_draws_are_not_one_value() -> None:
    module = make_fx(lambda: (torch.rand(4) > 0.5) & ~(torch.rand(4) > 0.5), tracing_mode="fake")()
    fold_uniform(module.graph, {})
    assert module.graph.find_nodes(op="call_function", target=torch.ops.aten.bitwise_and.Tensor)
