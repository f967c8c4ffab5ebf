"""A sketch under way, and what is known of the chain that it is of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import prod
from typing import Literal

from covan_mlir.fred.chain import Chain, Input, Reduce, Step
from covan_mlir.fred.expression import Read, Window, walk
from covan_mlir.lowering.kernels.reductions.hoist import Scope
from covan_mlir.lowering.kernels.structure import Structure

SHORTEST = 4
"""Lanes of a vector, at least."""

Place = Literal["inlined", "fused", "nest"]
"""Where a step is computed: wherever it is read; in the tiles of the nest; or it is the nest, one of its reductions."""


@dataclass(frozen=True)
class Stage:
    """Where a step of the chain is computed."""

    step: str
    place: Place


@dataclass(frozen=True)
class State:
    """A sketch, as far as the rules have come, from the chain's end backwards.

    Attributes:
        at: number of the step that rules look at; -1: all steps have a stage.
        stages: of the steps behind it, the last one first.
        structure: of the nest; None: no reduction was looked at yet.
        applied: names of the rules that made it, in order.
    """

    chain: Chain
    at: int
    stages: tuple[Stage, ...] = ()
    structure: Structure | None = None
    applied: tuple[str, ...] = ()

    @property
    def step(self) -> Step:
        """That rules look at."""
        return self.chain.steps[self.at]

    @property
    def decided(self) -> bool:
        """Whether the step has a stage."""
        return any(stage.step == self.step.name for stage in self.stages)

    @property
    def first(self) -> bool:
        """Whether the step is the reduction that was looked at first: what the nest is like is decided there."""
        return self.decided and isinstance(self.step, Reduce) and self.step == self.chain.reductions[-1]

    def staged(self, place: Place, structure: Structure | None = None) -> State:
        """With a stage for the step, and perhaps another structure."""
        stages = (*self.stages, Stage(self.step.name, place))
        return replace(self, stages=stages, structure=structure or self.structure)

    def changed(self, structure: Structure) -> State:
        """With another structure."""
        return replace(self, structure=structure)

    @cached_property
    def reads(self) -> Reads:
        """What the chain's reductions read."""
        return reads_of(self.chain)


@dataclass(frozen=True)
class Reads:
    """What reductions read.

    Attributes:
        inputs: all of them, in alphabetical order.
        weights: those of them that may be held in another form.
        reused: whether an element is read for more than one term.
        leaving: whether a window leaves its input.
        dependent: whether a reduction needs the result of another one.
    """

    inputs: tuple[str, ...]
    weights: tuple[str, ...]
    reused: bool
    leaving: bool
    dependent: bool


@lru_cache(1024)
def reads_of(chain: Chain) -> Reads:
    """What a chain's reductions read."""
    scope, sizes = Scope(chain, {}), chain.nominal.known_sizes
    read: set[str] = set()
    names = {step.name for step in chain.reductions}
    leaving = reused = False
    for step in chain.reductions:
        axes = {*step.axes, *step.over}
        for node in walk(scope.inlined(step.expr)):
            if isinstance(node, Window):
                read.add(node.name)
                reused = True
                ends = zip(chain.values[node.name].axes, (at.bounds(sizes) for at in node.at), strict=True)
                leaving |= any(low < 0 or high >= sizes[axis] for axis, (low, high) in ends)
            elif isinstance(node, Read):
                read.add(node.name)
                reused |= bool(axes - {*chain.values[node.name].axes})
    known = [value for value in chain.inputs if value.name in read]
    return Reads(
        tuple(sorted(value.name for value in known)),
        tuple(sorted(value.name for value in known if value.weight)),
        reused,
        leaving,
        any(chain.depends(step.name) & names for step in chain.reductions),
    )


def lies_last(chain: Chain, step: Reduce) -> bool:
    """Whether an axis that is reduced is the last one of all that a reduction reads and that has it."""
    names = [node.name for node in walk(Scope(chain, {}).inlined(step.expr)) if isinstance(node, Read)]
    inputs = [value for name in names if isinstance(value := chain.values[name], Input)]
    return any(
        positions(chain, (axis,)) >= SHORTEST and having and all(value.axes[-1] == axis for value in having)
        for axis in step.over
        for having in [[value for value in inputs if axis in value.axes]]
    )


def positions(chain: Chain, axes: tuple[str, ...]) -> int:
    """Positions on some axes."""
    sizes = chain.nominal.known_sizes
    return prod(sizes[axis] for axis in axes)
