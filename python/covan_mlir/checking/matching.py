"""What a result of a node is: the value of the source that its body agrees with, on random operands."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import prod
from typing import Any, Literal

import numpy as np

from covan_mlir.checking.evaluate import evaluate
from covan_mlir.checking.layouts import gathered, layouts, placements
from covan_mlir.checking.signatures import Signature
from covan_mlir.checking.source_values import SourceValues, Trial
from covan_mlir.checking.source_views import SourceViews, array_of
from covan_mlir.checking.tensors import (
    Held,
    Reshaped,
    Tensor,
    UnevaluatedError,
    poison,
    splat,
    undefined,
    wide,
)
from covan_mlir.fred.scalars import Array
from covan_mlir.provenance import arguments, bodies
from covan_mlir.provenance.arguments import Operand
from covan_mlir.provenance.bodies import Bodies, Memory, Number, Opaque, Weight, shape_of
from covan_mlir.provenance.program_graph import Argument, NodeResult

TRIALS: tuple[Trial, ...] = ("normal", "positive", "small", "whole")
_SAMPLED = 12
_TOLERANCE = 2e-5
"""Relative; constants of the program are rounded to its element types."""
_PLANS = 400
_DRAWS: tuple[tuple[Draw, int], ...] = (
    *(("all", bound) for bound in (1000, 17, 5, 2, 1)),
    *(("floats", bound) for bound in (17, 2)),
    *(("arguments", bound) for bound in (17, 2)),
)
"""What is drawn of what a node is given, and below which bound integers are: how far indices may go is not
known. What is not drawn is computed from what is: as operands that depend on each other must be."""
Draw = Literal["all", "floats", "arguments"]
Key = tuple[int, int]
"""A node and the number of its result, or of its input."""


@dataclass(frozen=True, eq=False)
class State:
    """What a result of a node is: a value of the source, and for each element its position in it (None: its own).

    Attributes:
        assumed: it is not: this is what it is said to be.
    """

    operand: Operand
    layout: Array | None = None
    assumed: bool = False


@dataclass(frozen=True, eq=False)
class _Plan:
    """How a result agrees with a value: in which order, and which constants of the source the program's constants are.

    Attributes:
        numbers: how many numbers were compared, and not NaN or infinities.
    """

    operand: Operand
    layout: Array | None
    constants: Mapping[Key, tuple[Operand, Array | None]]
    numbers: int


@dataclass
class _Cone:
    """What a node's result is computed from, as far as it is not known.

    Attributes:
        states: results that are known.
        constants: inputs that are constants of which nothing is known, with their types.
    """

    states: set[Key] = field(default_factory=set)
    constants: dict[Key, str] = field(default_factory=dict)
    nodes: set[int] = field(default_factory=set)


class Matcher:
    """Matches results of nodes with values of the source.

    Args:
        states: what results of nodes are known to be; others are computed in place by those who read them.
    """

    def __init__(self, source: SourceViews, program: Bodies, states: Mapping[Key, State]) -> None:
        self._views = source
        self._bodies = program
        self._states = states
        self._holding: dict[Hashable, Array | None] = {}
        """By signature, the order of elements in which a result agrees with a value."""

    def state(self, node: int, result: int, said: tuple[int, ...]) -> State | None:
        """What a result is, if it is one of some parts; None if it is none of them.

        Raises:
            UnevaluatedError: that cannot be told.
        """
        cone = self._cone(node)
        if (seen := self._seen(node, result, said, cone)) is not None:
            return seen
        assumed = any(self._states[key].assumed for key in cone.states)
        problem: UnevaluatedError | None = None
        candidates = list(self._views.alike(said))
        refuted: set[Draw] = set()
        for draw, bound in _DRAWS:
            if draw in refuted:
                continue
            try:
                for plan in self._plans(node, result, candidates, cone, draw, bound):
                    if self._holds(node, result, plan, cone, draw, bound):
                        if draw == "all":
                            self._holding[self._signature(node, result, plan.operand, cone)] = plan.layout
                        return State(*self._views.based(plan.operand, plan.layout))
            except UnevaluatedError as error:
                problem = problem or error
                continue
            refuted.add(draw)
        if not refuted and problem is not None:
            raise problem
        if assumed:
            raise UnevaluatedError("what it reads is not what it is said to be, or not known")
        return None

    def _signature(self, node: int, result: int, operand: Operand, cone: _Cone) -> Hashable:
        known = {key: (self._states[key].operand, self._states[key].layout) for key in cone.states}
        twin = self._views.drawn(TRIALS[0], 0).twin
        given = frozenset(twin(value) for value, _ in known.values())
        return Signature(self._views, self._bodies, known).of(node, result, operand, given)

    def _seen(self, node: int, result: int, said: Sequence[int], cone: _Cone) -> State | None:
        """What a result is, where one like it was compared before."""
        if not self._holding:
            return None
        for part in said:
            try:
                signature = self._signature(node, result, ("p", part), cone)
            except UnevaluatedError:
                continue
            if signature in self._holding:
                return State(*self._views.based(("p", part), self._holding[signature]))
        return None

    def _cone(self, node: int) -> _Cone:
        cone = _Cone()
        stack = [node]
        while stack:
            current = stack.pop()
            if current in cone.nodes:
                continue
            cone.nodes.add(current)
            body = self._bodies.nodes[current]
            if body.body is None:
                raise UnevaluatedError(body.missing or "a share of another kernel's work")
            for number, operand in enumerate(body.operands):
                match operand:
                    case NodeResult(giver, result):
                        if (giver, result) in self._states:
                            cone.states.add((giver, result))
                        else:
                            stack.append(giver)
                    case Opaque():
                        cone.constants[current, number] = self._bodies.bodies[body.body].inputs[number]
                    case Weight(name) if self._views.weight(name) is None:
                        cone.constants[current, number] = self._bodies.bodies[body.body].inputs[number]
                    case Argument() | Weight() | Number() | Memory():
                        pass
                    case _:
                        raise UnevaluatedError("it reads a value that is not known, as in the body of a loop")
        return cone

    def _source(self, cone: _Cone, trial: Trial, draw: Draw, bound: int) -> SourceValues:
        source = self._views.drawn(trial, TRIALS.index(trial), bound)
        for key in sorted(cone.states) if draw != "arguments" else ():
            operand = self._states[key].operand
            kind = self._views.type_of(operand)
            if draw == "all" or kind.startswith(("f", "bf")):
                source.draw(operand, kind)
        return source

    def _plans(
        self, node: int, result: int, said: Sequence[Operand], cone: _Cone, draw: Draw, bound: int
    ) -> Iterator[_Plan]:
        """Ways in which a result agrees with a value, on random operands.

        Raises:
            UnevaluatedError: no value could be compared.
        """
        source = self._source(cone, TRIALS[0], draw, bound)
        problem: UnevaluatedError | None = None
        compared = False
        tried = 0
        for operand in said:
            try:
                want = array_of(source.value(operand))
            except UnevaluatedError as error:
                problem = problem or error
                continue
            for constants in self._assignments(operand, cone, source):
                tried += 1
                if tried > _PLANS:
                    raise UnevaluatedError("too many constants that it may read")
                got = self._result(node, result, cone, source, constants)
                flat = _positions(got.size)
                values = got.at(flat)
                compared = True
                for layout in layouts(want.shape, got.shape) if got.size == want.size else ():
                    if agree(values, want.reshape(-1)[flat if layout is None else layout[flat]]):
                        yield _Plan(operand, layout, constants, int(np.isfinite(values).sum()))
        if problem is not None and not compared:
            raise problem
        for trial in TRIALS[:2]:  # on positive numbers more functions give each of them another value
            source = self._source(cone, trial, draw, bound)
            want = array_of(source.value(said[0]))
            for constants in islice(self._assignments(said[0], cone, source), 1):
                got = self._result(node, result, cone, source, constants)
                for layout in gathered(want, got):
                    yield _Plan(said[0], layout, constants, got.size)

    def _holds(self, node: int, result: int, plan: _Plan, cone: _Cone, draw: Draw, bound: int) -> bool:
        """Whether they agree on all kinds of operands.

        Raises:
            UnevaluatedError: torch or the body fails on some, or on none of them there is a number.
        """
        numbers = plan.numbers
        for trial in TRIALS[1:]:
            if trial == "positive" and numbers * 2 > _SAMPLED:
                continue  # these are for functions that are defined there only
            try:
                source = self._source(cone, trial, draw, bound)
                want = array_of(source.value(plan.operand)).reshape(-1)
                got = self._result(node, result, cone, source, plan.constants)
                flat = _positions(got.size, seed=TRIALS.index(trial))
                values = got.at(flat)
                numbers += int(np.isfinite(values).sum())
                if not agree(values, want[flat if plan.layout is None else plan.layout[flat]]):
                    return False
            except UnevaluatedError:
                if trial != "whole":
                    raise
        if not numbers and got.size:
            raise UnevaluatedError("on random operands there is no number in the result")
        return True

    def _assignments(
        self, operand: Operand, cone: _Cone, source: SourceValues
    ) -> Iterator[Mapping[Key, tuple[Operand, Array | None]]]:
        """Which constants of the source the program's may be: such as the value is computed from."""
        if not cone.constants:
            yield {}
            return
        constants = list(dict.fromkeys(self._views.based(o, None)[0] for o in self._constants(operand, source)))
        choices: list[list[tuple[Operand, Array | None]]] = []
        pure = [o for o in constants if o[0] == "p" and self._views.pure[int(o[1])]]
        for (node, number), kind in cone.constants.items():
            shape = shape_of(kind)[1] or ()
            fitting = [o for o in constants if array_of(source.value(o)).size == prod(shape)]
            opaque = self._bodies.nodes[node].operands[number]
            if isinstance(opaque, Opaque) and opaque.elements:
                elements = np.array(opaque.elements)
                same = [o for o in fitting if o in pure and agree(elements, array_of(source.value(o)).reshape(-1))]
                if same:
                    choices.append([(same[0], None)])
                    continue
                fitting = [o for o in fitting if o not in pure]
            fitting.sort(key=lambda o: array_of(source.value(o)).shape != shape)
            ways: list[tuple[Operand, Array | None]] = [
                (o, layout) for o in fitting for layout in layouts(array_of(source.value(o)).shape, shape)
            ]
            ways += [(o, layout) for o in constants for layout in placements(array_of(source.value(o)).shape, shape)]
            if not ways:
                raise UnevaluatedError("a constant that was computed ahead of time and is no weight in another order")
            choices.append(ways)
        for chosen in _combinations(choices):
            yield dict(zip(cone.constants, chosen, strict=True))

    def _constants(self, operand: Operand, source: SourceValues) -> Iterator[Operand]:
        """Weights, and what is computed of such alone, behind a value; what was drawn is not looked behind."""
        stack, seen = [operand], set[Operand]()
        while stack:
            current = stack.pop()
            kind, name = current
            if current in seen or kind == "a":
                continue
            seen.add(current)
            if kind == "w":
                yield current
                continue
            if self._views.constant.get(int(name), False):
                try:
                    if isinstance(array_of(source.value(current)), np.ndarray):
                        yield current
                except UnevaluatedError:
                    continue
            stack += arguments.operands(self._views.parts[int(name)].args)

    def _result(
        self,
        node: int,
        result: int,
        cone: _Cone,
        source: SourceValues,
        constants: Mapping[Key, tuple[Operand, Array | None]],
    ) -> Tensor:
        given: dict[int, list[Tensor]] = {}

        def results(index: int) -> list[Tensor]:
            if index not in given:
                body = self._bodies.nodes[index]
                assert body.body is not None
                known = self._bodies.bodies[body.body]
                pairs = zip(body.operands, known.inputs, strict=True)
                inputs = [_shaped(value(index, k, operand, kind), kind) for k, (operand, kind) in enumerate(pairs)]
                given[index] = evaluate(known, inputs)
            return given[index]

        def value(index: int, number: int, operand: bodies.Operand, kind: str) -> Tensor:
            match operand:
                case NodeResult(giver, which):
                    if (giver, which) in self._states:
                        state = self._states[giver, which]
                        return _held(source, state.operand, state.layout, kind)
                    return results(giver)[which]
                case Argument(position):
                    return _held(source, ("a", position), None, kind)
                case Weight(name) if (weight := self._views.weight(name)) is not None:
                    return _held(source, weight, None, kind)
                case Number(number_):
                    held = float(number_) if isinstance(number_, str) else number_
                    return splat(held, _static(kind), wide(shape_of(kind)[0]))
                case Memory():
                    return undefined(_static(kind), wide(shape_of(kind)[0]))
                case _:
                    return _held(source, *constants[index, number], kind)

        return results(node)[result]


def agree(got: Array, want: Array) -> bool:
    """Whether two lists of numbers are the same: integers exactly, all others but for rounding."""
    if got.dtype.kind in "iu" or want.dtype.kind in "iu":
        return bool((got.astype(np.int64) == want.astype(got.dtype).astype(np.int64)).all())
    if got.dtype.kind == "b" or want.dtype.kind == "b":
        return bool((got.astype(np.bool_) == want.astype(np.bool_)).all())
    with np.errstate(all="ignore"):
        if (got == np.rint(got)).all() and (want == np.rint(want)).all():
            return bool((got == want).all())
        scale = np.maximum(np.abs(got), np.abs(want))
        close = np.abs(got - want) <= _TOLERANCE * scale + 1e-12
    return bool((close | (got == want) | (np.isnan(got) & np.isnan(want))).all())


def _positions(size: int, seed: int = 0) -> Array:
    """The first, the last and some others."""
    if size <= _SAMPLED:
        return np.arange(size)
    drawn = np.random.default_rng(seed).integers(0, size, _SAMPLED - 2)
    return np.unique(np.array([0, size - 1, *drawn]))


def _held(source: SourceValues, operand: Operand, layout: Array | None, kind: str) -> Tensor:
    values = array_of(source.value(operand))
    dtype = values.dtype if kind.startswith("!") else wide(shape_of(kind)[0])  # of a buffer view only sizes are read
    if layout is not None:
        written = layout >= 0
        values = np.where(written, values.reshape(-1)[layout], poison(values.dtype))
    return Held(values.astype(dtype, copy=False))


def _static(kind: str) -> tuple[int, ...]:
    shape = shape_of(kind)[1] or ()
    if -1 in shape:
        raise UnevaluatedError("sizes that are known at run time only")
    return shape


def _fits(kind: Sequence[int], sizes: Sequence[int]) -> bool:
    return len(kind) == len(sizes) and all(one in (-1, size) for one, size in zip(kind, sizes, strict=True))


def _shaped(tensor: Tensor, kind: str) -> Tensor:
    """In the shape in which a body reads it."""
    shape = shape_of(kind)[1]
    if shape is None or shape == tensor.shape:
        return tensor
    if -1 in shape:
        if len(shape) == len(tensor.shape):
            return tensor
        kept = [size for size in tensor.shape if size != 1]
        if len(kept) == sum(size != 1 for size in shape):  # unit dimensions were added or dropped
            return Reshaped(tensor, [1 if size == 1 else kept.pop(0) for size in shape])
        tail = kept[len(kept) - len(shape) + 1 :]
        if 1 not in shape and 1 < len(shape) < len(kept) and _fits(shape[1:], tail):  # leading dimensions are one
            return Reshaped(tensor, [prod(kept) // max(1, prod(tail)), *tail])
        known = prod(size for size in shape if size >= 0)
        if shape.count(-1) > 1 or not known:
            raise UnevaluatedError("sizes that are known at run time only")
        shape = tuple(tensor.size // known if size < 0 else size for size in shape)
    return Reshaped(tensor, shape)


def _combinations(choices: Sequence[Sequence[Any]]) -> Iterator[tuple[Any, ...]]:
    """One of each."""
    if not choices:
        yield ()
        return
    for first in choices[0]:
        for rest in islice(_combinations(choices[1:]), _PLANS):
            yield (first, *rest)
