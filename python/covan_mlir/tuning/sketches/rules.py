"""The rules that derive sketches, and those that users add.

A rule is given a state and gives the states that go on from it: the state itself where it has nothing to say, or where
what it does is one way among others. All rules are asked at each step of the chain, from its end backwards, in the
order of their registration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from covan_mlir.fred.chain import Chain, Map, Reduce
from covan_mlir.fred.expression import Apply, Window
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.reductions.hoist import Scope
from covan_mlir.lowering.kernels.reductions.tile_roles import tile_roles
from covan_mlir.lowering.kernels.structure import Structure
from covan_mlir.tuning.sketches.state import State, lies_last, positions

Apply_ = Callable[[State], Iterable[State]]


@dataclass(frozen=True)
class Rule:
    """A rule.

    Attributes:
        name: that derivations call it by.
        apply: gives the states that go on from a state.
        own: it is one of covan's.
    """

    name: str
    apply: Apply_
    own: bool = False


_rules: dict[str, Rule] = {}


def rule(apply: Apply_) -> Apply_:
    """Makes a function a rule, of its name; the decorator of users' own rules (docs/tuning.md).

    Raises:
        ValueError: there is a rule of this name.
    """
    return _register(apply, own=False)


def _register(apply: Apply_, *, own: bool) -> Apply_:
    name = apply.__name__
    if name in _rules:
        raise ValueError(f"there is a rule {name!r}: choose another name")
    _rules[name] = Rule(name, apply, own)
    return apply


def unregister(name: str) -> None:
    """Forgets a rule of a user's own.

    Raises:
        KeyError: there is none of this name.
    """
    if name not in _rules or _rules[name].own:
        raise KeyError(name)
    del _rules[name]


def rules() -> tuple[Rule, ...]:
    """All rules, in the order in which they are asked."""
    return tuple(_rules.values())


def _own(apply: Apply_) -> Apply_:
    return _register(apply, own=True)


@_own
def always_inline(state: State) -> Iterator[State]:
    """What is done to single elements, and is no result, is computed where it is read."""
    plain = isinstance(state.step, Map) and state.step.name not in state.chain.outputs
    yield state.staged("inlined") if plain and not state.decided else state


@_own
def fuse_consumer(state: State) -> Iterator[State]:
    """A result that is made of single elements is made in the tiles of what it is made of, while these are near."""
    yield state.staged("fused") if isinstance(state.step, Map) and not state.decided else state


@_own
def join(state: State) -> Iterator[State]:
    """Further reductions are computed by the nest that there is."""
    joins = isinstance(state.step, Reduce) and state.structure is not None and not state.decided
    yield state.staged("nest") if joins else state


@_own
def begin(state: State) -> Iterator[State]:
    """A reduction begins a nest: of sweeps over rows; where elements are read more than once, of tiles as well; where
    one reduction needs another and they have different axes, of one loop in which both roll along, or, where products
    meet in one value, of tiles of that."""
    if not isinstance(state.step, Reduce) or state.decided:
        yield state
        return
    chain = state.chain
    tiles = state.reads.reused and not state.reads.dependent
    rolling = state.reads.dependent and not chain.single_domain
    if not chain.windowed and not rolling:
        yield state.staged("nest", Structure("rows"))
    if tiles:
        yield state.staged("nest", Structure("tiles"))
    if rolling:
        yield state.staged("nest", Structure("rolling"))
        if _meet(chain):
            yield state.staged("nest", Structure("tiles"))


def _meet(chain: Chain) -> bool:
    """Whether products meet in tiles of one value."""
    try:
        tile_roles(chain)
    except UnsupportedError:
        return False
    return True


@_own
def factor_lanes(state: State) -> Iterator[State]:
    """Lanes have partial results where what is reduced lies together in memory: sweeps have to, tiles may."""
    structure = state.structure
    if not state.first or structure is None or structure.factored:
        yield state
        return
    assert isinstance(state.step, Reduce)
    partial = state.changed(replace(structure, factored="lanes"))
    if structure.loops == "rows":
        widest = max(state.chain.inputs, key=lambda value: len(value.axes))
        yield partial if widest.axes[-1:] and widest.axes[-1] in state.chain.swept else state
        return
    yield state
    if structure.loops == "rolling" or (len(state.chain.reductions) == 1 and lies_last(state.chain, state.step)):
        yield partial


@_own
def factor_parts(state: State) -> Iterator[State]:
    """What rolls along is cut into parts where there are few results to share among cores."""
    yield state
    structure = state.structure
    if state.first and structure is not None and structure.loops == "rolling" and structure.factored == "lanes":
        kept = tuple(axis.name for axis in state.chain.axes if axis.name not in state.chain.swept)
        if positions(state.chain, kept) < positions(state.chain, tuple(state.chain.swept)):
            yield state.changed(replace(structure, factored="parts"))


@_own
def cache_inputs(state: State) -> Iterator[State]:
    """What is read more than once goes through scratch, in the order in which it is read."""
    structure = state.structure
    if not state.first or structure is None or structure.loops != "tiles" or structure.cached:
        yield state
    elif structure.factored:
        # Nothing has to be in another order; only what is outside of an input has to be around it.
        yield state.changed(replace(structure, cached=state.reads.inputs)) if state.reads.leaving else state
    else:
        yield state
        yield state.changed(replace(structure, cached=state.reads.inputs))


@_own
def pack_weights(state: State) -> Iterator[State]:
    """Weights are held in another form, which is computed ahead of time; what is left goes through scratch."""
    yield state
    structure, weights = state.structure, state.reads.weights
    if state.first and structure is not None and structure.cached and not structure.factored and weights:
        left = tuple(name for name in state.reads.inputs if name not in weights)
        yield state.changed(replace(structure, cached=left, packed=weights))


@_own
def cache_accumulators(state: State) -> Iterator[State]:
    """Accumulators wait in scratch for the next block of what is reduced."""
    yield state
    if state.first and state.structure is not None and state.structure.loops == "tiles":
        yield state.changed(replace(state.structure, held=True))


@_own
def winograd(state: State) -> Iterator[State]:
    """A convolution by a 3 x 3 filter, by minimal filtering: one that is a weight is held transformed."""
    yield state
    structure = state.structure
    if not state.first or structure is None or not (structure.cached and structure.held):
        return
    if state.reads.weights and not structure.packed:
        return
    assert isinstance(state.step, Reduce)
    term = Scope(state.chain, {}).inlined(state.step.expr)
    if not isinstance(term, Apply) or term.op != "arith.mulf" or state.step.combine != "add":
        return
    windows = [factor for factor in term.args if isinstance(factor, Window)]
    sizes = state.chain.known_sizes
    taps = [axis for window in windows for at in window.at if len(at.terms) == 2 for axis in at.axes]
    if [sizes[axis] for axis in taps if axis in state.step.over] == [3, 3]:
        yield state.changed(replace(structure, algorithm="winograd"))
