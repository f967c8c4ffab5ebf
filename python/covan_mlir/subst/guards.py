"""Conditions on positions: which hold anyway, which never, and what several say together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from covan_mlir.subst.expressions import Guard
from covan_mlir.subst.sizes import ZERO, Poly, is_nonnegative, poly, quotient

Ranges = Mapping[str, Poly]
"""Sizes of the axes that indices go along."""


def is_index(symbol: object) -> bool:
    """Whether a symbol is an index and no size."""
    return isinstance(symbol, str) and symbol.startswith("%")


def indices_of(size: Poly) -> list[str]:
    """Indices in it."""
    return sorted(symbol for symbol in size.symbols() if isinstance(symbol, str) and is_index(symbol))


class Facts:
    """What is known of sizes besides that they are sizes.

    Attributes:
        hypotheses: polynomials in sizes that are at least 0.
    """

    def __init__(self, hypotheses: Iterable[Poly] = ()) -> None:
        self.hypotheses = tuple(hypotheses)
        self._known: dict[tuple[Poly, tuple[Poly | None, ...]], bool] = {}

    def nonnegative(self, size: Poly, ranges: Ranges) -> bool:
        """Whether it is known to be at least 0 at all positions."""
        key = (size, tuple(ranges.get(index) for index in indices_of(size)))
        if key not in self._known:
            low = self._extreme(size, ranges, 0)
            self._known[key] = low is not None and self._size_nonnegative(low)
        return self._known[key]

    def negative(self, size: Poly, ranges: Ranges) -> bool:
        """Whether it is known to be below 0 at all positions."""
        return self.nonnegative(-size - 1, ranges)

    def _size_nonnegative(self, size: Poly) -> bool:
        if is_nonnegative(size):
            return True
        # A fact is of use where it takes a negative term away.
        negative = {monomial for monomial, number in size.terms.items() if number < 0}
        return any(
            is_nonnegative(size - fact)
            for fact in self.hypotheses
            if any(monomial and fact.terms.get(monomial, 0) < 0 for monomial in negative)
        )

    def _extreme(self, size: Poly, ranges: Ranges, end: int) -> Poly | None:
        """Its least value (end 0) or its greatest (1)."""
        for index in indices_of(size):
            parts = size.linear(index)
            if parts is None or index not in ranges:
                return None
            slope, rest = parts
            if indices_of(slope):
                return None
            if self._size_nonnegative(slope):
                at = end
            elif self._size_nonnegative(-slope):
                at = 1 - end
            else:
                return None
            size = (slope * (ranges[index] - 1) if at else ZERO) + rest
        return size

    def reduce(self, guards: Iterable[Guard], ranges: Ranges) -> list[Guard] | None:
        """The same conditions, without those that hold anyway; None where they cannot all hold."""
        reduced: dict[Guard, None] = {}
        waiting = sorted(set(guards), key=lambda guard: (guard[0], str(guard[1])))
        while waiting:
            kind, size = waiting.pop()
            size = _primitive(kind, size)
            if size.constant is not None:
                if (size.constant < 0) if kind == "ge" else (size.constant != 0):
                    return None
                continue
            if self.negative(size, ranges):
                return None
            if kind == "ge" and self.nonnegative(size, ranges):
                continue
            if kind == "eq" and self.negative(-size, ranges):
                return None
            digits = self._digits(kind, size, ranges)
            if digits is not None:
                waiting += digits
            else:
                reduced[kind, size] = None
        return self._without_implied(list(reduced), ranges)

    def _without_implied(self, guards: list[Guard], ranges: Ranges) -> list[Guard] | None:
        needed = list(guards)
        names = {guard: set(indices_of(guard[1])) for guard in guards}
        for guard in sorted(guards, key=lambda guard: (guard[0], str(guard[1]))):
            for other in needed:
                if other == guard or guard[0] == "eq" or names[guard].isdisjoint(names[other]):
                    continue
                if other[0] == "eq":
                    same = (guard[1] + other[1], guard[1] - other[1])
                    if any(self.negative(size, ranges) for size in same):
                        return None
                    if any(self.nonnegative(size, ranges) for size in same):
                        needed.remove(guard)
                        break
                    continue
                if self.negative(guard[1] + other[1], ranges):
                    return None
                if self.nonnegative(guard[1] - other[1], ranges):
                    needed.remove(guard)
                    break
        return needed

    def _digits(self, kind: str, size: Poly, ranges: Ranges) -> list[Guard] | None:
        """``base * high + low`` with ``0 <= low < base``: what is said of the number is said of its digits."""
        bases = {
            slope for index in indices_of(size) if (parts := size.linear(index)) and not indices_of(slope := parts[0])
        }
        for base in sorted((b if self._size_nonnegative(b) else -b for b in bases), key=str):
            if base == poly(1) or len(base.terms) != 1:
                continue
            high, low = _divide(size, base)
            if not high:
                continue
            if kind == "eq":
                if self.nonnegative(base - 1 - low, ranges) and self.nonnegative(base - 1 + low, ranges):
                    return [("eq", high), ("eq", low)]
                continue
            for carry in (0, 1, -1):
                rest = low + base * carry
                if self.nonnegative(rest, ranges) and self.nonnegative(base - 1 - rest, ranges):
                    return [("ge", high - carry)]
        return None


def _divide(size: Poly, base: Poly) -> tuple[Poly, Poly]:
    high, low = ZERO, ZERO
    for monomial, number in size.terms.items():
        part = Poly({monomial: number})
        share = quotient(part, base)
        if share is not None and all(isinstance(factor, int) for factor in share.terms.values()):
            high = high + share
        else:
            low = low + part
    return high, low


def _primitive(kind: str, size: Poly) -> Poly:
    """Without a common factor; an equation begins with a positive number."""
    numbers = [int(number) for monomial, number in size.terms.items() if monomial]
    divisor = math.gcd(*numbers) if numbers else 1
    constant = int(size.terms.get((), 0))
    if divisor > 1 and (kind == "ge" or constant % divisor == 0):
        terms = {monomial: int(number) // divisor for monomial, number in size.terms.items() if monomial}
        terms[()] = math.floor(Fraction(constant, divisor))
        size = Poly(terms)
    if kind == "eq" and str(size) > str(-size):
        size = -size
    return size


def involves(guard: Guard, names: Sequence[str] | set[str]) -> bool:
    """Whether a condition is one on some of these indices."""
    return any(index in names for index in indices_of(guard[1]))


def negations(guard: Guard) -> list[Guard]:
    """Conditions of which one holds where it does not, and no two do."""
    kind, size = guard
    if kind == "ge":
        return [("ge", -size - 1)]
    return [("ge", size - 1), ("ge", -size - 1)]


def excludes(guard: Guard, other: Guard) -> bool:
    """Whether two conditions are known not to hold together, by what they say of one polynomial."""
    if "eq" not in (guard[0], other[0]):
        both = (guard[1] + other[1]).constant
        return both is not None and both < 0
    if guard[0] == other[0]:
        return any(apart.constant not in (None, 0) for apart in (guard[1] - other[1], guard[1] + other[1]))
    equal, bound = (guard[1], other[1]) if guard[0] == "eq" else (other[1], guard[1])
    values = [(bound - equal).constant, (bound + equal).constant]
    return any(value is not None and value < 0 for value in values)


def implies(guard: Guard, other: Guard) -> bool:
    """Whether a condition is known to hold where another does, by what they say of one polynomial."""
    if guard == other:
        return True
    if other[0] == "eq":
        return False
    values = [(other[1] - guard[1]).constant]
    if guard[0] == "eq":
        values.append((other[1] + guard[1]).constant)
    return any(value is not None and value >= 0 for value in values)
