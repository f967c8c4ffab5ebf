"""Operators that are no products of steps: which each is, and what it computes, to the bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import plain_chains as plain
import pytest
import torch
from dense_chains import convolution, product
from hypothesis import given
from hypothesis import strategies as st
from step_chains import (
    Grid,
    StepWriter,
    apply,
    concatenated,
    f32,
    joined,
    per_channel,
    plane,
    pooled,
    quantized,
    quantized_decomposed,
)
from torch import Tensor
from torch.nn import functional as F

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.expression import Read
from covan_mlir.kir.interpretation import interpret
from covan_mlir.kir.operators import Dequantization, Requantization
from covan_mlir.kir.recognition import operator_of
from covan_mlir.kir.told import told

GRIDS = st.one_of(
    st.builds(Grid, st.floats(1e-3, 0.5), st.integers(0, 255), st.just(torch.uint8)),
    st.builds(Grid, st.floats(1e-3, 0.5), st.integers(-128, 127), st.just(torch.int8)),
)
SEEDS = st.integers(0, 2**32)
COARSE, FINE = Grid(0.0625, 121), Grid(0.03125, -5, torch.int8)


def steps_of(chain: Chain, **given: Tensor) -> Tensor:
    """What an operator gives, as unsigned or signed steps."""
    held = interpret(chain, {name: value.numpy() for name, value in given.items()})["y"]
    (result,) = operator_of(chain).results
    assert result is not None
    return torch.from_numpy(held if result.least < 0 else held.view(np.uint8))


@pytest.mark.parametrize(
    ("chain", "kind", "mode"),
    [
        (plain.softmax(), "softmax", ""),
        (plain.log_softmax(), "softmax", "log"),
        (plain.layer_norm(), "norm", ""),
        (plain.rms_norm(), "norm", ""),
        (plain.group_norm(), "norm", ""),
        (plain.attention(), "attention", ""),
        (plain.attention(plain.causal), "attention", ""),
        (plain.safe_attention(), "attention", ""),
        (product("ik", "jk", "ij", "k", i=3, j=4, k=5), "linear", ""),
        (product("bik", "bjk", "bij", "k", b=2, i=3, j=4, k=5), "matmul", ""),
        (convolution(3, 4, (3, 3), (6, 6)), "convolution", ""),
        (convolution(4, 4, (3, 3), (6, 6), groups=4), "convolution", ""),
        # What is one of these in part, and more or less than that.
        (plain.logsumexp(), "kernel", ""),
        (plain.cross_entropy(), "kernel", ""),
        (plain.entropy(), "kernel", ""),
        (plain.variance(), "kernel", ""),
        (plain.standard_deviation(), "kernel", ""),
        (plain.skewness(), "kernel", ""),
        (plain.largest_normalised(), "kernel", ""),
        (plain.norm_linear(), "kernel", ""),
        (plain.cosine(), "kernel", ""),
        (plain.mean_pooling(), "kernel", ""),
    ],
)
def test_operators_of_floats_say_what_they_are(chain: Chain, kind: str, mode: str) -> None:
    operator = operator_of(chain)
    assert (operator.kind, operator.mode, operator.operands) == (kind, mode, ())


@given(GRIDS, GRIDS, GRIDS, SEEDS)
def test_tensors_are_added_and_multiplied(left: Grid, right: Grid, given: Grid, seed: int) -> None:
    a, b = left.steps((64,), seed), right.steps((64,), seed + 1)
    compute: dict[str, tuple[str, Callable[[Tensor, Tensor], Tensor]]] = {
        "add": ("arith.addf", torch.add),
        "mul": ("arith.mulf", torch.mul),
    }
    for kind, (op, function) in compute.items():
        chain = joined(op, left, right, given, 64)
        operator = operator_of(chain)
        assert operator.kind == kind
        assert [(one.name, one.zero) for one in operator.operands] == [("a", left.zero), ("b", right.zero)]
        want = given.quantize(function(left.dequantize(a), right.dequantize(b)))
        assert torch.equal(steps_of(chain, a=a, b=b), want)


def test_what_is_more_than_one_of_them() -> None:
    """A product added to what it is computed from is none of both; a function of what is added is still a sum."""
    for form, kind in (("both", "kernel"), ("relu", "add"), ("gate", "mul")):
        w = StepWriter(i=8)
        a, b = w.numbers("a", "i", COARSE), w.numbers("b", "i", FINE)
        real = {
            "both": apply("arith.addf", a, apply("arith.mulf", a, b)),
            "relu": apply("arith.maximumf", apply("arith.addf", a, b), f32(0.0)),
            "gate": apply("arith.mulf", a, apply("math.tanh", b)),
        }[form]
        assert operator_of(w.result("i", real, COARSE)).kind == kind


@given(GRIDS, GRIDS, GRIDS, SEEDS)
def test_tensors_stand_one_behind_the_other(first: Grid, second: Grid, given: Grid, seed: int) -> None:
    chain = concatenated(first, second, given, (4, 9))
    operator = operator_of(chain)
    assert (operator.kind, operator.over) == ("concat", ("j",))
    a, b = first.steps((3, 4), seed), second.steps((3, 9), seed + 1)
    want = given.quantize(torch.cat([first.dequantize(a), second.dequantize(b)], 1))
    assert torch.equal(steps_of(chain, a=a, b=b), want)


@given(GRIDS, GRIDS, SEEDS)
def test_steps_of_one_scale_become_those_of_another(left: Grid, given: Grid, seed: int) -> None:
    x = left.steps((256,), seed)
    again = plane("", left, given)
    assert operator_of(again).kind == "requantize"
    assert torch.equal(steps_of(again, x=x), given.quantize(left.dequantize(x)))
    numbers = plane("", left, None)
    assert operator_of(numbers).kind == "dequantize"
    got = interpret(numbers, {"x": x.numpy()})["y"]
    np.testing.assert_array_equal(got, left.dequantize(x).numpy())


@given(GRIDS, SEEDS)
def test_numbers_become_steps(given: Grid, seed: int) -> None:
    chain = quantized(given)
    assert operator_of(chain).kind == "quantize"
    x = torch.randn(50, generator=torch.Generator().manual_seed(seed)) * 40
    assert torch.equal(steps_of(chain, x=x), given.quantize(x))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8])
def test_each_channel_has_a_scale(dtype: torch.dtype) -> None:
    chain = per_channel(dtype)
    operator = operator_of(chain)
    assert operator.kind == "dequantize"
    assert told(operator, chain)["operands"] == [
        {"name": "x", "signed": dtype is torch.int8, "zero": 0, "scale": "scales", "axis": ["i"]}
    ]
    grid = Grid(1.0, 0, dtype)
    x, scales = grid.steps((5, 7), 0), torch.rand(5)
    want = quantized_decomposed.dequantize_per_channel(
        x, scales, torch.zeros(5, dtype=torch.int64), 0, *grid.arguments[2:]
    )
    np.testing.assert_array_equal(interpret(chain, {"x": x.numpy(), "scales": scales.numpy()})["y"], want.numpy())


@given(GRIDS, GRIDS)
def test_functions_of_steps_are_tables(left: Grid, given: Grid) -> None:
    """Of exact functions to the bit; of transcendental ones as those of f64 are, but for borders between steps."""
    steps = torch.arange(256).to(torch.uint8) if left.dtype is torch.uint8 else torch.arange(-128, 128).to(torch.int8)
    x = left.dequantize(steps)
    relu = operator_of(plane("relu", left, given))
    assert relu.kind == "activation"
    assert list(relu.table) == given.quantize(torch.relu(x)).tolist()
    silu = operator_of(plane("silu", left, given))
    real = F.silu(x.double()) / given.scale
    border = (real - real.floor() - 0.5).abs() < 1e-4 + real.abs() * 1e-6
    want = (real.round() + given.zero).clamp(*given.arguments[2:4])
    got = torch.tensor(silu.table, dtype=torch.float64)
    assert torch.equal(got[~border], want[~border])
    assert (got - want).abs().max() <= 1


def test_a_table_is_all_that_is_looked_at() -> None:
    chain = plane("relu", COARSE, FINE)
    operator = operator_of(chain)
    other = replace(operator, table=tuple(reversed(operator.table)))
    x = torch.arange(256).to(torch.uint8)
    want = np.asarray(other.table, np.int8)
    np.testing.assert_array_equal(interpret(chain, {"x": x.numpy()}, other)["y"], want)


@pytest.mark.parametrize("stride", [1, 2])
def test_windows_are_pooled(stride: int) -> None:
    """Averages as well, of a scale that is a power of two: sums of floats are exact then, in any order."""
    x = COARSE.steps((2, 7, 6), 3)
    numbers = COARSE.dequantize(x)
    for combine, mode, want in (
        ("max", "max", F.max_pool2d(numbers, (3, 2), stride)),
        ("add", "average", F.avg_pool2d(numbers, (3, 2), stride)),
    ):
        chain = pooled(combine, COARSE, FINE, stride)
        operator = operator_of(chain)
        assert (operator.kind, operator.mode, operator.over) == ("pooling", mode, ("r", "s"))
        assert operator.operands[0].zero == COARSE.zero
        assert torch.equal(steps_of(chain, x=x), FINE.quantize(want))


@pytest.mark.parametrize(("divided", "kind", "mode"), [(8.0, "pooling", "average"), (7.0, "reduction", "sum")])
def test_whole_axes_are_pooled(divided: float, kind: str, mode: str) -> None:
    """A sum over as many positions as it is divided by is an average."""
    w = StepWriter(i=5, j=8)
    total = w.reduce("total", "i", "add", "j", w.numbers("x", "ij", COARSE))
    chain = w.result("i", apply("arith.divf", total, f32(divided)), FINE)
    operator = operator_of(chain)
    assert (operator.kind, operator.mode, operator.over, operator.accumulator) == (kind, mode, ("j",), "f32")
    x = COARSE.steps((5, 8), 1)
    assert torch.equal(steps_of(chain, x=x), FINE.quantize(COARSE.dequantize(x).sum(1) / divided))


def test_softmax_and_norm_of_steps() -> None:
    """In mixed precision: steps, floats, steps. As f64 says, but for borders between steps."""
    given = Grid(1 / 256, 0)
    for kind in ("softmax", "norm"):
        w = StepWriter(i=6, j=40)
        x = w.numbers("x", "ij", COARSE)
        if kind == "softmax":
            top = w.reduce("top", "i", "max", "j", x)
            e = w.map("e", "ij", apply("math.exp", apply("arith.subf", x, top)))
            total = w.reduce("total", "i", "add", "j", e)
            real, grid = apply("arith.divf", e, total), given
        else:
            mean = w.map("mean", "i", apply("arith.divf", w.reduce("sum", "i", "add", "j", x), f32(40.0)))
            d = w.map("d", "ij", apply("arith.subf", x, mean))
            squares = w.reduce("squares", "i", "add", "j", apply("arith.mulf", d, d))
            spread = apply("arith.addf", apply("arith.divf", squares, f32(40.0)), f32(1e-5))
            real, grid = apply("arith.mulf", d, apply("math.rsqrt", spread)), FINE
        chain = w.result("ij", real, grid)
        operator = operator_of(chain)
        assert (operator.kind, operator.over) == (kind, ("j",))
        assert operator.operands == (Dequantization(Read("x", "i8"), False, 121, 0.0625, "f32"),)
        assert operator.results[0] == Requantization(
            Read("real", "f32"), 1 / grid.scale, grid.zero, *grid.arguments[2:4]
        )
        x = COARSE.steps((6, 40), 2)
        numbers = COARSE.dequantize(x).double()
        exact = torch.softmax(numbers, -1) if kind == "softmax" else F.layer_norm(numbers, (40,))
        steps = exact / grid.scale
        want = (steps.round() + grid.zero).clamp(*grid.arguments[2:4])
        border = (steps - steps.floor() - 0.5).abs() < 1e-3
        got = steps_of(chain, x=x).double()
        assert torch.equal(got[~border], want[~border])
        assert (got - want).abs().max() <= 1


def test_a_norm_gives_what_was_added_before_it_too() -> None:
    w = StepWriter(i=6, j=40)
    x = w.map("sum", "ij", apply("arith.addf", w.input("a", "ij"), w.input("b", "ij")))
    squares = w.reduce("squares", "i", "add", "j", apply("arith.mulf", x, x))
    spread = apply("arith.addf", apply("arith.divf", squares, f32(40.0)), f32(1e-5))
    w.map("y", "ij", apply("arith.mulf", x, apply("math.rsqrt", spread)))
    assert operator_of(w.chain("sum", "y")).kind == operator_of(w.chain("y")).kind == "norm"
    assert operator_of(w.chain("sum", "squares")).kind == "kernel"


def test_steps_that_are_read_again() -> None:
    """What is quantised and read at once is numbers, of which is told what steps they are."""
    w = StepWriter(i=256)
    w.map("steps", "i", FINE.write(w.numbers("x", "i", COARSE)))
    w.map("y", "i", FINE.read(w.read("steps")))
    chain = w.chain("steps", "y")
    operator = operator_of(chain)
    assert operator.kind == "requantize"
    steps, numbers = operator.results
    assert steps is not None
    assert numbers is not None
    assert (steps.again, replace(numbers, again=None)) == (None, steps)
    x = torch.arange(256).to(torch.uint8)
    want = FINE.quantize(COARSE.dequantize(x))
    got = interpret(chain, {"x": x.numpy()})
    np.testing.assert_array_equal(got["steps"], want.numpy())
    np.testing.assert_array_equal(got["y"], FINE.dequantize(want).numpy())


def test_what_cannot_be_evaluated_has_no_table() -> None:
    w = StepWriter(i=8)
    x = w.numbers("x", "i", COARSE)
    operator = operator_of(w.result("i", apply("math.unheard_of", x), COARSE))
    assert (operator.kind, operator.table) == ("activation", ())
