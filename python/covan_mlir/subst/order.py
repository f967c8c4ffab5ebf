"""What is known of the order of numbers: squares, activations and the like are at least 0, and what is may be taken
out of the greatest of several numbers."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

from covan_mlir.subst.expressions import (
    Factor,
    Function,
    Greatest,
    Option,
    Piece,
    Read,
    Reciprocal,
    Sum,
    indices,
    scaled,
)
from covan_mlir.subst.sizes import ONE, ZERO, Poly, is_nonnegative, poly

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
    """Without options that are never greater than all others: 0 beside what is not negative, what lies between two."""
    least = Option(())
    if least in options and any(
        nonnegative(option.value) and (option.inhabited or not (option.bound or option.guards))
        for option in options - {least}
    ):
        options = options - {least}
    plain = [option for option in options if not option.bound and not option.guards]
    for middle, left, right in itertools.permutations(plain, 3):
        if _between(middle.value, left.value, right.value):
            return without_least(options - {middle})
    return options


def _between(middle: Sum, left: Sum, right: Sum) -> bool:
    """Whether a number is on the way from one to the other, whatever they are."""
    ratios: set[Fraction | None] = set()
    whole, part = _difference(left, right), _difference(middle, right)
    for piece in whole.keys() | part.keys():
        above, below = part.get(piece, ZERO).constant, whole.get(piece, ZERO).constant
        ratios.add(Fraction(above) / Fraction(below) if above is not None and below else None)
    (ratio, *others) = ratios or {None}
    return not others and ratio is not None and 0 < ratio < 1


def _difference(left: Sum, right: Sum) -> dict[Piece, Poly]:
    numbers: dict[Piece, Poly] = {}
    for sign, value in ((1, left), (-1, right)):
        for piece in value:
            key = Piece(ONE, tuple(sorted(piece.factors, key=str)), piece.bound, piece.guards)
            numbers[key] = numbers.get(key, ZERO) + piece.number * sign
    return {piece: number for piece, number in numbers.items() if number}


def spread(option: Option) -> list[Option] | None:
    """Options that one stands for which adds the greatest of several to something; None where it adds none."""
    for piece in option.value:
        if piece.bound or piece.guards or len(piece.factors) != 1 or not is_nonnegative(piece.number):
            continue
        (factor,) = piece.factors
        if isinstance(factor, Greatest) and not any(inner.bound or inner.guards for inner in factor.options):
            others = tuple(other for other in option.value if other is not piece)
            return [
                replace(option, value=others + scaled(inner.value, piece.number))
                for inner in sorted(factor.options, key=str)
            ]
    return None


def shift(options: set[Option]) -> Sum | None:
    """What is added to all of them, and the greatest of what is left; None where nothing is added to all."""
    if len(options) < 2 or any(option.bound or option.guards for option in options):
        return None
    first, *others = (dict(_difference(option.value, ())) for option in sorted(options, key=str))
    added = {piece: number for piece, number in first.items() if all(o.get(piece) == number for o in others)}
    if not added:
        return None
    outside = tuple(scaled((piece,), number)[0] for piece, number in added.items())
    left = (
        tuple(scaled((piece,), number)[0] for piece, number in each.items() if piece not in added)
        for each in (first, *others)
    )
    return (*outside, Piece(factors=(Greatest(frozenset(map(Option, left))),)))


def power(options: set[Option]) -> Sum | None:
    """The greatest of powers as a power of the greatest, where the power rises with what it is of."""
    exponents: set[int] = set()
    bases: set[Option] = set()
    for option in options - {Option(())}:
        if len(option.value) != 1:
            return None
        (piece,) = option.value
        counts = set(Counter(piece.factors).values())
        if piece.number != ONE or piece.bound or piece.guards or len(counts) != 1:
            return None
        (count,) = counts
        distinct = tuple(dict.fromkeys(piece.factors))
        if count % 2 == 0 and not all(map(_alone, distinct)):
            distinct, count = distinct * 2, count // 2
        exponents.add(count)
        bases.add(replace(option, value=(Piece(factors=distinct),)))
    if len(exponents) != 1 or exponents == {1}:
        return None
    (exponent,) = exponents
    return (Piece(factors=(Greatest(frozenset(bases | (options & {Option(())}))),) * exponent),)


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
