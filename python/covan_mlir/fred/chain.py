"""A chain of reductions: the data that every pass over fused reductions works on.

A chain is a straight-line program over named axes. Its values are the inputs and what its steps define; each has an
ordered tuple of axes. A `Map` computes every element of a value from elements of others, projected to their axes; a
`Reduce` combines, over some axes, what its expression gives for each position. Softmax over axis ``j`` of ``x[i, j]``::

    m[i]    = reduce(max, j, x)
    l[i]    = reduce(add, j, exp(x - m))
    y[i, j] = exp(x - m) / l

A matrix product is a `Reduce` as well: ``s[i, j] = reduce(add, d, q[i, d] * k[j, d])``. A convolution is one whose
input is read through a `Window`, at affine positions; here ``x`` has the axes ``c, p, q``, of which ``p`` and ``q`` are
its own::

    y[k, h, w] = reduce(add, (c, r, s), x[c, 2h + r - 1, 2w + s - 1] * f[k, c, r, s])
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Literal

from covan_mlir.fred.expression import Const, Expr, Index, Read, Window, reads, walk, windows

Combine = Literal["add", "mul", "max", "min", "maxnum", "minnum", "and", "or"]
"""How a reduction combines: ``max`` and ``min`` propagate NaN (arith.maximumf), ``maxnum`` and ``minnum`` do not."""
_OF_FLOATS: dict[Combine, str] = {
    "add": "arith.addf",
    "mul": "arith.mulf",
    "max": "arith.maximumf",
    "min": "arith.minimumf",
    "maxnum": "arith.maxnumf",
    "minnum": "arith.minnumf",
}
_OF_INTEGERS: dict[Combine, str] = {
    "add": "arith.addi",
    "mul": "arith.muli",
    "max": "arith.maxsi",
    "min": "arith.minsi",
    "and": "arith.andi",
    "or": "arith.ori",
}
COMBINES: dict[str, Combine] = {op: how for table in (_OF_FLOATS, _OF_INTEGERS) for how, op in table.items()}
"""By the name of the operation."""


NOMINAL = 1024
"""What schedules and predictions take a size for that is known at run time only, where nobody says better."""


@dataclass(frozen=True)
class Axis:
    """A named axis; ``size`` is None where it is known at run time only.

    Attributes:
        usual: what schedules and predictions take such a size for.
    """

    name: str
    size: int | None
    usual: int = field(default=NOMINAL, repr=False)


@dataclass(frozen=True)
class Input:
    """A tensor that the chain reads; ``axes`` in the order of its dimensions.

    Attributes:
        weight: it is the same at every call (a constant of the program, or computed from such alone), and nothing but
            products and convolutions reads it, or, of a vector, nothing but the multiplication of their results with
            it: kernels may read it in another form. A parameter that the runtime keeps outside of the program would be
            in memory twice.
    """

    name: str
    axes: tuple[str, ...]
    dtype: str
    weight: bool = False


@dataclass(frozen=True)
class Map:
    """``name[axes] = expr``, element by element.

    Attributes:
        trace: ids of the source's parts that it performs.
    """

    name: str
    axes: tuple[str, ...]
    expr: Expr
    dtype: str
    trace: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Reduce:
    """``name[axes] = combine over the axes in over of expr``, starting from ``initial``.

    Attributes:
        dtype: element type of the accumulator and the result.
        trace: ids of the source's parts that it performs.
    """

    name: str
    axes: tuple[str, ...]
    over: tuple[str, ...]
    combine: Combine
    expr: Expr
    initial: Const
    dtype: str
    trace: frozenset[int] = frozenset()

    @property
    def operation(self) -> str:
        """The name of the operation that combines."""
        return (_OF_FLOATS if self.dtype.startswith(("f", "bf")) else _OF_INTEGERS)[self.combine]


Step = Map | Reduce


class ChainError(ValueError):
    """A chain is not well formed."""


@dataclass(frozen=True)
class Chain:
    """Inputs, steps in order, and which values leave the chain.

    Raises:
        ChainError: a value is defined twice, used before it is defined, or has axes that the position does not fix; a
            window is not of an input, has another rank, or positions on axes that the step has not.
    """

    axes: tuple[Axis, ...]
    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    outputs: tuple[str, ...]

    def __post_init__(self) -> None:
        known = {axis.name for axis in self.axes}
        if len(known) != len(self.axes):
            raise ChainError("two axes have the same name")
        shapes: dict[str, tuple[str, ...]] = {}
        for value in (*self.inputs, *self.steps):
            if value.name in shapes:
                raise ChainError(f"{value.name} is defined twice")
            if not known.issuperset(value.axes) or len(set(value.axes)) != len(value.axes):
                raise ChainError(f"{value.name} has the axes {value.axes}, of which some are unknown or repeated")
            if isinstance(value, Map | Reduce):
                self._check_step(value, shapes)
            shapes[value.name] = value.axes
        for name in self.outputs:
            if name not in shapes:
                raise ChainError(f"the chain returns {name}, which it does not define")

    def _check_step(self, step: Step, shapes: Mapping[str, tuple[str, ...]]) -> None:
        over = step.over if isinstance(step, Reduce) else ()
        position = {*step.axes, *over}
        if len(position) != len(step.axes) + len(over):
            raise ChainError(f"{step.name} reduces over an axis that it keeps")
        for name in reads(step.expr):
            if name not in shapes:
                raise ChainError(f"{step.name} reads {name}, which is not defined before it")
        for node in walk(step.expr):
            if isinstance(node, Read) and (missing := set(shapes[node.name]) - position):
                raise ChainError(f"{step.name} reads {node.name} without a position on {sorted(missing)}")
            if isinstance(node, Window):
                self._check_window(node, step.name, position)
            if isinstance(node, Index) and node.axis not in position:
                raise ChainError(f"{step.name} asks for its position on {node.axis}, which it has not")

    def _check_window(self, window: Window, step: str, position: set[str]) -> None:
        name = window.name
        source = next((value for value in self.inputs if value.name == name), None)
        if source is None:
            raise ChainError(f"{step} reads {name} through a window, and {name} is not an input")
        if len(window.at) != len(source.axes):
            raise ChainError(
                f"{step} reads {name}, which has {len(source.axes)} dimensions, at {len(window.at)} positions"
            )
        if missing := window.axes - position:
            raise ChainError(f"{step} reads {name} through a window along {sorted(missing)}, where it has no position")
        if window.outside.dtype != window.dtype:
            raise ChainError(f"{step} reads {name} as {window.dtype}, and {window.outside.dtype} outside of it")

    @cached_property
    def values(self) -> dict[str, Input | Step]:
        """Inputs and steps by name."""
        return {value.name: value for value in (*self.inputs, *self.steps)}

    @cached_property
    def sizes(self) -> dict[str, int | None]:
        """Sizes of the axes by name."""
        return {axis.name: axis.size for axis in self.axes}

    @cached_property
    def known_sizes(self) -> dict[str, int]:
        """Sizes of the axes by name, 1 for those that are known at run time only."""
        return {axis.name: axis.size or 1 for axis in self.axes}

    @cached_property
    def extents(self) -> tuple[str, ...]:
        """The axes whose sizes are known at run time only, in order."""
        return tuple(axis.name for axis in self.axes if axis.size is None)

    @cached_property
    def nominal(self) -> Chain:
        """The chain with a size for every axis."""
        axes = tuple(Axis(axis.name, axis.usual if axis.size is None else axis.size) for axis in self.axes)
        return self if axes == self.axes else replace(self, axes=axes)

    @cached_property
    def untraced(self) -> Chain:
        """The chain without what it comes from: chains that compute the same are equal."""
        return replace(self, steps=tuple(replace(step, trace=frozenset()) for step in self.steps))

    @cached_property
    def single_domain(self) -> bool:
        """Whether there are reductions, and all run over the same axes: sweeps over rows, no contraction under another
        reduction."""
        return len({frozenset(step.over) for step in self.reductions}) == 1

    @cached_property
    def product(self) -> bool:
        """Whether its reductions read none of each other, and no values that have all of their axes: products of
        matrices."""
        names = {step.name for step in self.reductions}
        for step in self.reductions:
            before = self.depends(step.name)
            axes = {*step.axes, *step.over}
            if not before or before & names or any(axes <= {*self.values[name].axes} for name in (step.name, *before)):
                return False
        return bool(names)

    @cached_property
    def contraction_flops(self) -> int:
        """Floating-point operations of the contractions: of sums of products over more positions than either factor
        has. A multiply-add counts as two; an axis whose size is known at run time only counts as one position."""
        total = 0
        for step in self.reductions:
            axes = {*step.axes, *step.over}
            leaves = [node for node in walk(step.expr) if isinstance(node, Read | Window)]
            if any(
                axes - set(node.axes if isinstance(node, Window) else self.values[node.name].axes) for node in leaves
            ):
                total += 2 * prod(self.known_sizes[axis] for axis in axes)
        return total

    @cached_property
    def reductions(self) -> tuple[Reduce, ...]:
        """The reductions, in order."""
        return tuple(step for step in self.steps if isinstance(step, Reduce))

    @cached_property
    def windowed(self) -> tuple[str, ...]:
        """The inputs that are read through windows, in order."""
        names = {window.name for step in self.steps for window in windows(step.expr)}
        return tuple(value.name for value in self.inputs if value.name in names)

    @cached_property
    def swept(self) -> frozenset[str]:
        """The axes that any reduction runs over."""
        return frozenset(axis for step in self.reductions for axis in step.over)

    @cached_property
    def trace(self) -> frozenset[int]:
        """Ids of the source's parts that the steps perform."""
        return frozenset().union(*(step.trace for step in self.steps))

    def depends(self, name: str) -> frozenset[str]:
        """Names of the steps and inputs that a value is computed from, directly or not."""
        dependencies: set[str] = set()
        stack = [name]
        while stack:
            value = self.values[stack.pop()]
            if isinstance(value, Map | Reduce):
                fresh = reads(value.expr) - dependencies
                dependencies |= fresh
                stack += fresh
        return frozenset(dependencies)
