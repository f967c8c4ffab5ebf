"""Tensors whose elements are computed when they are asked for: only what a few sampled results need is ever computed.

Floats of all widths are float64: what is compared is what is computed, not how it is rounded. Within `exactly` they are
pairs (`covan_mlir.checking.field`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from covan_mlir.checking.field import PAIR, constant
from covan_mlir.fred.scalars import DTYPES, FLOATS, Array

_DENSE = 1 << 16
"""Elements of a tensor whose values are kept in the place of each; of larger ones, of those that were asked for, until
as many are asked for at once as there are."""
_AT_ONCE = 1 << 19
_DEEP = 20_000
"""Functions that are called by one another: a tensor that is computed of another takes some ten."""
_UNDEFINED = np.uint64(0x7FF8_0000_0BAD_0BAD).view(np.float64)
"""Not a number, and none that arithmetic gives of numbers."""


class UnevaluatedError(Exception):
    """An operation is not known here, or its operands are of another form; the message names it."""


@dataclass
class Budget:
    """How many elements may still be computed, and how many were.

    Attributes:
        exhausted: what was left out, if more were asked for, in words.
    """

    left: int
    spent: int = 0
    exhausted: str = ""


_BUDGET: ContextVar[Budget | None] = ContextVar("budget", default=None)


@contextmanager
def limited(elements: int) -> Iterator[Budget]:
    """Within, no more than so many elements are computed: `spend` raises instead. Memory follows from that."""
    budget = Budget(elements)
    token = _BUDGET.set(budget)
    try:
        yield budget
    finally:
        _BUDGET.reset(token)


def spent() -> int:
    """Elements that were computed within `limited`."""
    budget = _BUDGET.get()
    return budget.spent if budget is not None else 0


def confine(elements: int) -> None:
    """From here on, no more than so many are computed within `limited`, those before counted."""
    if (budget := _BUDGET.get()) is not None:
        budget.left = max(0, min(budget.left, elements - budget.spent))


def spend(elements: int, what: str) -> None:
    """Tells that elements are about to be computed.

    Raises:
        UnevaluatedError: they are too many; the message says of what.
    """
    budget = _BUDGET.get()
    if budget is None:
        return
    if elements > budget.left:
        budget.exhausted = f"{what}: telling what this result is takes more work than is allowed for one"
        raise UnevaluatedError(budget.exhausted)
    budget.left -= elements
    budget.spent += elements


@contextmanager
def deep() -> Iterator[None]:
    """Within, tensors may be computed of one another in longer chains than Python calls functions."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, _DEEP))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


_EXACT: ContextVar[bool] = ContextVar("exact", default=False)


@contextmanager
def exactly(*, exact: bool = True) -> Iterator[None]:
    """Within, floats are computed in exact arithmetic, or not."""
    token = _EXACT.set(exact)
    try:
        yield
    finally:
        _EXACT.reset(token)


_UNSIGNED = {f"u{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)}
"""As torch's types are called; those of the code have no signs."""


def wide(element: str) -> np.dtype[Any]:
    """The type that elements are computed in."""
    if is_float(element):
        return PAIR if _EXACT.get() else np.dtype(np.float64)
    if element.startswith("complex<"):
        return np.dtype(np.complex128)
    if element in _UNSIGNED:
        return _UNSIGNED[element]
    if element not in DTYPES:
        raise UnevaluatedError(f"elements of type {element}")
    return DTYPES[element]


def is_float(element: str) -> bool:
    """Whether elements are floating-point numbers, of 8 bits and of more."""
    return element in FLOATS or element.startswith("f8")


def cast(values: Any, dtype: np.dtype[Any], *, half: bool = False) -> Array:
    """Numbers of the code in a type."""
    array = np.asarray(values)
    if dtype == PAIR:
        return array if array.dtype == PAIR else constant(array, half=half)
    return array.astype(dtype)


def typed(values: Array, dtype: np.dtype[Any]) -> Array:
    """What was computed, in a type.

    Raises:
        UnevaluatedError: it should be exact and is not.
    """
    if PAIR in (values.dtype, dtype) and values.dtype != dtype:
        raise UnevaluatedError("an operation without exact arithmetic")
    with np.errstate(invalid="ignore"):  # no integer is what NaN becomes: whatever comes of it agrees with nothing
        return values.astype(dtype, copy=False)


class Tensor:
    """Elements by position.

    Args:
        compute: the elements at some positions, given per dimension; called with each position once.
        name: of the operation, for messages.
    """

    def __init__(
        self,
        shape: Sequence[int],
        dtype: np.dtype[Any],
        compute: Callable[[tuple[Array, ...]], Array],
        name: str = "a tensor",
    ) -> None:
        self.shape = tuple(shape)
        self.dtype = dtype
        self.size = prod(self.shape)
        self._compute = compute
        self._name = name
        self._values = np.zeros(0, dtype)
        self._known: Array | None = None
        self._places = np.zeros(0, np.int64)

    def at(self, flat: Array) -> Array:
        """The elements at positions in row-major order; of those outside of the tensor, NaN or an arbitrary number."""
        asked = flat.reshape(-1)
        outside = (asked < 0) | (asked >= self.size)
        if not outside.any():
            return self._inside(asked).reshape(flat.shape)
        nowhere = np.nan if self.dtype.kind == "f" else poison(self.dtype)
        values = np.full(asked.shape, nowhere, self.dtype)
        values[~outside] = self._inside(asked[~outside])
        return values.reshape(flat.shape)

    def at_index(self, index: Sequence[Array]) -> Array:
        """The same for positions that are given per dimension."""
        if not self.shape:
            shape = np.broadcast_shapes(*(np.shape(i) for i in index)) if index else ()
            return np.broadcast_to(self.at(np.zeros(1, np.int64)), shape or (1,)).reshape(shape or (1,))
        flat: Any = np.int64(0)
        outside: Any = np.False_
        for place, size in zip(index, self.shape, strict=True):
            flat = flat * size + place
            outside = outside | (place < 0) | (place >= size)
        return self.at(np.asarray(np.where(outside, -1, flat)))

    def all(self) -> Array:
        """All elements, in the tensor's shape."""
        return self.at(np.arange(self.size)).reshape(self.shape)

    def _inside(self, flat: Array) -> Array:
        if self._known is None and max(_DENSE, flat.size) < self.size:
            return self._inside_large(flat)
        return self._inside_small(flat)

    def _inside_small(self, flat: Array) -> Array:
        if self._known is None:
            places, values = self._places, self._values
            self._values, self._known = np.zeros(self.size, self.dtype), np.zeros(self.size, np.bool_)
            self._values[places], self._known[places] = values, True
            self._places = np.zeros(0, np.int64)
        todo = flat[~self._known[flat]]
        if todo.size:
            asked = np.zeros(self.size, np.bool_)
            asked[todo] = True
            todo = np.flatnonzero(asked)
            self._values[todo] = self._computed(todo)
            self._known[todo] = True
        return np.asarray(self._values[flat])

    def _inside_large(self, flat: Array) -> Array:
        asked, back = np.unique(flat, return_inverse=True)
        before = np.searchsorted(self._places, asked)
        known = before < self._places.size
        known[known] = self._places[before[known]] == asked[known]
        new = asked[~known]
        if new.size:
            values = self._computed(new)
            if self._places.size:
                before = before[~known]
                self._places = np.insert(self._places, before, new)
                self._values = np.insert(self._values, before, values)
            else:
                self._places, self._values = new, values
        if self._places.size == asked.size:
            return np.asarray(self._values[back])
        return np.asarray(self._values[np.searchsorted(self._places, asked)][back])

    def _computed(self, flat: Array) -> Array:
        spend(flat.size, self._name)
        pieces = [
            np.broadcast_to(self._compute(np.unravel_index(piece, self.shape) if self.shape else ()), piece.shape)
            for start in range(0, flat.size, _AT_ONCE)
            for piece in [flat[start : start + _AT_ONCE]]
        ]
        return typed(np.concatenate(pieces), self.dtype) if pieces else np.zeros(0, self.dtype)


class Direct(Tensor):
    """A tensor whose elements are as quickly computed as remembered.

    Args:
        elements: those at some positions in row-major order.
    """

    def __init__(self, shape: Sequence[int], dtype: np.dtype[Any], elements: Callable[[Array], Array]) -> None:
        super().__init__(shape, dtype, lambda index: np.zeros(0))
        self._elements = elements

    def _inside(self, flat: Array) -> Array:
        spend(flat.size, "a tensor")
        return typed(np.asarray(self._elements(flat)), self.dtype)


class Held(Tensor):
    """A tensor that is there."""

    def __init__(self, values: Array) -> None:
        self._flat = np.ascontiguousarray(values).reshape(-1)
        super().__init__(values.shape, values.dtype, lambda index: values[index])

    def _inside(self, flat: Array) -> Array:
        return np.asarray(self._flat[flat])


class Reshaped(Tensor):
    """The same elements, in their order, in another shape."""

    def __init__(self, source: Tensor, shape: Sequence[int]) -> None:
        super().__init__(shape, source.dtype, lambda index: np.zeros(0))
        self._source = source
        if self.size != source.size:
            raise UnevaluatedError(f"{source.shape} as {tuple(shape)}")

    def at(self, flat: Array) -> Array:
        return self._source.at(flat)


class Everywhere(Direct):
    """One number, in as many elements as who reads it takes: what it is given in is not known."""

    def __init__(self, value: Any, dtype: np.dtype[Any]) -> None:
        self._number = cast(value, dtype).reshape(-1)[:1]
        super().__init__((), dtype, lambda flat: np.broadcast_to(self._number, flat.shape))


def resized(value: Tensor, shape: Sequence[int]) -> Tensor:
    """The same elements, in their order, in another shape.

    Raises:
        UnevaluatedError: there are more of them, or less.
    """
    if isinstance(value, Everywhere):
        return splat(value.at(np.zeros(1, np.int64)), shape, value.dtype)
    return Reshaped(value, shape)


def splat(value: Any, shape: Sequence[int], dtype: np.dtype[Any]) -> Tensor:
    """A tensor of one number."""
    number = cast(value, dtype).reshape(-1)[:1]
    return Direct(shape, dtype, lambda flat: np.broadcast_to(number, flat.shape))


def undefined(shape: Sequence[int], dtype: np.dtype[Any]) -> Tensor:
    """Memory that nothing was written to."""
    return splat(poison(dtype), shape, dtype)


def poison(dtype: np.dtype[Any]) -> Any:
    """What stands where no value is defined."""
    if dtype.kind in "fc":
        return _UNDEFINED
    if dtype == PAIR:
        return np.array((np.nan, -1), PAIR)
    return False if dtype.kind == "b" else dtype.type(0x5A)


def is_undefined(values: Array) -> Array:
    """Where floats are memory that nothing was written to, or computed of such alone."""
    if values.dtype != np.float64:
        return np.zeros(values.shape, np.bool_)
    return np.asarray(np.ascontiguousarray(values).view(np.uint64) == _UNDEFINED.view(np.uint64))


def sliced(source: Tensor, offsets: Sequence[int], sizes: Sequence[int], strides: Sequence[int]) -> Tensor:
    """A piece of a tensor; its shape is ``sizes``."""

    def compute(index: tuple[Array, ...]) -> Array:
        return source.at_index([o + i * s for o, i, s in zip(offsets, index, strides, strict=True)])

    return Tensor(sizes, source.dtype, compute)


def inserted(
    piece: Tensor, target: Tensor, offsets: Sequence[int], sizes: Sequence[int], strides: Sequence[int]
) -> Tensor:
    """A tensor with a piece of it replaced."""

    def compute(index: tuple[Array, ...]) -> Array:
        inside: Any = np.True_
        flat: Any = np.int64(0)
        for place, offset, size, stride in zip(index, offsets, sizes, strides, strict=True):
            steps, rest = np.divmod(place - offset, stride)
            inside = inside & (rest == 0) & (steps >= 0) & (steps < size)
            flat = flat * size + steps
        inside = np.broadcast_to(inside, np.shape(index[0]) if index else (1,))
        flat = np.broadcast_to(flat, inside.shape)
        places = [np.broadcast_to(place, inside.shape)[~inside] for place in index]
        values = np.empty(inside.shape, target.dtype)
        values[inside] = piece.at(flat[inside])
        values[~inside] = target.at_index(places) if places else target.at(np.zeros(int((~inside).sum()), np.int64))
        return values

    return Tensor(target.shape, target.dtype, compute)
