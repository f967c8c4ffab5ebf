"""The operands that one result of a node is compared on, and what it is on them: each computed once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from covan_mlir.checking.begun import CAT
from covan_mlir.checking.cones import Cone, Key
from covan_mlir.checking.layouts import Order
from covan_mlir.checking.modular import Finding
from covan_mlir.checking.node_values import NodeValues
from covan_mlir.checking.same_elements import SameElements
from covan_mlir.checking.sizes import has_read_numbers
from covan_mlir.checking.source_values import FLOAT, SourceValues, Trial
from covan_mlir.checking.source_views import SourceViews
from covan_mlir.checking.tensors import Tensor, spend, spent
from covan_mlir.provenance import arguments
from covan_mlir.provenance.arguments import Operand
from covan_mlir.provenance.bodies import Bodies

TRIALS: tuple[Trial, ...] = ("normal", "positive", "small", "whole", "unit")
SOMEWHERE: tuple[Trial, ...] = ("positive", "unit")
"""Of these, those for functions that are defined there only."""


class Draw(NamedTuple):
    """What is drawn of what a node is given. What is not drawn is computed from what is, as operands that depend on
    each other must be.

    Attributes:
        drawn: all; roots: those that are not computed of the others; floats: the first ones behind what is read;
            arguments: those of the program.
        rounded: whether what is computed of known numbers is rounded (`covan_mlir.checking.known_values`).
    """

    drawn: Literal["all", "roots", "floats", "arguments"]
    rounded: bool = False


ALL = Draw("all")
_INTEGERS = {
    "all": (*(range(end) for end in (1000, 17, 5, 2, 1)), range(1, 5)),
    "roots": (range(17), range(2), range(1)),
    "floats": (range(17), range(2), range(1)),
    "arguments": (range(17), range(2), range(1)),
}
"""Which integers are drawn: how far indices may go is not known, nor what lengths are at least."""
KINDS: tuple[Draw, ...] = tuple(
    Draw(drawn, rounded) for drawn in ("all", "roots", "floats", "arguments") for rounded in (False, True)
)
DRAWS: tuple[tuple[Draw, range], ...] = tuple((kind, integers) for kind in KINDS for integers in _INTEGERS[kind.drawn])
_EVALUATION = 1 << 15
"""Elements that are computed in the time that it takes to evaluate any body."""
_KEPT = 64
"""Draws, and results on them, that are kept; others are computed again."""
_HELD = 1 << 26
"""Elements computed on them after which all are dropped: memory follows from that."""
Constants = Mapping[Key, tuple[Operand, Order | None]]
"""Which constants of the source the program's are."""
_COPY = "aten.clone.default"


@dataclass(frozen=True, eq=False)
class State:
    """What a result of a node is: a value of the source, and for each element its position in it (None: its own).

    Attributes:
        assumed: it is not: this is what it is said to be.
        exactly: what exact arithmetic says of that, beside float64.
    """

    operand: Operand
    layout: Order | None = None
    assumed: bool = False
    exactly: Finding | None = None


def _seed(trial: Trial, again: int) -> int:
    return TRIALS.index(trial) + again * len(TRIALS)


@dataclass(frozen=True)
class Drawn:
    """What one draw gives, as if from outside.

    Attributes:
        operands: that have numbers of their own.
        alike: pairs of a value and the one of these whose elements it holds.
        rounded: whether what is computed of known numbers is rounded (`covan_mlir.checking.known_values`).
    """

    operands: tuple[Operand, ...] = ()
    alike: tuple[tuple[Operand, Operand], ...] = ()
    rounded: bool = False


class Sources:
    """Values of the source on operands that were drawn, for all results that are compared on the same ones: on the
    program's arguments, those are all."""

    def __init__(self, views: SourceViews) -> None:
        self._views = views
        self._kept: dict[Hashable, SourceValues] = {}
        self._following: dict[Drawn, frozenset[Operand]] = {}
        self._pure: dict[bool, SourceValues] = {}
        """What is computed of nothing, on all draws."""
        self._before = 0
        """Elements that were computed for earlier results since all was dropped, less those of this one before."""
        self.alike = SameElements(views)

    def of(self, trial: Trial, integers: range, again: int, drawn: Drawn) -> SourceValues:
        """Those of one draw; of what is computed already, no more is."""
        key = trial, integers, again, drawn
        source = self._kept.pop(key, None) or self._new(trial, integers, again, drawn)
        self._kept[key] = source  # the last one: what was not asked for longest goes first
        if len(self._kept) > _KEPT:
            del self._kept[next(iter(self._kept))]
        return source

    def fresh(self, trial: Trial, integers: range, again: int, drawn: Drawn) -> SourceValues:
        """The same, with nothing computed."""
        return self._draw(self._views.drawn(trial, _seed(trial, again), integers, rounded=drawn.rounded), drawn)

    def _new(self, trial: Trial, integers: range, again: int, drawn: Drawn) -> SourceValues:
        """The same; what depends on nothing that is drawn is computed once for all."""
        seed, rounded = _seed(trial, again), drawn.rounded
        if not drawn.operands:
            if rounded not in self._pure:
                self._pure[rounded] = self._views.drawn(trial, 0, integers, rounded=rounded)
            pure = self._pure[rounded], self._views.impure
            return self._views.drawn(trial, seed, integers, pure, rounded=rounded)
        if drawn not in self._following:
            given = [*drawn.operands, *(value for value, _ in drawn.alike)]
            self._following = {drawn: self._views.following(given)}  # most are asked for one after the other
        undrawn = self.of(trial, integers, again, Drawn(rounded=rounded)), self._following[drawn]
        return self._draw(self._views.drawn(trial, seed, integers, undrawn, rounded=rounded), drawn)

    def _draw(self, source: SourceValues, drawn: Drawn) -> SourceValues:
        kinds = {operand: self._views.type_of(operand) for operand in drawn.operands}
        sized = sorted((o for o in kinds if has_read_numbers(kinds[o])), key=lambda operand: int(operand[1]))
        for operand in (*(o for o in kinds if o not in sized), *sized):
            source.draw(operand, kinds[operand])
        for operand, same in drawn.alike:
            source.take(operand, same, self._views.type_of(operand))
        return source

    def drop_if_full(self) -> bool:
        """Drops all, if so much was computed: memory follows from that. Whether it did."""
        if self._before + spent() <= _HELD:
            return False
        self._kept.clear()
        self._pure.clear()
        self._before = -spent()
        return True

    def end(self, elements: int) -> None:
        """Tells how many elements were computed for the result that was compared last."""
        self._before += elements


class Draws:
    """Those of one result of a node.

    Args:
        states: what results of nodes are known to be; others are computed in place.
        cone: what the result is computed from.
        asked: what the result may be.
    """

    def __init__(
        self,
        views: SourceViews,
        sources: Sources,
        bodies: Bodies,
        states: Mapping[Key, State],
        node: int,
        result: int,
        cone: Cone,
        asked: Sequence[Operand],
    ) -> None:
        self.node = node
        self.result = result
        self.cone = cone
        self.states = {key: states[key] for key in cone.states}
        self._views = views
        self._bodies = bodies
        self._sources = sources
        self._asked = asked
        self._operands: dict[Draw, Drawn] = {}
        self._values: dict[Hashable, Tensor] = {}

    @property
    def known(self) -> dict[Key, tuple[Operand, Order | None]]:
        """Of what is read, what it is."""
        return {key: (state.operand, state.layout) for key, state in self.states.items()}

    def source(self, trial: Trial, draw: Draw, integers: range, again: int = 0) -> SourceValues:
        """Values of the source on operands that are drawn: those of one draw are the same ones."""
        return self._sources.of(trial, integers, again, self._drawn(draw))

    def fresh(self, trial: Trial, draw: Draw, integers: range) -> SourceValues:
        """The same, of which nothing was computed yet: in exact arithmetic they are others."""
        return self._sources.fresh(trial, integers, 0, self._drawn(draw))

    def _drawn(self, draw: Draw) -> Drawn:
        if draw not in self._operands:
            operands = tuple(self._read(draw.drawn))
            alike = self._sources.alike.standing(self._asked, operands)
            self._operands[draw] = Drawn(operands, tuple(alike.items()), draw.rounded)
        return self._operands[draw]

    def value(self, source: SourceValues, constants: Constants) -> Tensor:
        """The result, on operands that were drawn with `source`."""
        if self._sources.drop_if_full():
            self._values.clear()
        key = source, tuple(constants.items())
        if key not in self._values:
            if len(self._values) >= _KEPT:
                del self._values[next(iter(self._values))]
            self._values[key] = self.evaluated(source, constants)
        return self._values[key]

    def evaluated(self, source: SourceValues, constants: Constants) -> Tensor:
        """The same, computed anew."""
        spend(_EVALUATION, "too many ways in which it may be computed")
        values = NodeValues(self._views, self._bodies, self.known, source, constants, self.cone.inputs)
        return values.results(self.node)[self.result]

    def repeats(self, draw: Draw) -> bool:
        """Whether an earlier kind draws the same."""
        if draw.rounded and not self._views.rounds:
            return True
        return draw.drawn != "all" and set(self._drawn(draw).operands) == set(self._drawn(ALL).operands)

    def _read(self, drawn: str) -> Iterable[Operand]:
        match drawn:
            case "all":
                return self.pieces
            case "roots":
                return self._roots()
            case "floats":
                return self._joined(self._floats_behind(self.pieces))
        return ()

    def _roots(self) -> Iterator[Operand]:
        """Those of the pieces that are not computed of the others and of weights alone."""
        parts = sorted((piece for piece in self.pieces if piece[0] == "p"), key=lambda piece: int(piece[1]))
        others = [piece for piece in self.pieces if piece[0] != "p"]
        yield from others
        for number, part in enumerate(parts):
            if not self._views.determined([part], (*others, *parts[:number])):
                yield part

    @cached_property
    def pieces(self) -> list[Operand]:
        """The values that a cone reads; of concatenations the pieces, which others may have as well: they grow by one
        from layer to layer. What several are views of stands in their place: they are no different values."""
        pieces: dict[Operand, None] = {}
        stack = [self.states[key].operand for key in sorted(self.states, reverse=True)]
        while stack:
            operand = stack.pop()
            part = self._views.parts[int(operand[1])] if operand[0] == "p" else None
            if part is not None and part.op == CAT and operand not in pieces:
                inner = arguments.operands(part.args)
                stack += [(k, o) for k, o in reversed(inner) if k != "p" or not self._views.constant[int(o)]]
            else:
                pieces[operand] = None
        return self._joined(pieces)

    def _joined(self, operands: Iterable[Operand]) -> list[Operand]:
        """What several of some values are views of in their place."""
        seen = {operand: self._seen(operand) for operand in operands}
        times = Counter(seen.values())
        return list(dict.fromkeys(value if times[value] > 1 else operand for operand, value in seen.items()))

    def _seen(self, operand: Operand) -> Operand:
        """The one tensor that a value is a view or a copy of, or one of such; else the value."""
        value = operand
        while operand[0] == "p":
            part = self._views.parts[int(operand[1])]
            if not part.view and part.op != _COPY:
                break
            read = arguments.operands(part.args)
            if len(read) != 1:
                break
            (operand,) = read
            if operand[0] != "p" or len(self._views.parts[int(operand[1])].types) == 1:
                value = operand
        return value

    def _floats_behind(self, operands: Sequence[Operand]) -> Iterator[Operand]:
        """Those of floats, and behind others the first floats that they are computed of, as indices are by ranks."""
        floats = [operand for operand in operands if self._views.type_of(operand).startswith(FLOAT)]
        yield from floats
        stack, seen = [operand for operand in operands if operand not in floats], set(floats)
        while stack:
            operand = stack.pop()
            kind, name = operand
            if operand in seen or kind != "p" or self._views.constant.get(int(name), False):
                continue
            seen.add(operand)
            part = self._views.parts[int(name)]
            if len(part.types) == 1 and self._views.type_of(operand).startswith(FLOAT):
                yield operand
            else:
                stack += arguments.operands(part.args)
