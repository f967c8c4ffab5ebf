"""What an operator is: shapes, what an element of the result is, what it is in PyTorch; and all of them by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from covan_mlir.subst.expressions import (
    Sum,
)
from covan_mlir.subst.shaping import NoShapesError, Shaping
from covan_mlir.subst.sizes import Poly
from covan_mlir.subst.terms import Apply, Attribute, Shape

Kind = Literal["axes", "parameter", "size"]
"""Of an attribute. ``axes``: numbers. ``parameter``: numbers that a rule may leave open, and that are meant to be the
same where they are the same (strides). ``size``: sizes, which shapes say."""

Element = Callable[[Sequence[Poly]], Sum]
"""From positions to what a tensor's element there is."""


@dataclass(frozen=True)
class Call:
    """An operator on operands of known shapes.

    Attributes:
        elements: of the operands.
        shapes: of the operands.
    """

    node: Apply
    elements: tuple[Element, ...]
    shapes: tuple[Shape, ...]
    result: Shape

    def attribute(self, name: str) -> Attribute:
        """What the attribute says."""
        return dict(self.node.attributes)[name]

    def number(self, name: str) -> int:
        """An axis."""
        return int(self.attribute(name)[0].constant or 0)

    def numbers(self, name: str) -> list[int]:
        """Axes."""
        return [int(size.constant or 0) for size in self.attribute(name)]


@dataclass(frozen=True)
class Operator:
    """One operator.

    Attributes:
        attributes: names and kinds.
        shape: of the result, and equations on those of the operands.
        element: what the result's element at a position is.
        torch: as a Python expression; operands are ``{0}``, ``{1}``, attributes go by their names.
        constant: it has no operands and its value is known at compile time.
        commutes: its two operands can be exchanged.
    """

    name: str
    arity: int
    shape: Callable[[Apply, list[Shape], Shaping], Shape]
    element: Callable[[Call, Sequence[Poly]], Sum]
    torch: str
    attributes: tuple[tuple[str, Kind], ...] = ()
    constant: bool = False
    commutes: bool = False


OPERATORS: dict[str, Operator] = {}


def register(operator: Operator) -> None:
    """Make an operator known."""
    OPERATORS[operator.name] = operator


def axis_of(node: Apply, name: str = "axis") -> int:
    """The axis that an attribute says."""
    return int(dict(node.attributes)[name][0].constant or 0)


def check_rank(shape: Shape, rank: int) -> None:
    """A tensor has so many axes.

    Raises:
        NoShapesError: it has not.
    """
    if len(shape) != rank:
        raise NoShapesError(f"{len(shape)} axes instead of {rank}")


def same_shape(left: Shape, right: Shape, shaping: Shaping) -> Shape:
    """Of two tensors that have to have one."""
    check_rank(right, len(left))
    for a, b in zip(left, right, strict=True):
        shaping.equal(a, b)
    return left
