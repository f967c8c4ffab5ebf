"""Index arithmetic of a kernel, each value written once.

An address is a sum of loop counters with constant factors, and hundreds of them in a kernel differ by a constant. They
are kept in normal form (a constant and a factor for each value that is no such sum, as in LLVM's scalar evolution), so
that one that was written before, or that differs from it by a constant, is known for what it is::

    (i + 1) * 576 + k * 9        becomes        (i * 576 + k * 9) + 576

and only the last sum is written anew. Compilers find the same, after they have read all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from iree.compiler.dialects import arith

Value = Any
"""An ``ir.Value`` of type ``index``."""


@dataclass(frozen=True)
class Linear:
    """``constant + sum of factor * value``.

    Attributes:
        terms: (number of a value, factor), by number; no factor is 0.
    """

    terms: tuple[tuple[int, int], ...] = ()
    constant: int = 0

    def plus(self, other: Linear) -> Linear:
        """The sum of both."""
        if not other.terms:
            return replace(self, constant=self.constant + other.constant)
        factors = dict(self.terms)
        for number, factor in other.terms:
            factors[number] = factors.get(number, 0) + factor
        terms = tuple(sorted((number, factor) for number, factor in factors.items() if factor))
        return Linear(terms, self.constant + other.constant)

    def times(self, factor: int) -> Linear:
        """So many times this one."""
        if not factor:
            return Linear()
        return Linear(tuple((number, one * factor) for number, one in self.terms), self.constant * factor)

    def divides(self, by: int) -> bool:
        """Whether every value of it is a multiple of a number, whatever the values are."""
        return self.constant % by == 0 and all(factor % by == 0 for _, factor in self.terms)

    def over(self, by: int) -> Linear:
        """An exact quotient."""
        return Linear(tuple((number, factor // by) for number, factor in self.terms), self.constant // by)


class Indices:
    """The index values of one function.

    What is written inside of a region is known there only: see `region`.

    Args:
        constant: writes a constant where all of the function sees it.
    """

    def __init__(self, constant: Callable[[int], Value]) -> None:
        self._constant = constant
        self._values: list[Value] = []
        self._forms: dict[Value, Linear] = {}
        self._written: dict[object, Value] = {}
        self._order: list[object] = []
        self._results: list[Value] = []

    @contextmanager
    def region(self) -> Iterator[None]:
        """What is written meanwhile is not seen afterwards."""
        before = len(self._order)
        try:
            yield
        finally:
            for key in self._order[before:]:
                del self._written[key]
            del self._order[before:]

    def known(self, constant: Value, number: int) -> None:
        """A value is a constant."""
        self._forms[constant] = Linear((), number)

    def form(self, value: Value | int) -> Linear:
        """The normal form of a value."""
        if isinstance(value, int):
            return Linear((), value)
        form = self._forms.get(value)
        if form is None:
            form = self._forms[value] = Linear(((len(self._values), 1),))
            self._values.append(value)
        return form

    def value(self, form: Linear) -> Value:
        """The value of a normal form."""
        if not form.terms:
            return self._constant(form.constant)
        if form.constant == 0 and len(form.terms) == 1 and form.terms[0][1] == 1:
            return self._values[form.terms[0][0]]
        return self.once(form, lambda: self._sum(form), form)

    def once(self, key: object, write: Callable[[], Value], form: Linear | None = None) -> Value:
        """What was written under a key, where it is seen; else it is written.

        Args:
            form: its normal form, if it has one that is not itself.
        """
        value = self._written.get(key)
        if value is None:
            value = self._written[key] = write()
            self._order.append(key)
            self._results.append(value)
            if form is not None:
                self._forms[value] = form
        return value

    def add(self, *values: Value | int) -> Value:
        """A sum."""
        total = Linear()
        for value in values:
            total = total.plus(self.form(value))
        return self.value(total)

    def sub(self, value: Value | int, other: Value | int) -> Value:
        """A difference."""
        return self.value(self.form(value).plus(self.form(other).times(-1)))

    def mul(self, value: Value | int, factor: Value | int) -> Value:
        """A product."""
        one, other = self.form(value), self.form(factor)
        if not one.terms:
            one, other = other, one
        if not other.terms:
            return self.value(one.times(other.constant))
        factors = self.value(one), self.value(other)
        return self.once(("muli", one, other), lambda: arith.muli(*factors))

    def divmod(self, value: Value, by: Value | int) -> tuple[Value, Value]:
        """Quotient and remainder of a value that is not negative."""
        one, other = self.form(value), self.form(by)
        if not other.terms and one.divides(other.constant):
            return self.value(one.over(other.constant)), self.value(Linear())
        if not other.terms and not one.terms:
            quotient, remainder = divmod(one.constant, other.constant)
            return self._constant(quotient), self._constant(remainder)
        operands = self.value(one), self.value(other)
        quotient = self.once(("divui", one, other), lambda: arith.divui(*operands))
        return quotient, self.once(("remui", one, other), lambda: arith.remui(*operands))

    def extreme(self, name: str, value: Value | int, bound: Value | int) -> Value:
        """The smaller (``minsi``) or larger (``maxsi``) of two values."""
        one, other = self.form(value), self.form(bound)
        if one.terms == other.terms:
            pick = min if name == "minsi" else max
            return self.value(replace(one, constant=pick(one.constant, other.constant)))
        operands = self.value(one), self.value(other)
        return self.once((name, one, other), lambda: getattr(arith, name)(*operands))

    def erase_unused(self) -> None:
        """Erases what nothing was made of; nothing is to be written afterwards."""
        for value in reversed(self._results):
            if next(iter(value.uses), None) is None:
                value.owner.operation.erase()
        self._results.clear()

    def _sum(self, form: Linear) -> Value:
        """Writes a sum, the values that were known first, which are those of outer loops, first."""
        if form.constant:
            return arith.addi(self.value(replace(form, constant=0)), self._constant(form.constant))
        *before, (number, factor) = form.terms
        if before:
            return arith.addi(self.value(Linear(tuple(before))), self.value(Linear(((number, factor),))))
        return arith.muli(self._values[number], self._constant(factor))
