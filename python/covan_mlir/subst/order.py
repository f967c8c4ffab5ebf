"""What is known of the order of numbers: squares, activations and the like are at least 0, and what is may be taken
out of the greatest of several numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from fractions import Fraction

from covan_mlir.subst.expressions import Factor, Function, Greatest, Option, Piece, Read, Reciprocal, Sum, indices
from covan_mlir.subst.sizes import ONE, is_nonnegative, poly

POSITIVE = ("exp", "sigmoid", "sqrt", "rsqrt")
"""Functions whose values are not negative."""


def nonnegative(value: Sum) -> bool:
    """Whether a number is known to be at least 0."""
    return all(is_nonnegative(piece.number) and all(map(_alone, _unpaired(piece.factors))) for piece in value)


def _alone(factor: Factor) -> bool:
    if isinstance(factor, Read):
        return False
    if isinstance(factor, Reciprocal):
        return is_nonnegative(factor.size)
    if isinstance(factor, Function):
        return factor.name in POSITIVE or (factor.name == "reciprocal" and nonnegative(factor.args[0]))
    return any(not option.guards and not option.bound and nonnegative(option.value) for option in factor.options)


def _unpaired(factors: Iterable[Factor]) -> list[Factor]:
    return [factor for factor, count in Counter(factors).items() if count % 2]


def without_least(options: set[Option]) -> set[Option]:
    """Without a 0 where another option is never less."""
    least = Option(())
    if least in options and any(
        nonnegative(option.value) and (option.inhabited or not (option.bound or option.guards))
        for option in options - {least}
    ):
        return options - {least}
    return options


def common(options: set[Option]) -> Sum | None:
    """The greatest of several, as what is not negative times the greatest of the others; None where nothing is taken
    out."""
    values = [option.value for option in options if option.value]
    numbers = [piece.number.constant for value in values for piece in value]
    if not values or any(number is None for number in numbers):
        return None
    content = _content([Fraction(number) for number in numbers if number is not None])
    shared: Counter[Factor] = Counter()
    for at, value in enumerate(values):
        for factor_count in (Counter(piece.factors) for piece in value):
            shared = factor_count if not at and not shared else shared & factor_count
    bound = {index for option in options for index, _ in option.bound}
    bound |= {index for value in values for piece in value for index, _ in piece.bound}
    outside: list[Factor] = []
    for factor, count in shared.items():
        if not bound.isdisjoint(indices(factor)) or any(factor not in piece.factors for v in values for piece in v):
            continue
        outside += [factor] * (count if _alone(factor) else count - count % 2)
    if content == 1 and not outside:
        return None
    rest = frozenset(
        Option(
            tuple(
                Piece(
                    piece.number * (1 / content),
                    _less(piece.factors, outside),
                    piece.bound,
                    piece.guards,
                )
                for piece in option.value
            ),
            option.bound,
            option.guards,
            option.inhabited,
        )
        for option in options
    )
    return (Piece(poly(content), (*outside, Greatest(rest))),)


def _less(factors: tuple[Factor, ...], fewer: list[Factor]) -> tuple[Factor, ...]:
    left = Counter(factors)
    left.subtract(fewer)
    return tuple(left.elements())


def _content(numbers: list[Fraction]) -> Fraction:
    """The greatest number by which all are whole."""
    denominator = math.lcm(*(number.denominator for number in numbers))
    return Fraction(math.gcd(*(int(number * denominator) for number in numbers)), denominator)


def squared(piece: Piece) -> Piece | None:
    """``x * greatest(x, 0)`` as the square of the latter; None where there is no such product in it."""
    for factor in piece.factors:
        if not isinstance(factor, Greatest) or len(factor.options) != 2 or Option(()) not in factor.options:
            continue
        (option,) = factor.options - {Option(())}
        if option.bound or option.guards or len(option.value) != 1:
            continue
        (value,) = option.value
        if value.number != ONE or value.bound or value.guards or not value.factors:
            continue
        have, want = Counter(piece.factors), Counter(value.factors)
        if all(have[needed] >= count for needed, count in want.items()):
            return Piece(piece.number, (*_less(piece.factors, list(value.factors)), factor), piece.bound, piece.guards)
    return None
