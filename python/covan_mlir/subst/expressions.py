"""What one element of a tensor is: a sum of products of elements of other tensors, each summand over indices of its
own and under conditions on them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from covan_mlir.subst.sizes import ONE, Poly, of

Guard = tuple[Literal["ge", "eq"], Poly]
"""That a polynomial is at least 0, or that it is 0."""

Bound = tuple[tuple[str, Poly], ...]
"""Indices, each with its size: it goes from 0 to below that."""


@dataclass(frozen=True)
class Read:
    """An element of a tensor."""

    name: str
    at: tuple[Poly, ...]

    def __str__(self) -> str:
        return f"{self.name}[{', '.join(map(str, self.at))}]"


@dataclass(frozen=True)
class Reciprocal:
    """Of a size."""

    size: Poly

    def __str__(self) -> str:
        return f"1/({self.size})"


@dataclass(frozen=True)
class Function:
    """A function of numbers of which nothing is known but that it is one."""

    name: str
    args: tuple[Sum, ...]

    def __str__(self) -> str:
        return f"{self.name}({'; '.join(map(show, self.args))})"


@dataclass(frozen=True)
class Option:
    """Numbers among which the greatest is looked for: one for each point of the indices that the conditions allow.

    Attributes:
        inhabited: there is such a point, by what the operator is.
    """

    value: Sum
    bound: Bound = ()
    guards: frozenset[Guard] = frozenset()
    inhabited: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return _scope(self.bound, self.guards) + show(self.value)


@dataclass(frozen=True)
class Greatest:
    """The greatest of all options, of which there is at least one."""

    options: frozenset[Option]

    def __str__(self) -> str:
        return f"greatest{{{'; '.join(sorted(map(str, self.options)))}}}"


Factor = Read | Reciprocal | Function | Greatest


@dataclass(frozen=True)
class Piece:
    """``number * product of factors``, summed over ``bound`` where all ``guards`` hold."""

    number: Poly = ONE
    factors: tuple[Factor, ...] = ()
    bound: Bound = ()
    guards: frozenset[Guard] = field(default=frozenset())

    def __str__(self) -> str:
        factors = [str(factor) for factor in self.factors]
        number = [] if self.number == ONE and factors else [f"({self.number})"]
        return _scope(self.bound, self.guards) + " * ".join(number + factors)


Sum = tuple[Piece, ...]


def _scope(bound: Bound, guards: frozenset[Guard]) -> str:
    text = "".join(f"Σ{index}<{size} " for index, size in bound)
    conditions = sorted(f"{size} {'>=' if kind == 'ge' else '=='} 0" for kind, size in guards)
    return text + (f"[{' & '.join(conditions)}] " if conditions else "")


def show(value: Sum) -> str:
    """Its text; equal sums in normal form have equal texts."""
    return " + ".join(sorted(map(str, value))) or "0"


_numbers = itertools.count()


def fresh() -> Poly:
    """An index that nothing else is called."""
    return of(f"%{next(_numbers)}")


def index_name(index: Poly) -> str:
    """The name of what `fresh` gave."""
    ((name,),) = index.terms
    assert isinstance(name, str)
    return name


def at_least(size: Poly) -> Guard:
    """That it is not negative."""
    return "ge", size


def zero(size: Poly) -> Guard:
    """That it is 0."""
    return "eq", size


def within(position: Poly, size: Poly) -> frozenset[Guard]:
    """That a position is in an axis."""
    return frozenset([at_least(position), at_least(size - 1 - position)])


def guarded(value: Sum, guards: Iterable[Guard]) -> Sum:
    """It, where the conditions hold, and 0 elsewhere."""
    more = frozenset(guards)
    return tuple(Piece(piece.number, piece.factors, piece.bound, piece.guards | more) for piece in value)


def over(value: Sum, bound: Iterable[tuple[Poly, Poly]]) -> Sum:
    """Summed over indices with their sizes."""
    more = tuple((index_name(index), size) for index, size in bound)
    return tuple(Piece(piece.number, piece.factors, piece.bound + more, piece.guards) for piece in value)


def times(left: Sum, right: Sum) -> Sum:
    """Their product. No index may be bound in both."""
    return tuple(
        Piece(a.number * b.number, a.factors + b.factors, a.bound + b.bound, a.guards | b.guards)
        for a in left
        for b in right
    )


def scaled(value: Sum, number: Poly) -> Sum:
    """Times a number."""
    return tuple(Piece(piece.number * number, piece.factors, piece.bound, piece.guards) for piece in value)


def single(factor: Factor) -> Sum:
    """A factor alone."""
    return (Piece(factors=(factor,)),)


def map_sizes(value: Sum, change: Callable[[Poly], Poly]) -> Sum:
    """With each polynomial of indices and sizes in it changed."""
    return tuple(
        Piece(
            change(piece.number),
            tuple(map_factor(factor, change) for factor in piece.factors),
            tuple((index, change(size)) for index, size in piece.bound),
            frozenset((kind, change(size)) for kind, size in piece.guards),
        )
        for piece in value
    )


def map_factor(factor: Factor, change: Callable[[Poly], Poly]) -> Factor:
    """With each polynomial in it changed."""
    if isinstance(factor, Read):
        return Read(factor.name, tuple(map(change, factor.at)))
    if isinstance(factor, Reciprocal):
        return Reciprocal(change(factor.size))
    if isinstance(factor, Function):
        return Function(factor.name, tuple(map_sizes(arg, change) for arg in factor.args))
    return Greatest(
        frozenset(
            Option(
                map_sizes(option.value, change),
                tuple((index, change(size)) for index, size in option.bound),
                frozenset((kind, change(size)) for kind, size in option.guards),
                option.inhabited,
            )
            for option in factor.options
        )
    )


def substitute(factor: Factor, values: Mapping[str, Poly]) -> Factor:
    """With polynomials for indices that are not bound in it."""
    if not (indices(factor) & values.keys()):
        return factor
    return map_factor(factor, lambda size: size.substitute(values))


@functools.lru_cache(maxsize=1 << 16)
def indices(factor: Factor) -> frozenset[str]:
    """Names in it, bound or not."""
    names: set[str] = set()

    def note(size: Poly) -> Poly:
        names.update(size.names())
        return size

    map_factor(factor, note)
    return frozenset(names)
