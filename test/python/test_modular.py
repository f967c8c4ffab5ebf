"""Exact arithmetic decides what a site computes: near lies are refused, honest programs hold however they compute."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from test_operators import called, operator, with_part
from torch import Tensor, nn
from torch.nn import functional as F

import covan_mlir
from covan_mlir import Lineage
from covan_mlir.checking.field import PAIR, Exact, constant, drawn, narrowed, paired, uninterpreted
from covan_mlir.checking.modular import Finding, compared
from covan_mlir.checking.verdict import Check
from covan_mlir.checking.verify import verify
from covan_mlir.fred.scalars import Array

X, Y = torch.randn(6, 9), torch.randn(6, 9)
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "scaled": (lambda x: x * 3.0, (X,)),
    "a tenth": (lambda x: x * 0.1, (X,)),
    "tiny": (lambda x, y: torch.add(x, y, alpha=1e-9), (X, Y)),
    "sigmoid": (lambda x: torch.sigmoid(x) * 3.0, (X,)),
    "cancelled": (lambda x, y: (x + y * 4096.0) - y * 4095.0, (X, Y)),
    "rows": (lambda x: (x * x).mean(-1) * 5.0, (X,)),
    "product": (lambda x, y: (x @ y.T) * 7.0, (X, Y)),
    "hard": (lambda x: F.hardswish(x) + F.hardsigmoid(x), (X,)),
    "quotients": (lambda x: (x / 3.0).mean(-1) / 7.0 + x.var(-1), (X,)),
    "gelu": (lambda x: F.gelu(x) + F.silu(x), (X,)),
    "norm": (nn.LayerNorm(9), (X,)),
    "softmax": (lambda x: torch.softmax(x, -1) + torch.log_softmax(x, -1), (X,)),
    "pools": (lambda x: F.avg_pool2d(x, 3, 2) + F.max_pool2d(x, 3, 2), (torch.randn(1, 2, 9, 9),)),
    "resized": (lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear"), (torch.randn(1, 2, 9, 9),)),
    "transposed": (lambda x: F.conv_transpose1d(x[None], torch.full((X.shape[0], 2, 3), 0.3)), (X,)),
    "rounded up": (lambda x: F.avg_pool2d(x, 3, 2, ceil_mode=True), (torch.randn(1, 2, 8, 8),)),
}
EXACT = {
    *(
        "scaled",
        "a tenth",
        "tiny",
        "sigmoid",
        "cancelled",
        "rows",
        "product",
        "hard",
        "gelu",
        "norm",
        "softmax",
        "pools",
        "transposed",
    ),
}
"""Programs all of whose results exact arithmetic decides."""


@cache
def compiled(name: str) -> Lineage:
    model, args = PROGRAMS[name]
    return covan_mlir.compile_module(model, args).lineage


def _operators(lineage: Lineage) -> Check:
    return verify(lineage).checks[-1]


@pytest.mark.parametrize("name", PROGRAMS)
def test_honest_programs_hold(name: str) -> None:
    verdict = verify(compiled(name))
    assert verdict, str(verdict)
    check = verdict.checks[-1]
    assert check.exact + len(check.rounded) > 0
    if name in EXACT:
        assert not check.rounded


def test_what_float64_alone_decides_is_told() -> None:
    check = _operators(compiled("rounded up"))
    assert check.outcome == "yes"
    (said,) = check.rounded
    assert "avg_pool2d" in said
    assert "test_modular.py" in said
    assert "by float64" in str(verify(compiled("rounded up")))


def _second(number: float) -> Callable[[list[Any]], list[Any]]:
    return lambda a: [a[0], number, *a[2:]]


LIES: dict[str, tuple[str, str, Callable[[Any], Any]]] = {
    "a constant off by its last place": ("scaled", "mul", called(_second(3.0000002))),
    "a rounded constant off by some": ("a tenth", "mul", called(_second(0.1000001))),
    "another tiny term": ("tiny", "add", lambda part: _replaced(part, "1e-09", "3e-09")),
    "no tiny term": ("tiny", "add", lambda part: _replaced(part, "1e-09", "0.0")),
    "a constant beside a function": ("sigmoid", "mul", called(_second(3.0000002))),
    "a constant that cancels": ("cancelled", "mul", called(_second(4096.0005))),
    "a constant behind a sum": ("rows", "mul_1", called(_second(5.000001))),
    "a constant behind a product": ("product", "mul", called(_second(7.000001))),
    "a sum for a difference": ("cancelled", "sub", operator("aten.add.Tensor")),
}


def _replaced(part: Any, old: str, new: str) -> Any:
    assert old in part.args, part.args
    return type(part)(**{**vars(part), "args": part.args.replace(old, new)})


@pytest.mark.parametrize("lie", LIES)
def test_lies_within_the_tolerance_of_floats_are_refused(lie: str) -> None:
    program, part, change = LIES[lie]
    check = _operators(with_part(compiled(program), part, change))
    assert check.outcome == "no", check


def _points(seed: int) -> Exact:
    generator = np.random.default_rng(seed)
    bits = generator.integers(0, 2**63, 8).astype(np.uint64)
    return Exact.of(paired(generator.normal(size=8), drawn(bits)))


Function = Callable[[Exact, Exact], Exact]


def _compared(source: Function, program: Function, *, folding: bool = False) -> Finding:
    x, y = _points(0), _points(1)

    def of(function: Function) -> Callable[[], Array]:
        return lambda: function(x, y).pairs

    return compared(of(source), of(program), folding=lambda: folding)


def _number(value: float) -> Exact:
    return Exact.of(constant(np.float64(value)))


def _narrow(value: float) -> Exact:
    return _number(float(np.float32(value)))


HONEST: dict[str, tuple[Function, Function]] = {
    "sums in another order": (lambda x, y: (x + y) + x, lambda x, y: x + (x + y)),
    "distributed": (lambda x, y: (x + y) * (x - y), lambda x, y: x * x - y * y),
    "one quotient": (lambda x, y: x / y / (x + y), lambda x, y: x / (y * x + y * y)),
    "what cancels": (lambda x, y: x + y - y, lambda x, y: x),
    "a function of the same": (lambda x, y: uninterpreted("tanh", x + y - y), lambda x, y: uninterpreted("tanh", x)),
}


@pytest.mark.parametrize("name", HONEST)
def test_the_same_function_is_proved(name: str) -> None:
    assert _compared(*HONEST[name]).outcome == "equal"


OPEN: dict[str, tuple[Function, Function]] = {
    "a reciprocal that was rounded": (lambda x, y: x / 3, lambda x, y: x * _narrow(1 / 3)),
    "a root that was rounded": (
        lambda x, y: x / uninterpreted("sqrt", _number(7.0)),
        lambda x, y: x * _narrow(7**-0.5),
    ),
    "two that were rounded": (lambda x, y: x / 3 + y / 7, lambda x, y: x * _narrow(1 / 3) + y * _narrow(1 / 7)),
    "powers of sums": (
        lambda x, y: uninterpreted("exp", x) * uninterpreted("exp", y),
        lambda x, y: uninterpreted("exp", x + y),
    ),
    "a quotient by a root": (
        lambda x, y: x / uninterpreted("sqrt", x) + y,
        lambda x, y: uninterpreted("sqrt", x) + y,
    ),
    "the square of a root": (
        lambda x, y: uninterpreted("sqrt", x * x + y * y) * uninterpreted("sqrt", x * x + y * y),
        lambda x, y: x * x + y * y,
    ),
}


@pytest.mark.parametrize("name", OPEN)
def test_what_compilers_may_do_is_never_called_false(name: str) -> None:
    finding = _compared(*OPEN[name])
    assert finding.outcome == "open"
    assert finding.why


def test_numbers_computed_of_numbers_are_never_called_false() -> None:
    """`0.1 * 10` is not one, but float32 says so."""
    source, program = (lambda x, y: x * (_narrow(0.1) * 10)), (lambda x, y: x)
    assert _compared(source, program, folding=True).outcome == "open"
    assert _compared(source, program).outcome == "different"


DIFFERENT: dict[str, tuple[Function, Function]] = {
    "a term that float64 does not hold": (lambda x, y: x + y * _number(1e-20), lambda x, y: x),
    "a constant of another last place": (lambda x, y: x * _number(3.0 + 2.0**-50), lambda x, y: x * 3),
    "more than rounding explains": (lambda x, y: x / 3, lambda x, y: x * _narrow(0.333334)),
    "the same function beside another factor": (
        lambda x, y: uninterpreted("exp", x) * 3,
        lambda x, y: uninterpreted("exp", x) * 3 + y * _number(2.0**-40),
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_other_functions_are_told(name: str) -> None:
    assert _compared(*DIFFERENT[name]).outcome == "different"


def test_roundings_in_the_code_are_never_called_false() -> None:
    """A constant in double precision that the code narrows: what it is there is compared."""
    tenth, narrow = lambda: narrowed(_number(0.1)), lambda: _narrow(0.1)
    assert _compared(lambda x, y: x * narrow(), lambda x, y: x * tenth()).outcome == "equal"
    assert _compared(lambda x, y: x * _number(0.1), lambda x, y: x * tenth()).outcome == "open"
    assert _compared(lambda x, y: x * _narrow(0.1000001), lambda x, y: x * tenth()).outcome == "different"


def test_what_is_not_exact_is_left_to_floats() -> None:
    inexact = compared(lambda: np.zeros(3, PAIR), lambda: np.zeros(3), folding=lambda: False)
    assert inexact.outcome == "open"
    assert compared(lambda: np.arange(3), lambda: np.arange(3), folding=lambda: False).outcome == "equal"
