"""The least sum of functions of few yes-or-no variables each, by eliminating one variable after the other.

After "Nonserial Dynamic Programming" (Bertelè and Brioschi, 1972): exact, in time exponential in how many variables
depend on each other at once: two for a chain, few for what trees and residual connections give.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

V = TypeVar("V", bound=Hashable)

WIDEST = 12
"""Variables that a table may have."""


class TooWideError(Exception):
    """Too many variables depend on each other at once."""


@dataclass(frozen=True)
class Table(Generic[V]):
    """A function of some variables.

    Attributes:
        variables: of which the last changes from one value to the next.
        values: for no and yes of each.
    """

    variables: tuple[V, ...]
    values: Sequence[float]

    def at(self, chosen: Mapping[V, bool]) -> float:
        """The value for a choice of all variables, and perhaps others."""
        number = 0
        for variable in self.variables:
            number = 2 * number + chosen[variable]
        return self.values[number]


def tabulated(variables: Sequence[V], value: Callable[[dict[V, bool]], float]) -> Table[V]:
    """A function as a table.

    Raises:
        TooWideError: it has more than `WIDEST` variables.
    """
    count = len(variables)
    if count > WIDEST:
        raise TooWideError
    choices = ([bool(number >> (count - 1 - n) & 1) for n in range(count)] for number in range(1 << count))
    return Table(tuple(variables), [value(dict(zip(variables, choice, strict=True))) for choice in choices])


def least(tables: Sequence[Table[V]]) -> dict[V, bool]:
    """A choice with the least sum.

    Raises:
        TooWideError: more than `WIDEST` variables depend on each other at once.
    """
    near: dict[V, dict[int, Table[V]]] = {}
    for number, table in enumerate(tables):
        for variable in table.variables:
            near.setdefault(variable, {})[number] = table

    def beside(variable: V) -> list[V]:
        every = (other for table in near[variable].values() for other in table.variables)
        return [other for other in dict.fromkeys(every) if other != variable]

    degrees = {variable: len(beside(variable)) for variable in near}
    eliminated: list[tuple[V, Table[V], Table[V]]] = []
    while degrees:
        variable = min(degrees, key=lambda one: degrees[one])
        others, with_it = beside(variable), near[variable]
        no, yes = (_summed(list(with_it.values()), others, variable, choice) for choice in (False, True))
        eliminated.append((variable, no, yes))
        both = Table(no.variables, [min(a, b) for a, b in zip(no.values, yes.values, strict=True)])
        del degrees[variable]
        for other in others:
            near[other] = {n: table for n, table in near[other].items() if n not in with_it}
            near[other][len(tables) + len(eliminated)] = both
        degrees |= {other: len(beside(other)) for other in others}
    chosen: dict[V, bool] = {}
    for variable, no, yes in reversed(eliminated):
        chosen[variable] = yes.at(chosen) < no.at(chosen)
    return chosen


def _summed(tables: Sequence[Table[V]], variables: Sequence[V], fixed: V, choice: bool) -> Table[V]:
    """The sum of some tables with one variable chosen."""
    return tabulated(variables, lambda chosen: sum(table.at({**chosen, fixed: choice}) for table in tables))
