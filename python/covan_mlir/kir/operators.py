"""What an operator is: which integers it multiplies, what these stand for, and which integers it gives.

The meaning of a product of quantised tensors, over the positions ``o`` of its sums and ``k`` that it sums over::

    sums[o] = sum over k of (first[at1(o, k)] - zero1) * (second[at2(o, k)] - zero2)      in integers of 32 bits
    real[o] = what the operator does with sums[o] * scales, in the element types that it says

and of a result that is quantised again::

    steps[o] = min(max(round(real[o] * inverse) + zero, least), largest)                  half to even

or ``real[o] / scale``, as the model has it: the two are rounded to other numbers.

Where a factor is read outside of its tensor, it is ``outside``: of a quantised one the step that stands for 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from covan_mlir.fred.expression import Affine, Expr

Kind = Literal["linear", "matmul", "convolution", "kernel"]
"""A product with a matrix; of as many as there are batches; through windows; a kernel that multiplies no steps."""
ACCUMULATOR = "i32"
"""Element type that products of steps are summed in."""
Number = float | str
"""A number, or the name of the value that holds it."""


@dataclass(frozen=True)
class Factor:
    """Steps that are multiplied.

    Attributes:
        name: of the input that holds them.
        signed: they are integers with a sign.
        zero: the step that stands for 0.
        at: the position on each dimension of the input.
        outside: the step that is read outside of the input; None: it is not read there.
    """

    name: str
    signed: bool
    zero: int
    at: tuple[Affine, ...]
    outside: int | None = None

    @property
    def axes(self) -> frozenset[str]:
        """The axes that its positions depend on."""
        return frozenset(axis for position in self.at for axis in position.axes)


@dataclass(frozen=True)
class Contraction:
    """Sums of products of steps.

    Attributes:
        name: of the sums.
        axes: of the sums, in order.
        over: that are summed over.
        scales: what the sums are multiplied with, in this order, one by one.
    """

    name: str
    axes: tuple[str, ...]
    over: tuple[str, ...]
    first: Factor
    second: Factor
    scales: tuple[Number, ...] = ()


@dataclass(frozen=True)
class Requantization:
    """How a result is quantised again.

    Attributes:
        real: what is quantised, of the operator's own values.
        factor: what that is multiplied with, or divided by.
        zero: the step that stands for 0.
        least: and ``largest``: steps beyond are these.
        divided: it is divided: the factor is what a step stands for; otherwise, the reciprocal of that.
    """

    real: Expr
    factor: Number
    zero: int | str
    least: int
    largest: int
    divided: bool = False


@dataclass(frozen=True)
class Operator:
    """What a kernel computes.

    Attributes:
        contraction: None of a ``kernel``.
        results: how each result is quantised, None of one that is not.
    """

    kind: Kind
    contraction: Contraction | None
    results: tuple[Requantization | None, ...]
