"""Minimal filtering in one dimension, as Toom and Cook derive it (Lavin and Gray 2015,
https://arxiv.org/abs/1509.09308): the filter and what it slides over are polynomials, evaluated at some points,
multiplied there, and interpolated.

``y = A^T ((G g) * (B^T d))`` gives ``size`` results of a filter ``g`` of ``taps`` taps over ``d`` with
``size + taps - 1`` multiplications.

The points are infinity, pairs ``p, -p``, whose rows differ in the signs of every second power only, so that they share
their halves, and 0 where their number asks for it. Which ones they are decides the error: those here keep the powers
of all of them near 1, and are exact (Alam, Anderson, Barabasz and Gregg 2022, https://arxiv.org/abs/2201.10369, on the
choice of points).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import prod

from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Value

Row = tuple[Fraction, ...]
Matrix = tuple[Row, ...]

_PAIRS: dict[int, Row] = {
    0: (),
    1: (Fraction(1),),
    2: (Fraction(1, 2), Fraction(5, 4)),
}
_PAIRS_WITH_ZERO: dict[int, Row] = {
    1: (Fraction(1),),
    2: (Fraction(3, 4), Fraction(3, 2)),
}
"""The points p of the pairs, by their number."""


@dataclass(frozen=True)
class Filtering:
    """F(size, taps).

    Attributes:
        size: results.
        taps: of the filter. With one there is nothing to save: results are products.
    """

    size: int
    taps: int

    @property
    def span(self) -> int:
        """Elements that the results are made of; so many products there are, too."""
        return self.size + self.taps - 1

    @cached_property
    def pairs(self) -> Row:
        """The points p of which -p is one, too."""
        finite = self.span - 1
        return (_PAIRS_WITH_ZERO if finite % 2 else _PAIRS)[finite // 2]

    @cached_property
    def points(self) -> Row:
        """All but infinity."""
        zero = (Fraction(0),) if (self.span - 1) % 2 else ()
        return (*zero, *(point for p in self.pairs for point in (p, -p)))

    @cached_property
    def inputs(self) -> Matrix:
        """``B^T``: the values of Lagrange's polynomials' numerators."""
        if self.taps == 1:
            return _identity(self.size)
        rows = [_expanded([q for q in self.points if q != p], self.span) for p in self.points]
        return (*rows, _expanded(self.points, self.span))

    @cached_property
    def filters(self) -> Matrix:
        """``G``: the values of a filter, divided by the polynomials' denominators."""
        if self.taps == 1:
            return ((Fraction(1),),) * self.size
        rows = []
        for p in self.points:
            under = prod((p - q for q in self.points if q != p), start=Fraction(1))
            rows.append(tuple(p**n / under for n in range(self.taps)))
        return (*rows, (*(Fraction(0),) * (self.taps - 1), Fraction(1)))

    @cached_property
    def results(self) -> Matrix:
        """``A^T``: powers of the points."""
        if self.taps == 1:
            return _identity(self.size)
        last = self.size - 1
        return tuple((*(p**n for p in self.points), Fraction(1 if n == last else 0)) for n in range(self.size))

    @property
    def operations(self) -> int:
        """Additions that `transform` takes, about: two for each of its results."""
        return 0 if self.taps == 1 else 2 * self.span

    def transform(self, code: KernelBuilder, values: Sequence[Value]) -> list[Value]:
        """``B^T`` times a column of vectors."""
        if self.taps == 1:
            return list(values)
        zero = len(self.points) % 2
        transformed = [combined(code, self.inputs[0], values)] if zero else []
        for n, p in enumerate(self.pairs):
            # Of (x + p) times a function of x squared, and of x where 0 is a point: the half with the highest power,
            # then that which has p as a factor.
            row = self.inputs[zero + 2 * n]
            leading = max(k for k, c in enumerate(row) if c) % 2
            high = combined(code, [c if k % 2 == leading else Fraction(0) for k, c in enumerate(row)], values)
            low = combined(code, [c / p if k % 2 != leading else Fraction(0) for k, c in enumerate(row)], values)
            transformed += [combined(code, (Fraction(1), sign * p), (high, low)) for sign in (1, -1)]
        return [*transformed, combined(code, self.inputs[-1], values)]

    def interpolate(self, code: KernelBuilder, values: Sequence[Value]) -> list[Value]:
        """``A^T`` times a column of vectors."""
        if self.taps == 1:
            return list(values)
        zero = len(self.points) % 2
        pairs = [(values[zero + 2 * n], values[zero + 2 * n + 1]) for n in range(len(self.pairs))]
        halves = [[code.op(op, a, b) for a, b in pairs] for op in ("addf", "subf")]
        results = []
        for n in range(self.size):
            terms = [(p**n, half) for p, half in zip(self.pairs, halves[n % 2], strict=True)]
            terms += [(Fraction(1), values[0])] if n == 0 and zero else []
            terms += [(Fraction(1), values[-1])] if n == self.size - 1 else []
            results.append(combined(code, *zip(*terms, strict=True)))
        return results


def _identity(size: int) -> Matrix:
    return tuple(tuple(Fraction(int(k == n)) for k in range(size)) for n in range(size))


def _expanded(roots: Sequence[Fraction], length: int) -> Row:
    """The coefficients of the product of all ``x - root``, the lowest power first."""
    coefficients = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *coefficients]
        coefficients = [a - root * b for a, b in zip(shifted, [*coefficients, Fraction(0)], strict=True)]
    return tuple(coefficients) + (Fraction(0),) * (length - len(coefficients))


def combined(code: KernelBuilder, coefficients: Sequence[Fraction], values: Sequence[Value]) -> Value:
    """A sum of multiples; one with the coefficient 1 is what the others are added to."""
    terms = [(c, v) for c, v in zip(coefficients, values, strict=True) if c]
    terms.sort(key=lambda term: (term[0] != 1, abs(term[0]) != 1))
    total: Value | None = None
    for coefficient, value in terms:
        if total is not None and abs(coefficient) == 1:
            total = code.op("addf" if coefficient > 0 else "subf", total, value)
            continue
        term = value if coefficient == 1 else code.op("mulf", value, code.like(float(coefficient), value))
        total = term if total is None else code.op("addf", total, term)
    assert total is not None
    return total
