"""Sizes and positions of tensors as polynomials in symbols, and what is known of their signs.

A symbol is the name of a size (at least 1), of a padding or border (its name begins with ``pad`` or ``border``: at
least 0), of an index (it begins with ``%``: its range is kept by whoever bound it), or the quotient of two sizes
rounded down.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

Number = int | Fraction
Monomial = tuple["Symbol", ...]


@dataclass(frozen=True)
class Floor:
    """``numerator / denominator`` rounded down, neither of them negative: a number of windows less one."""

    numerator: Poly
    denominator: Poly

    def __str__(self) -> str:
        return f"(({self.numerator})//({self.denominator}))"


Symbol = str | Floor


class Poly:
    """A polynomial with rational coefficients; immutable and hashable."""

    __slots__ = ("_hash", "_names", "_text", "terms")

    def __init__(self, terms: Mapping[Monomial, Number]) -> None:
        self.terms = {monomial: number for monomial, number in terms.items() if number}
        self._hash = hash(frozenset(self.terms.items()))
        self._text: str | None = None
        self._names: frozenset[str] | None = None

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Poly) and self._hash == other._hash and self.terms == other.terms

    def __bool__(self) -> bool:
        return bool(self.terms)

    def __add__(self, other: Poly | int) -> Poly:
        terms = dict(self.terms)
        for monomial, number in poly(other).terms.items():
            terms[monomial] = terms.get(monomial, 0) + number
        return Poly(terms)

    def __neg__(self) -> Poly:
        return Poly({monomial: -number for monomial, number in self.terms.items()})

    def __sub__(self, other: Poly | int) -> Poly:
        return self + -poly(other)

    def __mul__(self, other: Poly | Number) -> Poly:
        terms: dict[Monomial, Number] = {}
        for left, a in self.terms.items():
            for right, b in poly(other).terms.items():
                monomial = tuple(sorted(left + right, key=str)) if left and right else left or right
                terms[monomial] = terms.get(monomial, 0) + a * b
        return Poly(terms)

    def __str__(self) -> str:
        if self._text is None:
            self._text = self._written()
        return self._text

    def _written(self) -> str:
        if not self.terms:
            return "0"
        text = ""
        for monomial, number in sorted(
            self.terms.items(), key=lambda term: (-len(term[0]), str(list(map(str, term[0]))))
        ):
            size = abs(number)
            factors = ([str(size)] if size != 1 or not monomial else []) + [str(symbol) for symbol in monomial]
            text += (" - " if number < 0 else " + ") + "*".join(factors)
        return text[3:] if text.startswith(" + ") else "-" + text[3:]

    def __repr__(self) -> str:
        return f"Poly({self})"

    @property
    def constant(self) -> Number | None:
        """Its value, where there is no symbol in it."""
        if not self.terms:
            return 0
        return self.terms[()] if len(self.terms) == 1 and () in self.terms else None

    def symbols(self) -> set[Symbol]:
        """All symbols in it; those within quotients are not looked for."""
        return {symbol for monomial in self.terms for symbol in monomial}

    def names(self) -> frozenset[str]:
        """Names in it, those within quotients too."""
        if self._names is None:
            names: set[str] = set()
            for symbol in self.symbols():
                names |= {symbol} if isinstance(symbol, str) else symbol.numerator.names() | symbol.denominator.names()
            self._names = frozenset(names)
        return self._names

    def linear(self, symbol: Symbol) -> tuple[Poly, Poly] | None:
        """``(a, b)`` with ``self = a * symbol + b`` and no symbol in either; None where it is not linear in it."""
        inner: dict[Monomial, Number] = {}
        rest: dict[Monomial, Number] = {}
        for monomial, number in self.terms.items():
            count = monomial.count(symbol)
            if count > 1:
                return None
            if count:
                at = monomial.index(symbol)
                inner[monomial[:at] + monomial[at + 1 :]] = number
            else:
                rest[monomial] = number
        return Poly(inner), Poly(rest)

    def substitute(self, values: Mapping[str, Poly]) -> Poly:
        """With polynomials for names, those within quotients too."""
        if not values or not (self.names() & values.keys()):
            return self
        result = ZERO
        for monomial, number in self.terms.items():
            product = poly(number)
            for symbol in monomial:
                if isinstance(symbol, str):
                    product = product * values.get(symbol, of(symbol))
                else:
                    product = product * floor(
                        symbol.numerator.substitute(values), symbol.denominator.substitute(values)
                    )
            result = result + product
        return result

    def value(self, values: Mapping[str, int]) -> int:
        """A whole number for each name.

        Raises:
            ValueError: it is not a whole number.
        """
        total: Number = 0
        for monomial, number in self.terms.items():
            product = number
            for symbol in monomial:
                if isinstance(symbol, str):
                    product *= values[symbol]
                else:
                    product *= symbol.numerator.value(values) // symbol.denominator.value(values)
            total += product
        if total != int(total):
            raise ValueError(f"{self} is {total}, which is no size")
        return int(total)


def poly(value: Poly | Number) -> Poly:
    """A number as a polynomial."""
    return value if isinstance(value, Poly) else Poly({(): value})


def of(symbol: Symbol) -> Poly:
    """A symbol as a polynomial."""
    return Poly({(symbol,): 1})


ZERO, ONE = poly(0), poly(1)


def total(polys: Iterable[Poly]) -> Poly:
    """Their sum."""
    return sum(polys, start=ZERO)


def product(polys: Iterable[Poly]) -> Poly:
    """Their product."""
    return math.prod(polys, start=ONE)


def quotient(numerator: Poly, denominator: Poly) -> Poly | None:
    """Where the division by a monomial, or by itself, leaves nothing: what it gives."""
    if numerator == denominator:
        return ONE
    if len(denominator.terms) != 1:
        return None
    ((divisor, number),) = denominator.terms.items()
    terms: dict[Monomial, Number] = {}
    for monomial, factor in numerator.terms.items():
        rest = list(monomial)
        for symbol in divisor:
            if symbol not in rest:
                return None
            rest.remove(symbol)
        share = Fraction(factor) / number
        terms[tuple(rest)] = int(share) if share.denominator == 1 else share
    return Poly(terms)


def floor(numerator: Poly, denominator: Poly) -> Poly:
    """The quotient, rounded down. The numerator is not negative."""
    share = quotient(numerator, denominator)
    if share is not None and all(isinstance(number, int) for number in share.terms.values()):
        return share
    if numerator.constant is not None and denominator.constant is not None:
        return poly(math.floor(Fraction(numerator.constant) / denominator.constant))
    return of(Floor(numerator, denominator))


def least(symbol: Symbol) -> int:
    """The least value that a size may have."""
    return 0 if isinstance(symbol, Floor) or symbol.startswith(("pad", "border")) else 1


@functools.lru_cache(maxsize=1 << 16)
def is_nonnegative(size: Poly) -> bool:
    """Whether a polynomial in sizes is known to be at least 0: all coefficients are, when each symbol is its least
    value and something more. False says nothing."""
    expanded = ZERO
    for monomial, number in size.terms.items():
        term = poly(number)
        for symbol in monomial:
            term = term * (of(symbol) + least(symbol))
        expanded = expanded + term
    return all(number >= 0 for number in expanded.terms.values())
