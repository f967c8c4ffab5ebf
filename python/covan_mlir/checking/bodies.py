"""Whether each node of the final program computes what it is said to give, by its own code.

No label is taken from the lineage: the body of a node (`covan_mlir.provenance.bodies`) is evaluated on random operands
at random positions of its results, and so are, by torch, the source's operators between what the node is given and what
it is said to give. Both are functions of the same operands; where they agree on random ones they are the same function,
but for a chance that each further trial makes smaller (Schwartz, Zippel).

What a result *is* follows from the front: the program's arguments are known, and a node's result is known when its body
agrees with a part that it is said to be, in an order of elements that is found here and believed from then on. A result
that is no part's value (a share of one, memory, a layout) is computed in place by those who read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import prod
from typing import Any, Literal

import numpy as np

from covan_mlir.checking.evaluate import evaluate
from covan_mlir.checking.layouts import layouts
from covan_mlir.checking.source_values import SourceValues, Trial, function_of
from covan_mlir.checking.tensors import Held, Reshaped, Tensor, UnevaluatedError, splat, wide
from covan_mlir.fred.scalars import Array
from covan_mlir.provenance import arguments, bodies
from covan_mlir.provenance.arguments import Operand
from covan_mlir.provenance.bodies import Number, Opaque, Weight, shape_of
from covan_mlir.provenance.model import LineageData
from covan_mlir.provenance.program_graph import Argument, NodeResult, ProgramGraph
from covan_mlir.provenance.relation import Source

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
"""What is drawn of what a node is given, and below which bound integers are: of indices it is not known how far they may
go. What is not drawn is computed from what is: as operands that depend on each other must be."""
Draw = Literal["all", "floats", "arguments"]
Key = tuple[int, int]
"""A node and the number of its result, or of its input."""


@dataclass(frozen=True, eq=False)
class State:
    """What a result of a node is: a value of the source, and for each element its position in it (None: its own).

    Attributes:
        assumed: nothing could be evaluated.
    """

    operand: Operand
    layout: Array | None = None
    assumed: bool = False


@dataclass(frozen=True, eq=False)
class _Plan:
    """How a result is compared: with which value, in which order, and which constants of the source the program's
    constants are."""

    operand: Operand
    layout: Array | None
    constants: Mapping[Key, tuple[Operand, Array | None]]


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


class BodyCheck:
    """The check of one program.

    Args:
        performed: parts that each node is said to perform.

    Attributes:
        false: results that are not what they are said to be, with the parts.
        unread: nodes, or results of the program (-1, -2, ...), of which something is not known, and what.
        states: what results of nodes are.
    """

    def __init__(self, lineage: LineageData, graph: ProgramGraph, performed: Sequence[Iterable[int]]) -> None:
        self.lineage = lineage
        self.graph = graph
        self.performed = [frozenset(parts) for parts in performed]
        self.false: list[tuple[int, tuple[int, ...]]] = []
        self.unread: dict[int, str] = {}
        self.states: dict[Key, State] = {}
        self._bodies = lineage.bodies
        self._parts = lineage.parts
        self._constant = Source(self._parts).constant
        self._types: dict[Operand, str] = {}
        self._bijections: dict[int, Array | None] = {}
        self._elements: dict[int, list[int]] = {}
        """Of parts with several results, the parts that are one of them."""
        for part in self._parts.values():
            self._types.update(arguments.operand_types(part.args))
            if part.op == "operator.getitem":
                self._elements.setdefault(part.inputs[0], []).append(part.id)

    def run(self) -> None:
        """Fills in what is found."""
        open_: dict[Key, tuple[int, ...]] = {}
        for node in range(len(self.graph.nodes)):
            for result in range(len(self.graph.nodes[node].outputs)):
                said = self._said(node, result)
                if not said:
                    continue
                try:
                    state = self._state(node, result, said)
                except UnevaluatedError as error:
                    self.unread.setdefault(node, str(error))
                    state = State(("p", said[0]), None, assumed=True)
                if state is not None:
                    self.states[node, result] = state
                else:
                    open_[node, result] = said
        self._results()
        self._judge(open_)

    def _said(self, node: int, result: int) -> tuple[int, ...]:
        """Parts that a result may be, those whose work it is first."""
        links = self.graph.nodes[node].outputs[result]
        if self._bodies.nodes[node].body is None and not self._bodies.nodes[node].missing:
            return ()  # a share of a kernel
        ordered = sorted(links, key=lambda link: link.how != "compute")
        return tuple(dict.fromkeys(part for link in ordered for part in link.ids if part in self._parts))

    def _judge(self, open_: Mapping[Key, tuple[int, ...]]) -> None:
        """Results that are none of the values that they are said to be may be shares: somebody who reads them finishes
        the part."""
        readers: dict[int, set[int]] = {}
        for index, node in enumerate(self.graph.nodes):
            for value in node.inputs:
                if isinstance(value, NodeResult):
                    readers.setdefault(value.node, set()).add(index)
        for (node, result), said in open_.items():
            if not any(self._finished(node, part, readers) for part in said):
                self.false.append((node, said))

    def _finished(self, node: int, part: int, readers: Mapping[int, set[int]]) -> bool:
        """Whether a node's share of a part is finished by one that gives a value that is known."""
        twin = self._parts[part].twin
        stack, seen = list(readers.get(node, ())), {node}
        while stack:
            reader = stack.pop()
            if reader in seen:
                continue
            seen.add(reader)
            shares = any(self._parts[other].twin == twin for other in self.performed[reader] if other in self._parts)
            if shares and any(key[0] == reader for key in self.states):
                return True
            if shares or self.graph.nodes[reader].hands_on_pieces or reader in self.unread:
                stack += readers.get(reader, ())
        return False

    # --- one result

    def _state(self, node: int, result: int, said: tuple[int, ...]) -> State | None:
        """What a result is, if it is one of some parts; None if it is none of them.

        Raises:
            UnevaluatedError: that cannot be told.
        """
        cone = self._cone(node)
        assumed = any(self.states[key].assumed for key in cone.states)
        problem: UnevaluatedError | None = None
        candidates = list(self._candidates(said))
        refuted: set[Draw] = set()
        for draw, bound in _DRAWS:
            if draw in refuted:
                continue
            try:
                plan = self._plan(node, result, candidates, cone, draw, bound)
                if plan is not None and self._holds(node, result, plan, cone, draw, bound):
                    return self._based(plan)
            except UnevaluatedError as error:
                problem = problem or error
                continue
            refuted.add(draw)
        if not refuted and problem is not None:
            raise problem
        if assumed:
            raise UnevaluatedError("what it reads is not known")
        return None

    def _candidates(self, said: Iterable[int]) -> Iterator[Operand]:
        """Values that a result may be: parts, and what they are views of."""
        seen: set[int] = set()
        for part in said:
            while part not in seen:
                seen.add(part)
                yield from (("p", one) for one in self._elements.get(part, (part,)))
                operands = [name for kind, name in arguments.operands(self._parts[part].args) if kind == "p"]
                if not self._parts[part].view or len(operands) != 1:
                    break
                part = int(operands[0])

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
                        if (giver, result) in self.states:
                            cone.states.add((giver, result))
                        else:
                            stack.append(giver)
                    case Opaque():
                        cone.constants[current, number] = self._bodies.bodies[body.body].inputs[number]
                    case Argument() | Weight() | Number():
                        pass
                    case _:
                        raise UnevaluatedError("it reads a value that is not known, as in the body of a loop")
        return cone

    def _source(self, cone: _Cone, trial: Trial, draw: Draw, bound: int) -> SourceValues:
        source = self._drawing(trial, TRIALS.index(trial), bound)
        for key in sorted(cone.states) if draw != "arguments" else ():
            operand = self.states[key].operand
            kind = self._type(operand)
            if draw == "all" or kind.startswith(("f", "bf")):
                source.draw(operand, kind)
        return source

    def _drawing(self, trial: Trial, seed: int, bound: int = 2) -> SourceValues:
        return SourceValues(self._parts, self._types, self._bodies.weights, trial, seed, bound)

    def _type(self, operand: Operand) -> str:
        kind, name = operand
        if kind == "p":
            return self._parts[int(name)].types[0]
        if operand not in self._types:
            raise UnevaluatedError(f"nothing is known of {'argument' if kind == 'a' else 'weight'} {name}")
        return self._types[operand]

    def _plan(self, node: int, result: int, said: Sequence[Operand], cone: _Cone, draw: Draw, bound: int) -> _Plan | None:
        """The first way in which a result agrees with a value, on random operands.

        Raises:
            UnevaluatedError: no value could be compared.
        """
        source = self._source(cone, TRIALS[0], draw, bound)
        problem: UnevaluatedError | None = None
        compared = False
        tried = 0
        for operand in said:
            try:
                want = _array(source.value(operand))
            except UnevaluatedError as error:
                problem = problem or error
                continue
            for constants in self._assignments(operand, cone, source):
                tried += 1
                if tried > _PLANS:
                    raise UnevaluatedError("too many constants that it may read")
                got = self._result(node, result, cone, source, constants)
                if got.size != want.size:
                    continue
                flat = _positions(got.size)
                values = got.at(flat)
                compared = True
                for layout in layouts(want.shape, got.shape):
                    if agree(values, want.reshape(-1)[flat if layout is None else layout[flat]]):
                        return _Plan(operand, layout, constants)
        if problem is not None and not compared:
            raise problem
        return None

    def _holds(self, node: int, result: int, plan: _Plan, cone: _Cone, draw: Draw, bound: int) -> bool:
        """Whether they agree on other operands as well."""
        for trial in TRIALS[1:]:
            try:
                source = self._source(cone, trial, draw, bound)
                want = _array(source.value(plan.operand)).reshape(-1)
                got = self._result(node, result, cone, source, plan.constants)
                flat = _positions(got.size, seed=TRIALS.index(trial))
                if not agree(got.at(flat), want[flat if plan.layout is None else plan.layout[flat]]):
                    return False
            except UnevaluatedError:
                if trial != "whole":
                    raise
        return True

    def _assignments(
        self, operand: Operand, cone: _Cone, source: SourceValues
    ) -> Iterator[Mapping[Key, tuple[Operand, Array | None]]]:
        """Which constants of the source the program's may be: such as the value is computed from."""
        if not cone.constants:
            yield {}
            return
        constants = list(self._constants(operand, source))
        choices: list[list[tuple[Operand, Array | None]]] = []
        for kind in cone.constants.values():
            shape = shape_of(kind)[1] or ()
            fitting = [o for o in constants if _array(source.value(o)).size == prod(shape)]
            fitting.sort(key=lambda o: _array(source.value(o)).shape != shape)
            choices.append([(o, layout) for o in fitting for layout in layouts(_array(source.value(o)).shape, shape)])
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
            if self._constant.get(int(name), False):
                try:
                    if isinstance(_array(source.value(current)), np.ndarray):
                        yield current
                except UnevaluatedError:
                    continue
            stack += arguments.operands(self._parts[int(name)].args)

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
                    if (giver, which) in self.states:
                        state = self.states[giver, which]
                        return _held(source, state.operand, state.layout, kind)
                    return results(giver)[which]
                case Argument(position):
                    return _held(source, ("a", position), None, kind)
                case Weight(name):
                    return _held(source, ("w", name), None, kind)
                case Number(number_):
                    element, shape = shape_of(kind)
                    held = float(number_) if isinstance(number_, str) else number_
                    return splat(held, [max(0, size) for size in shape or ()], wide(element))
                case _:
                    return _held(source, *constants[index, number], kind)

        return results(node)[result]

    def _based(self, plan: _Plan) -> State:
        """The state with the earliest value that has the same elements: views of one value are one."""
        operand, layout = plan.operand, plan.layout
        while operand[0] == "p":
            part = self._parts[int(operand[1])]
            operands = arguments.operands(part.args)
            places = self._bijection(part.id)
            if places is None:
                break
            operand = operands[0]
            layout = places if layout is None else places[layout]
            if (layout == np.arange(layout.size)).all():
                layout = None
        return State(operand, layout)

    def _bijection(self, index: int) -> Array | None:
        """Of a part that gives the elements of its only operand in another order: for each its position; else None."""
        if index not in self._bijections:
            self._bijections[index] = self._ordered(index)
        return self._bijections[index]

    def _ordered(self, index: int) -> Array | None:
        part = self._parts[index]
        operands = list(dict.fromkeys(arguments.operands(part.args)))
        if len(operands) != 1 or len(part.types) != 1 or function_of(part.op) is None:
            return None
        try:
            source = self._drawing("normal", 0)
            (operand,) = operands
            kind = self._type(operand)
            if len(self._parts[int(operand[1])].types if operand[0] == "p" else (kind,)) != 1:
                return None
            before = _array(source.draw(operand, "f64" + kind[kind.index("[") :])).reshape(-1)
            after = _array(source.value(("p", index))).reshape(-1)
        except (UnevaluatedError, ValueError):
            return None
        if before.size != after.size or after.dtype.kind != "f":
            return None
        order = np.argsort(before)
        places = order[np.searchsorted(before, after, sorter=order).clip(0, max(0, before.size - 1))]
        same = before.size == 0 or bool((before[places] == after).all())
        return places if same and np.unique(places).size == before.size else None

    # --- the program's results

    def _results(self) -> None:
        for number, (value, operand) in enumerate(zip(self.graph.results, self.lineage.results, strict=False)):
            try:
                if not self._returns(value, operand):
                    self.false.append((-1 - number, (int(operand[1]),) if operand[0] == "p" else ()))
            except UnevaluatedError as error:
                self.unread.setdefault(-1 - number, str(error))

    def _returns(self, value: Any, operand: Operand) -> bool:
        """Whether a result of the program is the value that the source returns there, in its own order."""
        match value:
            case NodeResult(node, result):
                state = self.states.get((node, result))
                if state is None:
                    found = self._state(node, result, (int(operand[1]),)) if operand[0] == "p" else None
                    return found is not None and self._same_order(found, operand)
                if state.assumed:
                    raise UnevaluatedError("what is returned is not known")
                return self._same_order(state, operand)
            case Argument(position):
                return self._same_order(State(("a", position)), operand)
        return True  # a constant: nothing is computed

    def _same_order(self, state: State, operand: Operand) -> bool:
        wanted = self._based(_Plan(operand, None, {}))
        source = self._drawing("normal", 7)
        first, second = source.twin(wanted.operand), source.twin(state.operand)
        if first == second and (wanted.layout is None) == (state.layout is None):
            return wanted.layout is None or state.layout is None or bool((wanted.layout == state.layout).all())
        source.draw(state.operand, self._type(state.operand))
        want = _array(source.value(operand)).reshape(-1)
        got = _array(source.value(state.operand)).reshape(-1)
        got = got if state.layout is None else got[state.layout]
        return got.size == want.size and agree(got, want)


def agree(got: Array, want: Array) -> bool:
    """Whether two lists of numbers are the same but for rounding, and there is a number in them."""
    if got.dtype.kind in "iu" or want.dtype.kind in "iu":
        return bool((got.astype(np.int64) == want.astype(got.dtype).astype(np.int64)).all())
    if got.dtype.kind == "b" or want.dtype.kind == "b":
        return bool((got.astype(np.bool_) == want.astype(np.bool_)).all())
    with np.errstate(all="ignore"):
        scale = np.maximum(np.abs(got), np.abs(want))
        close = np.abs(got - want) <= _TOLERANCE * scale + 1e-12
    return bool((close | (got == want) | (np.isnan(got) & np.isnan(want))).all())


def _positions(size: int, seed: int = 0) -> Array:
    """The first, the last and some others."""
    if size <= _SAMPLED:
        return np.arange(size)
    drawn = np.random.default_rng(seed).integers(0, size, _SAMPLED - 2)
    return np.unique(np.array([0, size - 1, *drawn]))


def _array(value: Any) -> Array:
    if isinstance(value, bool | int | float):
        return np.asarray(value)
    if not hasattr(value, "numpy"):
        raise UnevaluatedError("a value that is no tensor")
    array: Array = value.detach().contiguous().numpy()
    return array


def _held(source: SourceValues, operand: Operand, layout: Array | None, kind: str) -> Tensor:
    values = _array(source.value(operand))
    dtype = wide(shape_of(kind)[0])
    if layout is not None:
        values = values.reshape(-1)[layout]
    return Held(values.astype(dtype, copy=False))


def _shaped(tensor: Tensor, kind: str) -> Tensor:
    """In the shape in which a body reads it."""
    shape = shape_of(kind)[1]
    if shape is None or shape == tensor.shape:
        return tensor
    if -1 in shape:
        if len(shape) == len(tensor.shape):
            return tensor
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
