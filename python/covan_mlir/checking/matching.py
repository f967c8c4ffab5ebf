"""What a result of a node is: the value of the source that its body agrees with, on random operands."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain, count, islice

import numpy as np

from covan_mlir.checking.choices import in_turn
from covan_mlir.checking.cones import Cones, Key
from covan_mlir.checking.draws import (
    ALL,
    DRAWS,
    KINDS,
    SOMEWHERE,
    TRIALS,
    Constants,
    Draw,
    Draws,
    Sources,
    State,
)
from covan_mlir.checking.held_constants import assignments
from covan_mlir.checking.layouts import Order, gathered, layouts
from covan_mlir.checking.modular import FEW, Finding, compared
from covan_mlir.checking.samples import SAMPLED, agree, is_constant, positions, sampled
from covan_mlir.checking.signatures import Signature
from covan_mlir.checking.sizes import dimensions_of, has_read_numbers, has_symbols, is_empty, read_numbers
from covan_mlir.checking.source_values import FLOAT, RandomError, SourceValues
from covan_mlir.checking.source_views import SourceViews
from covan_mlir.checking.tensors import Tensor, UnevaluatedError, confine, is_undefined, limited
from covan_mlir.fred.scalars import Array
from covan_mlir.provenance.arguments import Operand
from covan_mlir.provenance.bodies import Bodies

WORK = 1 << 26
"""Elements that are computed to tell what one result is, whatever others took."""
_RESERVE = 1 << 29
"""Elements that are computed beyond that, for all results together, but for such that are most likely no value: those
are refuted on all that is drawn nearer than the arguments."""
_GLANCED = 4
"""Elements by which most ways are ruled out."""
_PLANS = 400
_ALIKE = 8
"""Ways that are told apart from the first one that holds."""
_VARIED = 16
"""Different steps of a scale among those compared, by which quantised numbers are told from counts."""
_COUNTED = 4
"""Draws of a kind on which a number is compared with a size."""


class _EmptyError(UnevaluatedError):
    """What is drawn leaves a value no elements."""


@dataclass(frozen=True, eq=False)
class _Plan:
    """How a result agrees with a value: in which order, and which constants of the source the program's constants are.

    Attributes:
        numbers: how many numbers were compared, and not NaN or infinities.
        whole: whether they are whole numbers of which there may be few, so that some occur everywhere.
    """

    operand: Operand
    layout: Order | None
    constants: Constants
    numbers: int
    whole: bool


class Matcher:
    """Matches results of nodes with values of the source.

    Args:
        states: what results of nodes are known to be; others are computed in place by those who read them.

    Attributes:
        undecided: results that are no value of what was drawn, and why that could not be computed of the arguments.
    """

    def __init__(self, source: SourceViews, program: Bodies, states: Mapping[Key, State]) -> None:
        self._views = source
        self._bodies = program
        self._states = states
        self._sources = Sources(source)
        self._cones = Cones(source, program, states)
        self._assignments = partial(assignments, source, program)
        self._reserve = _RESERVE
        self.undecided: dict[Key, str] = {}
        self._holding: dict[Hashable, tuple[Order | None, Finding]] = {}
        """By signature, the order of elements in which a result agrees with a value, and what the field says of it."""

    def state(self, node: int, result: int, said: tuple[int, ...]) -> State | None:
        """What a result is, if it is one of some parts; None if it is none of them.

        Raises:
            UnevaluatedError: that cannot be told.
        """
        with limited(WORK + self._reserve) as budget:
            try:
                state = self._state(node, result, said)
            finally:
                self._reserve -= max(0, budget.spent - WORK)
                self._sources.end(budget.spent)
        if state is None and budget.exhausted:  # what was left out may be what it is
            raise UnevaluatedError(budget.exhausted)
        return state

    def counts(self, node: int, result: int, part: int) -> bool:
        """Whether a result is the one number that is read from tensors among the sizes of a part, of arguments of all
        kinds, which give different ones.

        Raises:
            UnevaluatedError: that cannot be told.
        """
        operand = ("p", part)
        sizes = enumerate(dimensions_of(self._views.type_of(operand)))
        decided = [dim for dim, size in sizes if read_numbers(size) == [size]]
        if len(decided) != 1:
            return False
        draws = self._draws(node, result, [operand])
        with limited(WORK):
            sources = [
                draws.source(trial, Draw("arguments"), integers, again)
                for trial in TRIALS
                for integers in (range(17), range(2))
                for again in range(_COUNTED)
            ]
            numbers = [
                (draws.value(source, constants), source.tensor(operand).shape[decided[0]])
                for source in sources
                for constants in islice(self._assignments(draws.cone, operand, source), 1)
            ]
        return len({size for _, size in numbers}) > 1 and all(
            value.size == 1 and int(value.at(positions(1))[0]) == size for value, size in numbers
        )

    def _draws(self, node: int, result: int, asked: Sequence[Operand]) -> Draws:
        cone = self._cones.of(node, result)
        return Draws(self._views, self._sources, self._bodies, self._states, node, result, cone, asked)

    def _state(self, node: int, result: int, said: tuple[int, ...]) -> State | None:
        draws = self._draws(node, result, [("p", part) for part in said])
        if (seen := self._seen(draws, said)) is not None:
            return seen
        assumed = any(state.assumed for state in draws.states.values())
        problem = ""  # as text: an error holds the frames that it went through, and they what was computed
        candidates = list(self._views.alike(said))
        refuted: set[Draw] = set()
        last = Draw("all", rounded=not draws.repeats(Draw("all", rounded=True)))
        for draw, integers in DRAWS:
            if draw in refuted or draws.repeats(draw):
                continue
            if draw.drawn == "arguments" and refuted:
                confine(WORK)
            try:
                for plan in self._holding_plans(draws, candidates, draw, integers):
                    finding = self._exactly(draws, plan, draw, integers)
                    if finding.outcome == "different":
                        continue
                    if draw == ALL:
                        key = self._signature(draws, plan.operand)
                        self._holding[key] = plan.layout, finding
                    return State(*self._views.based(plan.operand, plan.layout), exactly=finding)
            except RandomError:
                raise
            except UnevaluatedError as error:
                problem = problem or str(error)
                continue
            refuted.add(draw)
            if draw == last and (self._general(draws, candidates) or self._partial(draws, candidates[0])):
                break
        else:
            if problem and not any(draw.drawn == "arguments" for draw in refuted):
                self.undecided[node, result] = problem
        if not refuted and problem:
            raise UnevaluatedError(problem)
        if assumed:
            raise UnevaluatedError("what it reads is not what it is said to be, or not known")
        return None

    def _general(self, draws: Draws, candidates: Sequence[Operand]) -> bool:
        """Whether what is drawn of all that is read may be anything: it is one value, no constant, of which the program
        may hold others, and what the result may be is computed of nothing else."""
        states = list(draws.states.values())
        operands = {state.operand for state in states}
        sure = all(state.layout is None or state.layout.sure for state in states)
        sure &= not any(kind == "p" and self._views.constant[int(name)] for kind, name in operands)
        given = operands | {("a", position) for position in draws.cone.given}
        return sure and len(operands) + len(draws.cone.given) <= 1 and self._views.determined(candidates, given)

    def _partial(self, draws: Draws, operand: Operand) -> bool:
        """Whether a result is not wholly written, whatever is drawn: no number that it reads is an index."""
        source = draws.source(TRIALS[0], *DRAWS[0])
        return self._floats_only(draws) and self._unwritten(draws, operand, source)

    def _floats_only(self, draws: Draws) -> bool:
        """Whether all that is read are floats, and no indices."""
        read = [state.operand for state in draws.states.values()]
        read += [("a", position) for position in draws.cone.given]
        return all(self._views.type_of(value).startswith(FLOAT) for value in read)

    def _signature(self, draws: Draws, operand: Operand) -> Hashable:
        twin = self._views.drawn(TRIALS[0], 0).twin
        given = frozenset(map(twin, draws.pieces))
        return Signature(self._views, self._bodies, draws.known).of(draws.node, draws.result, operand, given)

    def _seen(self, draws: Draws, said: Sequence[int]) -> State | None:
        """What a result is, where one like it was compared before."""
        if not self._holding:
            return None
        for part in said:
            try:
                signature = self._signature(draws, ("p", part))
            except UnevaluatedError:
                continue
            if signature in self._holding:
                layout, finding = self._holding[signature]
                return State(*self._views.based(("p", part), layout), exactly=finding)
        return None

    def _holding_plans(self, draws: Draws, said: Sequence[Operand], draw: Draw, integers: range) -> Iterator[_Plan]:
        """Ways in which a result agrees with a value on all kinds of operands.

        Whole numbers may do so by chance, as counts do that are all zero: they have to agree whatever integers are
        drawn, and of several ways those come first that agree where most is drawn.
        """
        plans = self._plans(draws, said, draw, integers)
        holding = (plan for plan in plans if self._holds(draws, plan, draw, integers))
        for plan in holding:
            if not plan.whole:
                yield plan
                continue
            different = {self._key(plan): plan}
            # What does not hold for sure is left out, and work for those that were come by.
            with suppress(UnevaluatedError), limited(WORK // 4):
                self._told_apart(draws, different, plans, draw, integers)
            yield from self._ranked(draws, list(different.values()))
            return

    def _told_apart(
        self, draws: Draws, different: dict[Hashable, _Plan], plans: Iterator[_Plan], draw: Draw, integers: range
    ) -> None:
        """Adds ways that hold as the first one does, and say something else."""
        alike = 0
        for plan in plans:
            key = self._key(plan)
            if key in different or self._holds(draws, plan, draw, integers):
                different.setdefault(key, plan)
                alike += 1
            if alike == _ALIKE:
                return

    def _ranked(self, draws: Draws, plans: list[_Plan]) -> Iterator[_Plan]:
        """Those first that no draws of the first kind refute, then of the others those that none of the next do: what
        is drawn least costs most, and is asked last."""
        for kind in KINDS:
            if draws.repeats(kind):
                continue
            if kind.drawn == "arguments":
                confine(WORK)
            kept = [plan for plan in plans if self._agrees_on_all(draws, plan, kind)]
            yield from kept
            plans = [plan for plan in plans if plan not in kept]

    def _agrees_on_all(self, draws: Draws, plan: _Plan, kind: Draw) -> bool:
        """Whether some draws of a kind speak for a plan, and none against it."""
        agreed: set[bool] = set()
        for draw, integers in DRAWS:
            if draw == kind and False not in agreed:
                with suppress(UnevaluatedError):  # this one tells nothing
                    source = draws.source(TRIALS[0], draw, integers)
                    agreed.add(self._agrees(draws, plan, source))
        return agreed == {True}

    def _agrees(self, draws: Draws, plan: _Plan, source: SourceValues) -> bool:
        want, got = source.tensor(plan.operand), draws.value(source, plan.constants)
        return agree(*sampled(got, want, plan.layout))

    def _key(self, plan: _Plan) -> Hashable:
        """Equal for plans that say the same of a result."""
        operand, layout = self._views.based(plan.operand, plan.layout)
        return self._views.drawn(TRIALS[0], 0).twin(operand), None if layout is None else layout.key

    def _plans(self, draws: Draws, said: Sequence[Operand], draw: Draw, integers: range) -> Iterator[_Plan]:
        """Ways in which a result agrees with a value, on random operands.

        Raises:
            UnevaluatedError: no value could be compared.
        """
        plain = draws.source(TRIALS[0], draw, integers)
        problem = ""
        compared = empty = False
        comparisons: list[tuple[tuple[Operand, SourceValues, Tensor], Iterator[Constants]]] = []
        for operand in said:
            if self._unwritten(draws, operand, plain):
                if len(integers) > 1 and not self._floats_only(draws):
                    problem = problem or "it reads elements that are not there"  # by a large index
                else:
                    compared = True
                continue
            try:
                source, want = self._wanted(draws, operand, plain, draw, integers)
                comparisons.append(((operand, source, want), self._assignments(draws.cone, operand, source)))
            except RandomError:
                raise
            except UnevaluatedError as error:
                problem = problem or str(error)
                empty |= isinstance(error, _EmptyError)
        for tried, ((operand, source, want), constants) in enumerate(in_turn(comparisons)):
            if tried == _PLANS:
                raise UnevaluatedError("too many constants that it may read")
            got = draws.value(source, constants)
            flat = positions(got.size)
            compared = True
            if got.size == want.size and not self._similar(got, want, flat[:: max(1, flat.size // _GLANCED)]):
                continue
            for layout in layouts(want.shape, got.shape) if got.size == want.size else ():
                values, wanted = sampled(got, want, layout)
                if agree(values, wanted):
                    numbers = values[np.isfinite(values)]
                    whole = bool((numbers == np.rint(numbers)).all())
                    yield _Plan(operand, layout, constants, numbers.size, whole and not self._varied(operand, numbers))
        if empty or (problem and not compared):  # on operands of which it has elements it may be what it is said to be
            raise UnevaluatedError(problem)
        if draw != ALL or self._unwritten(draws, said[0], plain):
            return
        if has_read_numbers(self._views.type_of(said[0])):  # other draws have other sizes
            return
        for trial in TRIALS[:2]:  # on positive numbers more functions give each of them another value
            source = draws.source(trial, draw, integers)
            for constants in islice(self._assignments(draws.cone, said[0], source), 1):
                drawn = (draws.source(trial, draw, integers, again) for again in count())
                pairs = ((one.tensor(said[0]), draws.value(one, constants)) for one in drawn)
                first = list(islice(pairs, 2))
                if is_constant([got for _, got in first]):  # elements of a value that varies are no constant
                    continue
                for layout in gathered(chain(first, pairs)):
                    yield _Plan(said[0], layout, constants, layout.size, whole=False)

    def _varied(self, operand: Operand, numbers: Array) -> bool:
        """Whether whole numbers agree by no chance: steps of 8 bits, of which there are many different ones."""
        steps = self._views.type_of(operand).startswith(("i8[", "u8["))
        return steps and np.unique(numbers).size >= _VARIED

    def _unwritten(self, draws: Draws, operand: Operand, source: SourceValues) -> bool:
        """Whether some of a result is not written yet: it is no value, and those of the source take long to compute."""
        with suppress(UnevaluatedError):  # which is told where values are compared
            for constants in islice(self._assignments(draws.cone, operand, source), 1):
                got = draws.value(source, constants)
                return bool(is_undefined(got.at(positions(got.size))).any())
        return False

    def _wanted(
        self, draws: Draws, operand: Operand, plain: SourceValues, draw: Draw, integers: range
    ) -> tuple[SourceValues, Tensor]:
        """What a value is on operands on which it has numbers, with those operands; where it has none on such of both
        signs, as with variances below zero, they are positive ones, or below 1: all that is no number agrees.

        Raises:
            UnevaluatedError: it is computed of something that torch does not know, or has elements in other draws only.
        """
        want = plain.tensor(operand)
        wanted = want.at(positions(want.size))
        if wanted.dtype.kind == "f" and not np.isfinite(wanted).any():
            for trial in SOMEWHERE:
                source = draws.source(trial, draw, integers)
                other = source.tensor(operand)
                numbers = other.at(positions(other.size))
                if np.isfinite(numbers).any():
                    return source, other
        kind = self._views.type_of(operand)
        if want.size or not has_symbols(kind) or is_empty(kind):
            return plain, want
        for again in range(1, _COUNTED):  # as a mask of one element decides
            source = draws.source(TRIALS[0], draw, integers, again)
            if (other := source.tensor(operand)).size:
                return source, other
        raise _EmptyError("on random operands it has no elements")

    @staticmethod
    def _similar(got: Tensor, want: Tensor, flat: Array) -> bool:
        """Whether, by few elements, one may hold the other's in some order."""
        values = got.at(flat)
        orders = layouts(want.shape, got.shape)
        return any(agree(values, want.at(flat if order is None else order.at(flat))) for order in orders)

    def _holds(self, draws: Draws, plan: _Plan, draw: Draw, integers: range) -> bool:
        """Whether they agree on all kinds of operands.

        Raises:
            UnevaluatedError: torch or the body fails on some, or on none of them there is a number.
        """
        numbers = plan.numbers
        for trial in TRIALS[1:]:
            if trial in SOMEWHERE and numbers * 2 > SAMPLED:
                continue  # these are for functions that are defined there only
            try:
                source = draws.source(trial, draw, integers)
                want = source.tensor(plan.operand)
                got = draws.value(source, plan.constants)
                values, wanted = sampled(got, want, plan.layout, seed=TRIALS.index(trial))
                numbers += int(np.isfinite(values).sum())
                if not agree(values, wanted):
                    return False
            except UnevaluatedError:
                if trial != "whole":
                    raise
        if not numbers and got.size:
            raise UnevaluatedError("on random operands there is no number in the result")
        return True

    def _exactly(self, draws: Draws, plan: _Plan, draw: Draw, integers: range) -> Finding:
        """What exact arithmetic says of a way in which they agree in float64."""

        plain = draws.source(TRIALS[0], draw, integers)
        flat = _few(draws.value(plain, plan.constants).size)

        def want() -> Array:
            return drawn().tensor(plan.operand).at(flat if plan.layout is None else plan.layout.at(flat))

        def got() -> Array:
            return draws.evaluated(drawn(), plan.constants).at(flat)

        @cache
        def drawn() -> SourceValues:
            return draws.fresh(TRIALS[0], draw, integers)

        return compared(want, got, folding=lambda: self._views.folds(plan.operand, drawn().given))


def _few(size: int) -> Array:
    """Positions among those that are compared in float64."""
    flat = positions(size)
    return flat[:: max(1, flat.size // FEW)]
