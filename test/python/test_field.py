"""Arithmetic modulo a prime against fractions of Python's."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from covan_mlir.checking.field import (
    PAIR,
    PRIME,
    Exact,
    absolute,
    combined,
    dot,
    drawn,
    extreme,
    lifted,
    maximum,
    minimum,
    power,
    product,
    residues,
    same,
    softmax,
    total,
    traced,
    uninterpreted,
    where,
)
from covan_mlir.checking.field_code import computed
from covan_mlir.checking.field_operators import along, pointwise
from covan_mlir.fred.scalars import UnknownOperationError

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
NUMBERS = st.floats(-1000, 1000, width=32)


def element(number: Fraction) -> int:
    """Of the field."""
    return number.numerator * pow(number.denominator, -1, PRIME) % PRIME


def pairs(*numbers: float) -> Exact:
    return Exact.of(lifted(np.array(numbers, np.float64)))


def elements(exact: Exact) -> list[int]:
    return [int(residue) for residue in exact.residue.reshape(-1)]


@given(FLOATS)
def test_a_float_is_its_dyadic_rational(number: float) -> None:
    assert elements(pairs(number)) == [element(Fraction(number))]


@given(st.integers(-(2**63), 2**63 - 1))
def test_an_integer_is_itself(number: int) -> None:
    assert int(residues(np.array(number))) == number % PRIME


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_what_is_no_number_is_no_element(number: float) -> None:
    assert elements(pairs(number)) == [-1]
    assert elements(pairs(number) * 2.0 + 1.0) == [-1]


Step = tuple[str, int, int]
OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
}


@given(
    st.lists(NUMBERS, min_size=1, max_size=5),
    st.lists(st.tuples(st.sampled_from("+-*/"), st.integers(0, 99), st.integers(0, 99)), max_size=8),
)
def test_rational_functions_are_those_of_fractions(numbers: list[float], steps: list[Step]) -> None:
    values: list[Exact] = [pairs(number) for number in numbers]
    fractions = [Fraction(number) for number in numbers]
    for name, one, other in steps:
        left, right = one % len(values), other % len(values)
        if name == "/" and element(fractions[right]) == 0:
            continue
        values.append(OPERATIONS[name](values[left], values[right]))
        fractions.append(OPERATIONS[name](fractions[left], fractions[right]))
    assert [elements(value)[0] for value in values] == [element(fraction) for fraction in fractions]


@given(st.lists(NUMBERS, min_size=1, max_size=6), st.lists(NUMBERS, min_size=6, max_size=6))
def test_folds(numbers: list[float], others: list[float]) -> None:
    exact = pairs(*numbers)
    fractions = list(map(Fraction, numbers))
    products = [a * Fraction(b) for a, b in zip(fractions, others, strict=False)]
    assert elements(total(exact, 0)) == [element(sum(fractions, Fraction(0)))]
    assert elements(product(exact, 0)) == [element(math.prod(fractions, start=Fraction(1)))]
    assert elements(extreme(exact, 0, largest=True)) == [element(max(fractions))]
    assert elements(extreme(exact, 0, largest=False)) == [element(min(fractions))]
    inner = dot(exact.pairs, pairs(*others[: len(numbers)]).pairs)
    assert int(inner["residue"]) == element(sum(products, Fraction(0)))
    start = pairs(2.5).pairs
    folded = combined(np.add, start, exact.pairs[None], 1)
    assert elements(Exact.of(folded)) == [element(sum(fractions, Fraction(5, 2)))]


@given(NUMBERS, NUMBERS)
def test_choices_go_by_value(one: float, other: float) -> None:
    a, b = pairs(one), pairs(other)
    assert elements(maximum(a, b)) == [element(Fraction(max(one, other)))]
    assert elements(minimum(a, b)) == [element(Fraction(min(one, other)))]
    assert elements(absolute(a)) == [element(abs(Fraction(one)))]
    assert elements(where(np.array([one < other]), a, b)) == [element(Fraction(one if one < other else other))]


def test_maxima_of_what_is_no_number() -> None:
    nan, one = pairs(math.nan), pairs(1.0)
    assert [elements(maximum(*pair))[0] for pair in ((nan, one), (one, nan))] == [-1, -1]
    assert [elements(maximum(*pair, numbers=True))[0] for pair in ((nan, one), (one, nan))] == [1, 1]


@given(st.integers(-6, 6), st.integers(1, 40))
def test_whole_powers_are_products(exponent: int, base: int) -> None:
    assert elements(power(pairs(base / 8), float(exponent))) == [element(Fraction(base, 8) ** exponent)]


def points(count: int, seed: int = 0) -> Exact:
    """Numbers that are drawn: their elements do not depend on their values."""
    generator = np.random.default_rng(seed)
    values = generator.normal(size=count)
    bits = generator.integers(0, 2**63, count).astype(np.uint64)
    array = np.empty(count, PAIR)
    array["value"], array["residue"] = values, drawn(bits)
    return Exact.of(array)


@pytest.mark.parametrize("name", ["exp", "tanh", "erf", "sqrt", "log", "sin", "cos"])
def test_functions_are_equal_where_their_arguments_are(name: str) -> None:
    x, y = points(50), points(50, 1)
    one, other = uninterpreted(name, (x + y) * (x - y)), uninterpreted(name, x * x - y * y)
    assert elements(one) == elements(other)
    assert all(a != b for a, b in zip(elements(one), elements(uninterpreted(name, x)), strict=True))


def test_what_is_known_of_functions() -> None:
    x = points(50)
    one = Exact.of(1)
    assert elements(uninterpreted("tanh", -x)) == elements(-uninterpreted("tanh", x))
    assert elements(uninterpreted("cos", -x)) == elements(uninterpreted("cos", x))
    assert elements(uninterpreted("exp", -x)) == elements(one / uninterpreted("exp", x))
    assert elements(uninterpreted("exp", x - x)) == [1] * 50
    assert elements(uninterpreted("exp", pairs(-math.inf))) == [0]


def test_functions_are_told_with_their_arguments() -> None:
    x = points(4)
    with traced() as one:
        uninterpreted("exp", x + x)
        Exact.of(0.1) * x
    with traced() as other:
        uninterpreted("exp", x * 2)
    with traced() as third:
        uninterpreted("sqrt", x * 2)
    assert one.atoms == other.atoms
    assert not one.atoms & third.atoms
    assert one.constants == {0.1}


def test_softmax_has_sum_one() -> None:
    x = Exact.of(points(24).pairs.reshape(4, 6))
    assert elements(total(softmax(x, 1), 1)) == [1] * 4


def test_drawn_elements_are_spread_over_the_field() -> None:
    """By the variance of a uniform distribution, and that none comes twice."""
    taken = drawn(np.arange(4096, dtype=np.uint64))
    assert np.unique(taken).size == taken.size
    assert (taken >= 0).all()
    assert (taken < PRIME).all()
    assert abs(taken.mean() / PRIME - 0.5) < 0.03
    assert abs(taken.std() / PRIME - 12**-0.5) < 0.03


def test_infinities_are_the_same_and_other_unknown_numbers_are_not_told_apart() -> None:
    equal, differ = same(pairs(1.0, 2.0, math.inf, math.nan).pairs, pairs(1.0, 3.0, math.inf, 1.0).pairs)
    assert equal.tolist() == [True, False, True, False]
    assert differ.tolist() == [False, True, False, False]


@given(NUMBERS, NUMBERS)
def test_code_and_operators_are_those_of_fractions(one: float, other: float) -> None:
    a, b = Fraction(one), Fraction(other)
    left, right = pairs(one).pairs, pairs(other).pairs
    code: dict[str, Fraction] = {
        "addf": a + b,
        "subf": a - b,
        "mulf": a * b,
        "maximumf": max(a, b),
        "minimumf": min(a, b),
    }
    for name, expected in code.items():
        assert elements(Exact.of(computed(f"arith.{name}", (left, right), "f64"))) == [element(expected)]
    assert computed("arith.cmpf:olt", (left, right), "i1").tolist() == [one < other]
    operators = {"add": a + 2 * b, "sub": a - 2 * b, "rsub": b - 2 * a}
    for name, expected in operators.items():
        result = pointwise(name, {"self": left, "other": right, "alpha": 2})
        assert result is not None
        assert elements(Exact.of(result)) == [element(expected)]
    variance = along("var", {"correction": 1}, np.stack([left, right], 1), None)
    assert variance is not None
    assert elements(Exact.of(variance)) == [element((a - b) ** 2 / 2)]


def test_what_has_no_exact_arithmetic_is_refused() -> None:
    with pytest.raises(UnknownOperationError):
        computed("arith.remf", (pairs(1.0).pairs, pairs(2.0).pairs), "f64")
    assert pointwise("digamma", {"self": pairs(1.0).pairs}) is None
    assert along("median", {}, pairs(1.0, 2.0).pairs[None], None) is None
