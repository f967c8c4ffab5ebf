"""Winograd's minimal filtering (Lavin and Gray 2015, https://arxiv.org/abs/1509.09308), as Toom and Cook derive it: the
filter and what it slides over are polynomials, evaluated at some points, multiplied there, and interpolated.

``y = A^T ((G g) * (B^T d))`` gives ``size`` results of a filter ``g`` of `TAPS` taps over ``d`` with
``size + TAPS - 1`` multiplications; in two dimensions, each of the three is applied to columns, then to rows.

Errors are analysed by Barabasz, Anderson, Soodhalter and Gregg 2020, https://arxiv.org/abs/1803.10986.

The points are 0, infinity and pairs ``p, -p``, whose rows differ in the signs of odd powers only, so that they share
their halves. Which ones they are decides the error: 3/4 and 3/2 keep the powers of all of them near 1, and are exact
(Alam, Anderson, Barabasz and Gregg 2022, https://arxiv.org/abs/2201.10369, on the choice of points).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import prod

from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Value

TAPS = 3
"""Of the filter, in each dimension."""

ROUNDINGS = 20
"""Roundings besides those of a sum over channels: of two passes each of both transforms, and of the filter's."""

Matrix = tuple[tuple[Fraction, ...], ...]

_PAIRS = {2: (Fraction(1),), 4: (Fraction(3, 4), Fraction(3, 2))}
"""The points p of the pairs, by the number of results."""

SIZES = tuple(_PAIRS)
"""Results of a tile in each dimension that there are points for."""


@dataclass(frozen=True)
class Algorithm:
    """F(size x size, 3 x 3).

    Attributes:
        size: results of a tile, in each dimension.
    """

    size: int

    @property
    def span(self) -> int:
        """Elements that a tile's results are made of, in each dimension; so many products there are, too."""
        return self.size + TAPS - 1

    @cached_property
    def points(self) -> tuple[Fraction, ...]:
        """All but infinity: 0, then pairs ``p, -p``."""
        return (Fraction(0), *(point for p in _PAIRS[self.size] for point in (p, -p)))

    @cached_property
    def inputs(self) -> Matrix:
        """``B^T``: the values of Lagrange's polynomials' numerators."""
        rows = [_expanded([q for q in self.points if q != p], self.span) for p in self.points]
        return (*rows, _expanded(self.points, self.span))

    @cached_property
    def filters(self) -> Matrix:
        """``G``: the values of a filter, divided by the polynomials' denominators."""
        rows = []
        for p in self.points:
            under = prod((p - q for q in self.points if q != p), start=Fraction(1))
            rows.append(tuple(p**n / under for n in range(TAPS)))
        return (*rows, (Fraction(0), Fraction(0), Fraction(1)))

    @cached_property
    def results(self) -> Matrix:
        """``A^T``: powers of the points."""
        last = self.size - 1
        return tuple((*(p**n for p in self.points), Fraction(1 if n == last else 0)) for n in range(self.size))

    @cached_property
    def error(self) -> float:
        """The rounding error of a sum of products of random numbers, in that of the direct sum: if each addition rounds
        by as much as its result is long on average. A product's length is that of the rows that it is made of, and a
        direct sum has `TAPS` squared times as many."""

        def square(row: Sequence[Fraction]) -> float:
            return float(sum(c * c for c in row))

        lengths = [square(b) * square(g) for b, g in zip(self.inputs, self.filters, strict=True)]
        worst = max(sum(float(a) ** 2 * n for a, n in zip(row, lengths, strict=True)) for row in self.results)
        return worst / TAPS**2

    @cached_property
    def amplification(self) -> float:
        """How many times as large as in the direct sum, with all terms at their largest, the absolute values can be
        that are added up in one dimension: the largest of ``|A^T| (|G| 1 * |B^T| 1)``, divided by `TAPS`."""

        def norm(row: Sequence[Fraction]) -> Fraction:
            return sum((abs(c) for c in row), start=Fraction(0))

        lengths = [norm(b) * norm(g) for b, g in zip(self.inputs, self.filters, strict=True)]
        worst = max(sum(abs(a) * n for a, n in zip(row, lengths, strict=True)) for row in self.results)
        return float(worst) / TAPS

    def bound(self, channels: int) -> float:
        """The most that a result's rounding error can be, in units of the largest product of an element and a weight;
        of first order in the unit roundoff of single precision."""
        unit = 2.0**-24
        return (channels + ROUNDINGS) * unit * self.amplification**2 * TAPS**2 * channels

    def transform(self, code: KernelBuilder, values: Sequence[Value]) -> list[Value]:
        """``B^T`` times a column of vectors."""
        transformed = [_combined(code, self.inputs[0], values)]
        for n, p in enumerate(_PAIRS[self.size]):
            row = self.inputs[1 + 2 * n]
            even = _combined(code, [c if k % 2 == 0 else Fraction(0) for k, c in enumerate(row)], values)
            odd = _combined(code, [c / p if k % 2 else Fraction(0) for k, c in enumerate(row)], values)
            transformed += [_combined(code, (Fraction(1), sign * p), (even, odd)) for sign in (1, -1)]
        return [*transformed, _combined(code, self.inputs[-1], values)]

    def interpolate(self, code: KernelBuilder, values: Sequence[Value]) -> list[Value]:
        """``A^T`` times a column of vectors."""
        pairs = [(values[1 + 2 * n], values[2 + 2 * n]) for n in range(len(_PAIRS[self.size]))]
        halves = [[code.op(op, a, b) for a, b in pairs] for op in ("addf", "subf")]
        results = []
        for n in range(self.size):
            terms = [(p**n, half) for p, half in zip(_PAIRS[self.size], halves[n % 2], strict=True)]
            terms += [(Fraction(1), values[0])] if n == 0 else []
            terms += [(Fraction(1), values[-1])] if n == self.size - 1 else []
            results.append(_combined(code, *zip(*terms, strict=True)))
        return results


def _expanded(roots: Sequence[Fraction], length: int) -> tuple[Fraction, ...]:
    """The coefficients of the product of all ``x - root``, the lowest power first."""
    coefficients = [Fraction(1)]
    for root in roots:
        shifted = [Fraction(0), *coefficients]
        coefficients = [a - root * b for a, b in zip(shifted, [*coefficients, Fraction(0)], strict=True)]
    return tuple(coefficients) + (Fraction(0),) * (length - len(coefficients))


def _combined(code: KernelBuilder, coefficients: Sequence[Fraction], values: Sequence[Value]) -> Value:
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
