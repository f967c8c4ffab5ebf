"""What an operator is: which integers it computes with, what these stand for, and which integers it gives.

The meaning of steps that are read as numbers (``dequantize``)::

    real[i] = (steps[i] - zero) * scale

of a product of quantised tensors, over the positions ``o`` of its sums and ``k`` that it sums over::

    sums[o] = sum over k of (first[at1(o, k)] - zero1) * (second[at2(o, k)] - zero2)      in integers of 32 bits
    real[o] = what the operator does with sums[o] * scales, in the element types that it says

and of a result that is quantised again (``quantize``)::

    steps[o] = min(max(round(real[o] * inverse) + zero, least), largest)                  half to even

or ``real[o] / scale``, as the model has it: the two are rounded to other numbers.

Where a factor is read outside of its tensor, it is ``outside``: of a quantised one the step that stands for 0. A
function from steps to steps is a ``table``: for each step that may be read, the one that it becomes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from covan_mlir.fred.expression import Affine, Expr, Read, Window

Kind = Literal[
    "linear",
    "matmul",
    "convolution",
    "attention",
    "softmax",
    "norm",
    "pooling",
    "reduction",
    "add",
    "mul",
    "concat",
    "activation",
    "quantize",
    "dequantize",
    "requantize",
    "kernel",
]
"""What an operator may be; docs/kir.md says of each what it is. A ``kernel`` is none of the others."""
KINDS: tuple[Kind, ...] = get_args(Kind)
ACCUMULATOR = "i32"
"""Element type that products of steps are summed in."""
Number = float | str
"""A number, or the name of the value that holds it."""


@dataclass(frozen=True)
class Dequantization:
    """Steps that are read as the numbers that they stand for.

    Attributes:
        steps: how they are read: all of an input, or through a window.
        signed: they are integers with a sign.
        zero: the step that stands for 0.
        scale: what a step stands for.
        dtype: of the numbers.
    """

    steps: Read | Window
    signed: bool
    zero: int | str
    scale: Number
    dtype: str

    @property
    def name(self) -> str:
        """The input that holds the steps."""
        return self.steps.name


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
        again: the result is no steps, but what they stand for: of what is read as such, here a value of the operator's.
    """

    real: Expr
    factor: Number
    zero: int | str
    least: int
    largest: int
    divided: bool = False
    again: Dequantization | None = None


@dataclass(frozen=True)
class Operator:
    """What a kernel computes.

    Attributes:
        contraction: of steps; None where there is none.
        results: how each result is quantised, None of one that is not.
        operands: steps that are read as numbers, in the order of the inputs; not those that are multiplied.
        accumulator: element type that a reduction combines in; empty where there is none.
        over: the axes of a pooling, a reduction, a softmax or a norm; the one along which tensors are joined.
        mode: which of its kind: ``max``, ``average``, ``sum`` ... of a pooling or reduction; ``log`` of a softmax.
        table: of a function from steps to steps: what each step becomes, from the least step on.
    """

    kind: Kind
    contraction: Contraction | None
    results: tuple[Requantization | None, ...]
    operands: tuple[Dequantization, ...] = ()
    accumulator: str = ""
    over: tuple[str, ...] = ()
    mode: str = ""
    table: tuple[int, ...] = ()
