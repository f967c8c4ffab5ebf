"""What rules change in floating point: bits that stay, errors that grow, numbers that leave the range."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch

from covan_mlir.subst.floating import evaluate, growth
from covan_mlir.subst.inference import infer
from covan_mlir.subst.laws import LAWS, laws
from covan_mlir.subst.operators import in_torch
from covan_mlir.subst.prove import random_sizes
from covan_mlir.subst.rule_file import NamedRule, read, shipped
from covan_mlir.subst.sizes import of
from covan_mlir.subst.terms import Rule, parse_term, variables

SAMPLE = 40


def _sample() -> list[NamedRule]:
    rules = shipped()
    return [*rules[:: len(rules) // SAMPLE], *rules[-len(LAWS) :]]


def _growth(source: str, target: str) -> float:
    sides = (parse_term(source),), (parse_term(target),)
    shapes = tuple((name, (of("n"), of("m"))) for name in variables(sides[0] + sides[1]))
    return growth(infer(Rule(*sides, shapes)))


def test_what_stands_beside_proofs_is_measured_again() -> None:
    text = "\n".join(str(rule) for rule in _sample())
    unmeasured = "\n".join(line for line in text.splitlines() if not line.startswith("floats"))
    for said, again in zip(read(text), read(unmeasured), strict=True):
        # A function of numpy's may round otherwise elsewhere; one step of the scale.
        assert said.floats == again.floats or again.floats <= 2 * said.floats <= 4 * again.floats, said


@pytest.mark.parametrize(
    ("source", "target", "least", "most"),
    [
        ("concat(relu(a), relu(b), axis=1)", "relu(concat(a, b, axis=1))", 0.0, 0.0),
        ("add(add(a, b), c)", "add(a, add(b, c))", 1.0, 8.0),
        # Differences of squares cancel where the product of sum and difference does not.
        ("mul(add(a, b), sub(a, b))", "sub(mul(a, a), mul(b, b))", 16.0, math.inf),
        ("exp(sub(a, b))", "div(exp(a), exp(b))", math.inf, math.inf),
    ],
)
def test_errors_are_those_of_theory(source: str, target: str, least: float, most: float) -> None:
    assert least <= _growth(source, target) <= most


@pytest.fixture
def in_double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("in_double")
def test_terms_are_what_torch_computes() -> None:
    rng = np.random.default_rng(4)
    for named in _sample():
        typed = infer(named.rule)
        sizes = random_sizes(typed, rng)
        assert sizes is not None
        given = {name: rng.normal(0, 1, [s.value(sizes) for s in shape]) for name, shape in named.rule.shapes}
        tensors = {name: torch.tensor(value) for name, value in given.items()}
        for term, value in zip(named.rule.target, evaluate(named.rule.target, given, sizes), strict=True):
            expected = eval(in_torch(term, sizes), {"torch": torch, **tensors})
            np.testing.assert_allclose(value, np.asarray(expected), rtol=1e-9, atol=1e-9)


def test_what_is_written_down_is_proved() -> None:
    by_name = {rule.name: rule for rule in shipped()}
    for name, proved in laws():
        assert by_name[name].rule == proved.rule
        assert by_name[name].certificate == proved.certificate
