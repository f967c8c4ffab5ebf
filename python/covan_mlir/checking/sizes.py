"""Sizes that are known at run time only, as types of the source name them (``s0``, ``2*s0 + 1``): each is
a number of its own."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, zip_longest
from math import prod

from covan_mlir.checking.tensors import UnevaluatedError

_SYMBOL = re.compile(r"\b[a-zA-Z]+\d+\b")
_READ = re.compile(r"\bz?u[if]?\d+\b")
"""As torch calls numbers that it reads from tensors, and what it computes of them."""
_FIRST, _STEP = 6, 4


def regrouped(shape: tuple[int, ...], sizes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """The shapes that a tensor of some sizes may have of which a type says part (-1: not): each unknown size is what is
    left of neighbours that are split or merged, and not 1."""
    if not shape:
        if prod(sizes) == 1:
            yield ()
        return
    for count in range(1, len(shape) + 1):
        group, rest = shape[:count], shape[count:]
        unknown, known = group.count(-1), prod(size for size in group if size >= 0)
        if unknown > 1:
            return
        for taken in range(len(sizes) + 1):
            size, left = divmod(prod(sizes[:taken]), known) if known else (0, 1)
            if left or (size < 2 if unknown else size != 1) or (count > 1 and taken > 1):
                continue
            filled = tuple(size if one < 0 else one for one in group)
            for others in regrouped(rest, sizes[taken:]):
                yield (*filled, *others)


def has_symbols(kind: str) -> bool:
    """Whether some size of a type is known at run time only."""
    return _SYMBOL.search(kind.partition("[")[2]) is not None


def has_read_numbers(kind: str) -> bool:
    """Whether elements of a tensor decide some size of a type."""
    return bool(read_numbers(kind.partition("[")[2]))


def read_numbers(text: str) -> list[str]:
    """The numbers that are read from tensors in sizes."""
    return list(dict.fromkeys(_READ.findall(text)))


def renamed(text: str, names: Mapping[str, str]) -> str:
    """A text, of numbers that are read from tensors with other names."""
    return _READ.sub(lambda match: names.get(match[0], match[0]), text) if names else text


def equal_numbers(kinds: Sequence[str], others: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Of types that the same values have: the numbers that are read from tensors, with those that are equal to them."""
    for kind, other in zip(kinds, others, strict=False):
        for size, same in zip(dimensions_of(kind), dimensions_of(other), strict=False):
            if size != same and _READ.fullmatch(size) and _READ.fullmatch(same):
                yield size, same


@dataclass(frozen=True)
class Measure:
    """A number that is read from tensors, by a size that it decides: the size is ``factor`` times it, and ``more``."""

    name: str
    factor: int
    more: int

    def number(self, size: int) -> int | None:
        """The number, given the size; None of a size that the type does not allow."""
        number, left = divmod(size - self.more, self.factor)
        return None if left else number


def measure(size: str) -> Measure | None:
    """What a size tells of the one number in it that is read from tensors; None if it tells nothing, or is more than a
    multiple and a sum."""
    names = read_numbers(size)
    if len(names) != 1 or _SYMBOL.findall(size) != names:
        return None
    try:
        line = _line(ast.parse(size, mode="eval").body)
    except SyntaxError:
        return None
    return Measure(names[0], *line) if line is not None and line[0] else None


def _line(expr: ast.expr) -> tuple[int, int] | None:
    """An expression of one name as a multiple of it, and what is added."""
    match expr:
        case ast.Constant(int() as number):
            return 0, number
        case ast.Name():
            return 1, 0
        case ast.BinOp(left, ast.Add() | ast.Sub() | ast.Mult() as op, right):
            one, other = _line(left), _line(right)
            if one is None or other is None:
                return None
            if not isinstance(op, ast.Mult):
                sign = 1 if isinstance(op, ast.Add) else -1
                return one[0] + sign * other[0], one[1] + sign * other[1]
            if one[0] and other[0]:
                return None
            return one[0] * other[1] + one[1] * other[0], one[1] * other[1]
    return None


def dimensions_of(kind: str) -> list[str]:
    """The sizes of a type, as text."""
    text = kind.partition("[")[2].removesuffix("]")
    return text.split(", ") if text else []


def is_empty(kind: str) -> bool:
    """Whether a tensor of a type has no elements, whatever its symbols stand for."""
    return "0" in dimensions_of(kind)


class Sizes:
    """Numbers for symbols.

    Args:
        kinds: types that the symbols stand in.
        alike: types of tensors whose elements are taken together: their sizes are equal, but for those that are 1. Of
            two sizes that differ in one symbol each, these are equal.
    """

    def __init__(self, kinds: Iterable[str], alike: Iterable[Sequence[str]] = ()) -> None:
        dimensions = (kind.partition("[")[2] for kind in kinds)
        names = sorted({name for text in dimensions for name in _SYMBOL.findall(text)})
        self._symbols = {name: _FIRST + _STEP * index for index, name in enumerate(names)}
        for group in alike:
            for sizes in zip_longest(*(reversed(dimensions_of(kind)) for kind in group), fillvalue="1"):
                self._equate({size for size in sizes if size != "1"})

    def bound(self, numbers: Mapping[str, int]) -> Sizes:
        """The same, with the numbers that some symbols stand for."""
        sizes = Sizes(())
        sizes._symbols = self._symbols | {name: numbers[name] for name in numbers}
        return sizes

    def _equate(self, sizes: set[str]) -> None:
        for one, other in combinations(sorted(sizes), 2):
            first, second = set(_SYMBOL.findall(one)), set(_SYMBOL.findall(other))
            if len(first - second) == len(second - first) == 1:
                numbers = {self._symbols[name] for name in first ^ second}
                for name, number in self._symbols.items():
                    if number in numbers:
                        self._symbols[name] = min(numbers)

    def of(self, kind: str) -> list[int]:
        """The sizes of a type.

        Raises:
            UnevaluatedError: one of them is written in another way.
        """
        text = kind.partition("[")[2].removesuffix("]")
        if not text:
            return []
        try:
            tree = ast.parse(f"({text},)", mode="eval").body
        except SyntaxError as error:
            raise UnevaluatedError(f"a value of type {kind}") from error
        assert isinstance(tree, ast.Tuple)
        return [self._number(size, kind) for size in tree.elts]

    def _number(self, expr: ast.expr, kind: str) -> int:
        match expr:
            case ast.Constant(int() as number):
                return number
            case ast.Name(name) if name in self._symbols:
                return self._symbols[name]
            case ast.UnaryOp(ast.USub(), operand):
                return -self._number(operand, kind)
            case ast.BinOp(left, op, right):
                one, other = self._number(left, kind), self._number(right, kind)
                match op:
                    case ast.Add():
                        return one + other
                    case ast.Sub():
                        return one - other
                    case ast.Mult():
                        return one * other
                    case ast.FloorDiv() if other:
                        return one // other
                    case ast.Mod() if other:
                        return one % other
                    case ast.Pow() if 0 <= other < 8:
                        return int(one**other)
        raise UnevaluatedError(f"a value of type {kind}")
