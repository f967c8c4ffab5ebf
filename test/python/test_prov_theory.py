"""The theory of provenance: bisimilarity against its definition, the laws, and what tells states apart."""

import doctest
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covan_mlir import prov
from covan_mlir.prov import TAU, Coalgebra, Label, acyclic, cyclic

DOCS = Path(__file__).parents[2] / "docs" / "theory.md"

Pairs = set[tuple[int, int]]


@st.composite
def systems(draw: st.DrawFn, most: int = 6, cycles: bool | None = None) -> Coalgebra:
    """Small systems with many silent steps; half of them without cycles."""
    n = draw(st.integers(1, most))
    state = st.integers(0, n - 1)
    label: st.SearchStrategy[Label] = st.sampled_from([TAU, TAU, "a", "b"])
    triples = draw(st.lists(st.tuples(state, label, state), max_size=2 * n + 2))
    if cycles:  # nearly everything on one cycle
        triples += [(n - 1, "a", 0), *((s, draw(label), s + 1) for s in range(n - 1))]
    elif cycles is False or draw(st.booleans()):
        triples = [(min(s, t), a, max(s, t)) for s, a, t in triples if s != t]
    return Coalgebra.of(triples, states=range(n), initial=0, terminating=draw(st.sets(state, max_size=2)))


class Naive:
    """A system as sets, with the definitions written out."""

    def __init__(self, system: Coalgebra) -> None:
        self.states = range(system.states)
        self.ends = {s for s in self.states if system.terminating[s]}
        self.steps = {s: set(system.successors(s)) for s in self.states}
        self.silently = {s: self._closure(s) for s in self.states}

    def _closure(self, state: int) -> set[int]:
        seen = {state}
        while more := {t for s in seen for a, t in self.steps[s] if a is TAU} - seen:
            seen |= more
        return seen

    def reach(self, state: int, label: Label, weak: bool) -> set[int]:
        if not weak:
            return {t for a, t in self.steps[state] if a == label}
        if label is TAU:
            return self.silently[state]
        return {v for s in self.silently[state] for a, t in self.steps[s] if a == label for v in self.silently[t]}

    def terminates(self, state: int, weak: bool) -> bool:
        return bool(self.silently[state] & self.ends) if weak else state in self.ends

    def satisfies(self, state: int, formula: prov.Formula, weak: bool) -> bool:
        if isinstance(formula, prov.Terminates):
            return self.terminates(state, weak)
        if isinstance(formula, prov.Not):
            return not self.satisfies(state, formula.body, weak)
        after = self.reach(state, formula.label, weak)
        return any(all(self.satisfies(t, part, weak) for part in formula.then) for t in after)


def bisimilar(left: Coalgebra, right: Coalgebra, weak: bool) -> Pairs:
    """The greatest fixed point, from all pairs downwards."""
    a, b = Naive(left), Naive(right)
    pairs = {(x, y) for x in a.states for y in b.states if a.terminates(x, weak) == b.terminates(y, weak)}

    def matched(x: int, y: int) -> bool:
        there = all(any((s, t) in pairs for t in b.reach(y, label, weak)) for label, s in a.steps[x])
        return there and all(any((s, t) in pairs for s in a.reach(x, label, weak)) for label, t in b.steps[y])

    while failed := {pair for pair in pairs if not matched(*pair)}:
        pairs -= failed
    return pairs


def compare(left: Coalgebra, right: Coalgebra, weak: bool) -> prov.Verdict:
    return prov.weak_bisimulation(left, right) if weak else prov.strong_bisimulation(left, right)


@contextmanager
def refining(by: str) -> Iterator[None]:
    """Small systems never need the ways that large ones take: make them."""
    with pytest.MonkeyPatch.context() as patch:
        if by != "sets":
            patch.setattr(cyclic, "_ROOM", 4)
        if by == "steps":
            patch.setattr(cyclic, "_BITS", 0)
        if by == "deep":
            patch.setattr(cyclic, "_LEVELS", 0)
        patch.setattr(cyclic, "_PATIENCE", 4 if by == "deep" else 0)
        yield


@given(systems(), systems())
def test_strong_bisimilarity_is_the_greatest_fixed_point(left: Coalgebra, right: Coalgebra) -> None:
    verdict = prov.strong_bisimulation(left, right)
    expected = bisimilar(left, right, weak=False)
    assert set(verdict.relation) == expected
    assert bool(verdict) == ((left.initial, right.initial) in expected)


@given(systems(), systems())
def test_weak_bisimilarity_is_the_greatest_fixed_point(left: Coalgebra, right: Coalgebra) -> None:
    assert set(prov.weak_bisimulation(left, right).relation) == bisimilar(left, right, weak=True)


@pytest.mark.parametrize("by", ["sets", "bits", "deep", "steps"])
@settings(max_examples=300)
@given(system=systems(most=8, cycles=True))
def test_weak_bisimilarity_of_cyclic_systems(by: str, system: Coalgebra) -> None:
    with refining(by):
        verdict = prov.weak_bisimulation(system)
    assert set(verdict.relation) == bisimilar(system, system, weak=True)


@pytest.mark.parametrize("queries", [0, acyclic._QUERIES])
@given(system=systems(most=9, cycles=False))
def test_weak_bisimilarity_of_acyclic_systems(queries: int, system: Coalgebra) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(acyclic, "_QUERIES", queries)
        relation = prov.weak_bisimulation(system).relation
    assert set(relation) == bisimilar(system, system, weak=True)


@given(systems(), systems())
def test_relation_is_told_in_three_ways(left: Coalgebra, right: Coalgebra) -> None:
    relation = prov.weak_bisimulation(left, right).relation
    pairs = set(relation)
    assert len(relation) == len(pairs)
    assert pairs == {(x, y) for xs, ys in relation.blocks() for x in xs for y in ys}
    assert pairs == {(x, y) for x in range(left.states) for y in range(right.states) if relation.related(x, y)}
    assert relation.classes == len(list(relation.blocks()))


@given(systems(), systems())
def test_strong_bisimilarity_implies_weak(left: Coalgebra, right: Coalgebra) -> None:
    assert set(prov.strong_bisimulation(left, right).relation) <= set(prov.weak_bisimulation(left, right).relation)


@pytest.mark.parametrize("weak", [False, True])
@given(a=systems(4), b=systems(4), c=systems(4))
def test_bisimilarity_is_an_equivalence(weak: bool, a: Coalgebra, b: Coalgebra, c: Coalgebra) -> None:
    assert {(x, x) for x in range(a.states)} <= set(compare(a, a, weak).relation)
    ab, bc = set(compare(a, b, weak).relation), set(compare(b, c, weak).relation)
    assert set(compare(b, a, weak).relation) == {(y, x) for x, y in ab}
    assert {(x, z) for x, y in ab for w, z in bc if y == w} <= set(compare(a, c, weak).relation)


@pytest.mark.parametrize("weak", [False, True])
@given(left=systems(), right=systems())
def test_renaming_is_respected(weak: bool, left: Coalgebra, right: Coalgebra) -> None:
    pairs = set(compare(left, right, weak).relation)
    injective: dict[Label, Label] = {"a": ("op", 1), "b": "a"}
    hiding: dict[Label, Label] = {"a": "b", "b": TAU}

    def under(names: dict[Label, Label]) -> Pairs:
        return set(compare(left.relabel(names.__getitem__), right.relabel(names.__getitem__), weak).relation)

    assert under(injective) == pairs
    assert pairs <= under(hiding)


@given(systems())
def test_project_undoes_reflect(system: Coalgebra) -> None:
    reflected = prov.reflect(system)
    assert prov.project(reflected) == system
    executions = {reflected.action(s) for s in range(reflected.controls, reflected.system.states)}
    assert executions == {t for t in system.transitions() if t.label is not TAU}


@pytest.mark.parametrize("weak", [False, True])
@given(left=systems(5), right=systems(5))
def test_reflection_is_a_conservative_extension(weak: bool, left: Coalgebra, right: Coalgebra) -> None:
    reflected = compare(prov.reflect(left).system, prov.reflect(right).system, weak).relation
    controls = {(x, y) for x, y in reflected if x < left.states and y < right.states}
    assert controls == set(compare(left, right, weak).relation)


def test_observable_ends_of_actions_would_not_be_conservative() -> None:
    # Milner's third law of silent steps: a.(b + TAU.c) + a.c = a.(b + TAU.c)
    steps = [("p", "a", "q"), ("q", "b", "0"), ("q", TAU, "r"), ("r", "c", "0")]
    left, right = Coalgebra.of(steps), Coalgebra.of([*steps, ("p", "a", "r")])
    assert prov.weak_bisimulation(left, right)

    def observable(system: Coalgebra) -> Coalgebra:
        halves = [
            half
            for x, a, y in system.transitions()
            for half in ([(x, TAU, y)] if a is TAU else [(x, a, (x, a, y)), ((x, a, y), "end", y)])
        ]
        return Coalgebra.of(halves)

    assert not prov.weak_bisimulation(observable(left), observable(right))


@pytest.mark.parametrize("weak", [False, True])
@pytest.mark.parametrize("by", ["sets", "steps"])
@settings(max_examples=60)
@given(left=systems(), right=systems())
def test_what_tells_states_apart_does(weak: bool, by: str, left: Coalgebra, right: Coalgebra) -> None:
    with refining(by):
        verdict = compare(left, right, weak)
    naive = Naive(left), Naive(right)
    for x in range(left.states):
        for y in range(right.states):
            distinction = verdict.distinguish(x, y)
            if distinction is None:
                assert verdict.relation.related(x, y)
                continue
            formula = distinction.formula
            assert formula is not None
            assert naive[0].satisfies(x, formula, weak)
            assert not naive[1].satisfies(y, formula, weak)
            assert prov.satisfying(left, formula, weak=weak)[x]
            assert not prov.satisfying(right, formula, weak=weak)[y]
            assert_played(distinction.play, left, right, weak)


def assert_played(play: prov.Play, left: Coalgebra, right: Coalgebra, weak: bool) -> None:
    """Every walk is one of the system it is told of, and the last move has no answer."""
    naive = {"left": Naive(left), "right": Naive(right)}
    at = {"left": play.left, "right": play.right}
    assert play.finished
    for move in play.moves:
        other = "right" if move.side == "left" else "left"
        walks = [(move.side, move.walk), *((other, answer) for answer in move.answers)]
        for side, walk in walks:
            assert walk.start == at[side]
            here = int(walk.start)
            for label, name in walk.steps:
                assert (label, int(name)) in naive[side].steps[here]
                here = int(name)
            done = [label for label, _ in walk.steps if not (weak and label is TAU)]
            assert done == ([] if move.label is None or (weak and move.label is TAU) else [move.label])
        if not move.answers:
            assert move is play.moves[-1]
            cannot = naive[other]
            if move.label is None:
                assert not cannot.terminates(int(at[other]), weak)
            else:
                assert not cannot.reach(int(at[other]), move.label, weak)
            return
        for side, walk in walks[:2]:
            at[side] = walk.steps[-1][1] if walk.steps else walk.start
    pytest.fail("the last move was answered")


def test_a_difference_is_readable() -> None:
    left = Coalgebra.of([("x", TAU, "m"), ("m", "conv", "y"), ("y", "relu", "z")], terminating="z")
    right = Coalgebra.of([("x", "conv", "y"), ("y", TAU, "k"), ("k", "sigmoid", "z")], terminating="z")
    verdict = prov.weak_bisimulation(left, right)
    assert str(verdict).splitlines() == [
        "not weakly bisimilar:",
        "left is at x, right at x",
        "left can do conv: x --τ--> m --conv--> y",
        "  right answers: x --conv--> y",
        "left can do relu: y --relu--> z",
        "  right cannot do relu; it can do sigmoid",
        "only the left satisfies ⟨conv⟩⟨relu⟩",
    ]


def test_long_differences_are_abridged() -> None:
    def chain(last: str) -> Coalgebra:
        return Coalgebra.of([*((i, "a", i + 1) for i in range(5000)), (5000, last, 5001)])

    verdict = prov.strong_bisimulation(chain("b"), chain("c"))
    assert verdict.distinction is not None
    assert verdict.distinction.formula is not None
    assert verdict.distinction.formula.depth == 5001
    told = str(verdict)
    assert "4990 moves that are answered" in told
    assert "right cannot do b; it can do c" in told
    assert len(told) < 2000


def test_divergence_is_not_observed_and_termination_is() -> None:
    def loop(*ends: int) -> Coalgebra:
        return Coalgebra.of([(0, TAU, 1), (1, TAU, 0)], terminating=ends)

    stop = Coalgebra.of([], states=[0])
    assert prov.weak_bisimulation(loop(), stop)
    assert not prov.strong_bisimulation(loop(), stop)
    assert prov.weak_bisimulation(loop(1), Coalgebra.of([], states=[0], terminating=[0]))
    verdict = prov.weak_bisimulation(loop(1), stop)
    assert "left can terminate: 0 --τ--> 1\n  right cannot terminate; it can do nothing" in str(verdict)


def test_weak_is_coarser_than_branching() -> None:
    # a.(b + TAU.c) + a.c and a.(b + TAU.c) are weakly but not branching bisimilar.
    def system(*extra: tuple[str, str, str]) -> Coalgebra:
        return Coalgebra.of([("p", "a", "q"), ("q", "b", "0"), ("q", TAU, "r"), ("r", "c", "0"), *extra])

    assert prov.weak_bisimulation(system(("p", "a", "r")), system())


def test_states_of_one_system_can_be_compared() -> None:
    system = Coalgebra.of([("x", "a", "z"), ("y", "a", "z")])
    assert prov.strong_bisimulation(system, start=(0, 2))
    assert not prov.strong_bisimulation(system, start=(0, 1))


def test_equality_does_not_depend_on_the_order_of_labels() -> None:
    one = Coalgebra.of([(0, "a", 1), (0, "b", 1)])
    other = Coalgebra.of([(0, "b", 1), (0, "a", 1), (0, "a", 1)])
    assert one == other
    assert hash(one) == hash(other)
    assert one != Coalgebra.of([(0, "a", 1), (0, "c", 1)])
    assert one != Coalgebra.of([(0, "a", 1), (0, "b", 1)], terminating=[1])


def test_bad_arrays_are_refused() -> None:
    with pytest.raises(ValueError, match="differ in length"):
        Coalgebra.from_arrays(2, [0], [0], [], labels=["a"])
    with pytest.raises(ValueError, match="dst holds a number outside 0"):
        Coalgebra.from_arrays(2, [0], [0], [2], labels=["a"])
    with pytest.raises(ValueError, match="initial state 2"):
        Coalgebra.from_arrays(2, [0], [0], [1], labels=["a"], initial=2)
    with pytest.raises(ValueError, match="shape"):
        Coalgebra.from_arrays(2, [0], [0], [1], labels=["a"], terminating=[True])
    with pytest.raises(ValueError, match="one visible transition into it"):
        prov.project(prov.Reflected(Coalgebra.of([(0, "a", 1)]), 1))
    with pytest.raises(ValueError, match="is a control state"):
        prov.reflect(Coalgebra.of([(0, "a", 1)])).action(1)


def test_the_documentation_is_true() -> None:
    failed, tried = doctest.testfile(str(DOCS), module_relative=False, encoding="utf-8")
    assert tried > 5
    assert failed == 0


def test_importing_needs_no_compiler() -> None:
    code = "import sys, covan_mlir.prov; print({'torch', 'torch_mlir', 'iree'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


@pytest.mark.parametrize("name", ["f.0", "f.1>0", "f>0", "input 0", "output 0", "'f.0'", "\"'f.0'\""])
def test_no_name_of_an_operation_passes_for_an_operand(name: str) -> None:
    def labels(op: str, operands: tuple[str, ...], results: tuple[str, ...]) -> set[Label]:
        system = prov.from_dataflow([(op, operands, results)], inputs=["x"], outputs=["y"])
        return {label for label in system.labels if label not in (TAU, "input 0", "output 0")}

    own = labels(name, ("x",), ("y",))
    assert own
    for operands in ((), ("x",), ("x", "x")):
        for results in (("y",), ("y", "z")):
            assert own.isdisjoint(labels("f", operands, results))
            assert own.isdisjoint(labels("f.0", operands, results)) or name == "f.0"
