"""Axes that always stand side by side, made one: batch and head of attention, say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from covan_mlir.fred.chain import Axis, Chain, Input, Reduce, Step
from covan_mlir.fred.expression import Extent, Index, Read, Window, rebuild, walk


@dataclass(frozen=True)
class ChainTensor:
    """A value of the graph, and what it is in the chain.

    Attributes:
        name: of the input or the step.
        groups: for each dimension of the value, the pieces that it holds, outermost first, by name.
        counts: how many of these pieces each axis of the chain's tensor is.
    """

    value: int
    name: str
    groups: tuple[tuple[str, ...], ...]
    counts: tuple[int, ...] = ()


class Joined:
    """The inputs and steps of a chain with fewer axes.

    Two axes are joined where every value that has one has the other right behind it, whatever reduces over one reduces
    over both, and no expression asks for the position on either, nor computes one from it in a window.
    """

    def __init__(self, inputs: Sequence[Input], steps: Sequence[Step], sizes: Mapping[str, int | None]) -> None:
        self._inputs = inputs
        self._steps = steps
        self._sizes = sizes
        self._runs: dict[str, list[str]] = {axis: [axis] for axis in self._names()}
        dims = {value.name: value.axes for value in inputs}
        for step in steps:
            for node in walk(step.expr):
                apart: set[str] = {node.axis} if isinstance(node, Index | Extent) else set()
                if isinstance(node, Window):
                    computed = [
                        (at, axis) for at, axis in zip(node.at, dims[node.name], strict=True) if at.axis != axis
                    ]
                    apart = {axis for at, own in computed for axis in (own, *at.axes)}
                for axis in apart:
                    self._runs.pop(axis, None)
        for axis in list(self._runs):
            while axis in self._runs and (behind := self._behind(self._runs[axis][-1])) is not None:
                self._runs[axis] += self._runs.pop(behind)

    def _names(self) -> list[str]:
        return list(dict.fromkeys(axis for axes in self._axis_lists() for axis in axes))

    def _axis_lists(self) -> list[tuple[str, ...]]:
        axis_lists = [value.axes for value in (*self._inputs, *self._steps)]
        return axis_lists + [step.over for step in self._steps if isinstance(step, Reduce)]

    def _behind(self, axis: str) -> str | None:
        """The axis that stands right behind this one, wherever either stands."""
        followers: set[str | None] = set()
        axis_lists = self._axis_lists()
        for axes in axis_lists:
            if axis in axes:
                at = axes.index(axis) + 1
                followers.add(axes[at] if at < len(axes) else None)
        if len(followers) != 1:
            return None
        (behind,) = followers
        if behind is None or behind not in self._runs:
            return None
        return behind if all(axis in axes for axes in axis_lists if behind in axes) else None

    def _join(self, axes: Sequence[str]) -> tuple[str, ...]:
        hidden = {axis for run in self._runs.values() for axis in run[1:]}
        return tuple(axis for axis in axes if axis not in hidden)

    def chain(self, outputs: Sequence[str]) -> Chain:
        """The chain over the joined axes."""
        inputs = tuple(replace(value, axes=self._join(value.axes)) for value in self._inputs)
        steps: list[Step] = []
        for step in self._steps:
            expr = rebuild(step.expr, lambda node: self._window(node) if isinstance(node, Window) else node)
            if isinstance(step, Reduce):
                steps.append(replace(step, axes=self._join(step.axes), over=self._join(step.over), expr=expr))
            else:
                steps.append(replace(step, axes=self._join(step.axes), expr=expr))
        axes = [Axis(name, self._size(name)) for name in self._join(self._names())]
        return Chain(tuple(axes), inputs, tuple(steps), tuple(outputs))

    def _window(self, window: Window) -> Window | Read:
        """A window over the joined axes; one that does not slide is a plain read: of a convolution by single points."""
        dims = next(value.axes for value in self._inputs if value.name == window.name)
        if all(at.axis == axis for at, axis in zip(window.at, dims, strict=True)):
            return Read(window.name, window.dtype)
        kept = {*self._join(dims)}
        return replace(window, at=tuple(at for at, axis in zip(window.at, dims, strict=True) if axis in kept))

    def _size(self, axis: str) -> int | None:
        total = 1
        for piece in self._runs.get(axis, [axis]):
            size = self._sizes[piece]
            if size is None:
                return None
            total *= size
        return total

    def tensor(self, tensor: ChainTensor) -> ChainTensor:
        """The same tensor, knowing of how many pieces its axes are."""
        axes = self._join([piece for group in tensor.groups for piece in group])
        return replace(tensor, counts=tuple(len(self._runs.get(axis, [axis])) for axis in axes))
