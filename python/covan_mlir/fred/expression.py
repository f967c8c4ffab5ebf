"""Scalar expressions of a chain: what one element is computed from, in operations of MLIR's arith and math dialects.

Expressions are trees of frozen nodes, compared by value. An operation is called what MLIR calls it (``arith.addf``,
``math.exp``); comparisons carry their predicate (``arith.cmpf:ogt``). So a region of a linalg operation can be read as
an expression and written back without losing anything, and every consumer (algebra, proofs, code generation) decides
for itself what it knows about an operation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Const:
    """A number: ``value`` of the element type ``dtype`` (``f32``, ``i64``, ``i1``); floats may be infinite or NaN."""

    value: float | int | bool
    dtype: str


@dataclass(frozen=True)
class Read:
    """The element of a named value at the current position, projected to the value's axes."""

    name: str
    dtype: str


@dataclass(frozen=True)
class Affine:
    """The sum of ``coefficient * position`` over some axes, plus an offset; `Affine.of` makes equal ones equal.

    Attributes:
        terms: axes by name in alphabetical order, each once, with a coefficient that is not zero.
    """

    terms: tuple[tuple[str, int], ...]
    offset: int = 0

    @staticmethod
    def of(terms: Iterable[tuple[str, int]], offset: int = 0) -> Affine:
        """The sum of terms in any order, of which several may be of one axis."""
        totals: dict[str, int] = {}
        for axis, coefficient in terms:
            totals[axis] = totals.get(axis, 0) + coefficient
        return Affine(tuple(sorted((axis, total) for axis, total in totals.items() if total)), offset)

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes that it depends on."""
        return tuple(axis for axis, _ in self.terms)

    @property
    def axis(self) -> str | None:
        """The axis whose position it is, if it is just that."""
        return self.terms[0][0] if self.offset == 0 and len(self.terms) == 1 and self.terms[0][1] == 1 else None

    def bounds(self, sizes: Mapping[str, int]) -> tuple[int, int]:
        """The least and the greatest position, on axes of these sizes, all of which are at least 1."""
        ends = [coefficient * (sizes[axis] - 1) for axis, coefficient in self.terms]
        return self.offset + sum(end for end in ends if end < 0), self.offset + sum(end for end in ends if end > 0)


@dataclass(frozen=True)
class Window:
    """The element of a named input at affine positions; ``outside`` where any of these lies outside of the input.

    Attributes:
        at: the position on each dimension of the input.
    """

    name: str
    dtype: str
    at: tuple[Affine, ...]
    outside: Const

    @property
    def axes(self) -> frozenset[str]:
        """The axes that its positions depend on."""
        return frozenset(axis for position in self.at for axis in position.axes)


@dataclass(frozen=True)
class Index:
    """The current position along an axis; element type ``index``."""

    axis: str
    dtype: str = "index"


@dataclass(frozen=True)
class Extent:
    """The size of an axis; element type ``index``. Where the size is static, `Const` says the same."""

    axis: str
    dtype: str = "index"


@dataclass(frozen=True)
class Apply:
    """An operation on scalars, with its result's element type."""

    op: str
    args: tuple[Expr, ...]
    dtype: str


Expr = Const | Read | Window | Index | Extent | Apply


def walk(expr: Expr) -> Iterator[Expr]:
    """All nodes, operands first; shared subtrees once."""
    seen: set[int] = set()
    stack: list[tuple[Expr, bool]] = [(expr, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            yield node
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            if isinstance(node, Apply):
                stack += [(arg, False) for arg in reversed(node.args)]


def reads(expr: Expr) -> frozenset[str]:
    """Names of the values that an expression reads, through windows or not."""
    return frozenset(node.name for node in walk(expr) if isinstance(node, Read | Window))


def windows(expr: Expr) -> tuple[Window, ...]:
    """The windows that an expression reads through, each once, in order."""
    return tuple(dict.fromkeys(node for node in walk(expr) if isinstance(node, Window)))


def rebuild(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """The expression with ``change`` applied to every node, operands first; shared subtrees stay shared."""
    rebuilt: dict[int, Expr] = {}
    for node in walk(expr):
        new: Expr = node
        if isinstance(node, Apply):
            args = tuple(rebuilt[id(arg)] for arg in node.args)
            new = node if args == node.args else Apply(node.op, args, node.dtype)
        rebuilt[id(node)] = change(new)
    return rebuilt[id(expr)]


def substitute(expr: Expr, values: dict[str, Expr]) -> Expr:
    """The expression with reads of some values replaced; a window's input can but get another name.

    Raises:
        ValueError: a window is to read something else than a value.
    """

    def change(node: Expr) -> Expr:
        if isinstance(node, Window) and node.name in values:
            value = values[node.name]
            if not isinstance(value, Read):
                raise ValueError(f"{node.name} is read through a window, and is to be an expression")
            return replace(node, name=value.name)
        return values.get(node.name, node) if isinstance(node, Read) else node

    return rebuild(expr, change)


def numbered(expr: Expr, numbers: dict[object, int], commutative: Collection[str] = ()) -> int:
    """The number of an expression: the same for equal ones, NaN equal to itself, in time linear in its shared size.

    Args:
        numbers: those given so far; starts empty.
        commutative: operations whose operands may stand in any order.
    """
    by_node: dict[int, int] = {}
    for node in walk(expr):
        key: object
        if isinstance(node, Apply):
            args = [by_node[id(arg)] for arg in node.args]
            key = (node.op, node.dtype, *(sorted(args) if node.op in commutative else args))
        else:
            key = repr(node)  # not the node: 0.0 equals -0.0, and NaN equals nothing
        by_node[id(node)] = numbers.setdefault(key, len(numbers))
    return by_node[id(expr)]
