"""Winograd's minimal filtering in two dimensions (Lavin and Gray 2015, https://arxiv.org/abs/1509.09308): of tiles of
``size * size`` results of a filter of `TAPS` taps in each, that steps by ``stride``.

``y = A^T ((G g G^T) * (B^T d B)) A``: each of the three is applied to columns, then to rows.

With a stride of 2, results are made of the even elements by the even taps and of the odd elements by the odd ones
(polyphase components): each is a filtering of stride 1, of two taps and of one.

Errors are analysed by Barabasz, Anderson, Soodhalter and Gregg 2020, https://arxiv.org/abs/1803.10986.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Value
from covan_mlir.lowering.kernels.cpu.minimal_filtering import Filtering, Matrix, Row

TAPS = 3
"""Of the filter, in each dimension."""

ROUNDINGS = 20
"""Roundings besides those of a sum over channels: of two passes each of both transforms, and of the filter's."""

SIZES = (2, 4)
"""Results of a tile in each dimension that there are points for."""

STRIDES = (1, 2)
"""Of filters that there are points for."""


@dataclass(frozen=True)
class Algorithm:
    """F(size x size, 3 x 3) with a stride.

    Attributes:
        size: results of a tile, in each dimension.
        stride: elements from what one result is made of to what the next one is, in each dimension.
    """

    size: int
    stride: int = 1

    @cached_property
    def phases(self) -> tuple[Filtering, ...]:
        """Of every ``stride``-th element and tap, from each of the first ones on."""
        return tuple(Filtering(self.size, len(range(phase, TAPS, self.stride))) for phase in range(self.stride))

    @property
    def span(self) -> int:
        """Elements that a tile's results are made of, in each dimension; so many products there are, too."""
        return sum(phase.span for phase in self.phases)

    @cached_property
    def inputs(self) -> Matrix:
        """``B^T``."""
        rows = []
        for n, phase in enumerate(self.phases):
            rows += [_spread(row, n, self.stride, self.span) for row in phase.inputs]
        return tuple(rows)

    @cached_property
    def filters(self) -> Matrix:
        """``G``."""
        rows = []
        for n, phase in enumerate(self.phases):
            rows += [_spread(row, n, self.stride, TAPS) for row in phase.filters]
        return tuple(rows)

    @cached_property
    def results(self) -> Matrix:
        """``A^T``."""
        return tuple(tuple(c for phase in self.phases for c in phase.results[n]) for n in range(self.size))

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

    @property
    def operations(self) -> int:
        """Additions that `transform` takes, about."""
        return sum(phase.operations for phase in self.phases)

    def transform(self, code: KernelBuilder, values: Sequence[Value]) -> list[Value]:
        """``B^T`` times a column of vectors."""
        phases = enumerate(self.phases)
        return [value for n, phase in phases for value in phase.transform(code, values[n :: self.stride])]

    def interpolate(self, code: KernelBuilder, values: Sequence[Value]) -> list[Value]:
        """``A^T`` times a column of vectors."""
        begin, sums = 0, list[Value]()
        for phase in self.phases:
            results = phase.interpolate(code, values[begin : begin + phase.span])
            sums = [code.op("addf", *pair) for pair in zip(sums, results, strict=True)] if sums else results
            begin += phase.span
        return sums


def _spread(row: Row, first: int, step: int, length: int) -> Row:
    """Coefficients of every ``step``-th of so many elements, as those of all."""
    spread = [Fraction(0)] * length
    for n, coefficient in enumerate(row):
        spread[first + n * step] = coefficient
    return tuple(spread)
