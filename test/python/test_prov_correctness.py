"""Observational correctness of rewrites, up to action abstraction; dataflow graphs."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from systems import KINDS, Kind, permuted

from covan_mlir import prov
from covan_mlir.prov import TAU, Abstraction, Coalgebra, Label, Operation, Transition

FUSION = Abstraction.of((["Conv", "ReLU"], "ConvReLU"))


def path(*labels: Label) -> Coalgebra:
    return Coalgebra.of([(i, label, i + 1) for i, label in enumerate(labels)], terminating=[len(labels)])


def names(system: Coalgebra, transitions: tuple[Transition, ...]) -> list[str]:
    return [f"{system.name(x)} {label} {system.name(y)}" for x, label, y in transitions]


def test_fusion() -> None:
    source, target = path("Conv", "ReLU"), path("ConvReLU")
    outcome = prov.observationally_correct(source, target, FUSION)
    assert outcome
    assert names(source, outcome.performed(0)) == ["0 Conv 1", "1 ReLU 2"]
    assert names(target, outcome.performers(1)) == ["0 ConvReLU 1"]
    assert outcome.eliminated == (1,)
    assert set(outcome.values) == {(0, 0), (2, 1)}
    assert not prov.observationally_correct(source, target)
    assert not prov.observationally_correct(source, path("ReLU", "Conv"), FUSION)


def test_a_wrong_fusion_is_explained() -> None:
    wrong = Abstraction.of((["Conv", "Sigmoid"], "ConvSigmoid"))
    outcome = prov.observationally_correct(path("Conv", "ReLU"), path("ConvSigmoid"), wrong)
    assert not outcome
    assert "  right answers: 0 --Conv--> [ConvSigmoid: 0 → 1, after Conv]" in str(outcome)
    assert "  right cannot do ReLU; it can do Sigmoid" in str(outcome)


@pytest.mark.parametrize(
    ("source", "target", "rules"),
    [
        (["drop", "f"], ["f"], [(["drop"], TAU)]),
        (["f"], ["copy", "f", "copy"], [([], "copy")]),
        (["T", "T", "f"], ["f"], [(["T", "T"], TAU)]),
        (["conv", "drop", "relu"], ["fused"], [(["conv", "relu"], "fused"), (["drop"], TAU)]),
        (["conv", "drop", "relu"], ["fused"], [(["conv", "drop", "relu"], "fused"), (["drop"], TAU)]),
        (["sum"], ["partial", "combine"], [(["sum"], "partial"), ([], "combine")]),
        (["a", "b"], ["c", "d"], [(["a"], "c"), (["b"], "d"), (["b"], "c")]),
    ],
)
def test_rewrites(source: list[Label], target: list[Label], rules: list[tuple[list[Label], Label]]) -> None:
    assert prov.observationally_correct(path(*source), path(*target), Abstraction.of(*rules))
    assert not prov.observationally_correct(path(*source, "more"), path(*target), Abstraction.of(*rules))


def test_a_pair_of_actions_survives_where_its_middle_is_used() -> None:
    source = Coalgebra.of([(0, "T", 1), (1, "T", 2), (1, "g", 3), (2, "f", 4)], terminating=[3, 4])
    target = Coalgebra.of([(2, "f", 4), (2, "g", 3)], initial=2, terminating=[3, 4])
    assert not prov.observationally_correct(source, target, Abstraction.of((["T", "T"], TAU)))


def test_one_generated_action_can_stand_for_several_words() -> None:
    source = Coalgebra.of(
        [("x", "conv", "m"), ("m", "relu", "y"), ("m", "clamp", "z"), ("y", "f", "e"), ("z", "g", "e")],
        terminating=["e"],
    )
    target = Coalgebra.of([("x", "F", "y"), ("x", "F", "z"), ("y", "f", "e"), ("z", "g", "e")], terminating=["e"])
    rules = Abstraction.of((["conv", "relu"], "F"), (["conv", "clamp"], "F"))
    outcome = prov.observationally_correct(source, target, rules)
    assert outcome
    assert names(source, outcome.performed(0)) == ["x conv m", "m relu y"]
    crossed = Coalgebra.of([("x", "F", "y"), ("x", "F", "z"), ("y", "f", "e"), ("z", "h", "e")], terminating=["e"])
    assert not prov.observationally_correct(source, crossed, rules)


def test_words_that_share_actions_share_states_only_if_the_source_does() -> None:
    apart = Coalgebra.of([("x", "a", "m"), ("x", "a", "n"), ("m", "b", "y"), ("n", "b", "z"), ("z", "c", "y")])
    together = Coalgebra.of([("x", "a", "m"), ("m", "b", "y"), ("m", "d", "z"), ("z", "c", "y")])
    rules = Abstraction.of((["a", "b"], "F"), (["a", "d"], "G"))
    assert prov.observationally_correct(apart, Coalgebra.of([("x", "F", "y"), ("x", "F", "z"), ("z", "c", "y")]), rules)
    fused = Coalgebra.of([("x", "F", "y"), ("x", "G", "z"), ("z", "c", "y")])
    assert prov.observationally_correct(together, fused, rules)
    assert not prov.observationally_correct(together, fused, rules, share=False)


def test_abstractions_compose() -> None:
    first = Abstraction.of((["conv", "add"], "linear"), (["drop"], TAU))
    second = Abstraction.of((["linear", "relu"], "kernel"), ([], "copy"))
    both = first.then(second)
    assert both.words("kernel") == (("conv", "add", "relu"),)
    assert both.eliminated == (("drop",),)
    steps = path("conv", "add", "drop", "relu"), path("linear", "relu"), path("kernel", "copy")
    assert prov.observationally_correct(steps[0], steps[1], first)
    assert prov.observationally_correct(steps[1], steps[2], second)
    assert prov.observationally_correct(steps[0], steps[2], both)
    assert both.reversed().words("kernel") == (("relu", "add", "conv"),)


def test_bad_rules_are_refused() -> None:
    with pytest.raises(TypeError, match=r"write \['Conv'\]"):
        Abstraction.of(("Conv", "Kernel"))
    with pytest.raises(ValueError, match="TAU is not an action"):
        Abstraction.of((["a", TAU], "b"))


LETTERS = ["a", "b", "F", "G"]
WORDS: dict[Label, tuple[Label, ...]] = {"F": ("a", "b"), "G": ("b", "b", "a"), "b": ("b",)}


@st.composite
def targets(draw: st.DrawFn) -> Coalgebra:
    n = draw(st.integers(1, 4))
    state = st.integers(0, n - 1)
    label: st.SearchStrategy[Label] = st.sampled_from([TAU, *LETTERS])
    triples = draw(st.lists(st.tuples(state, label, state), max_size=6))
    return Coalgebra.of(triples, states=range(n), initial=0, terminating=draw(st.sets(state)))


def written_out(system: Coalgebra) -> Coalgebra:
    """Every generated action replaced by its word, without action states."""
    triples: list[tuple[object, Label, object]] = []
    for x, label, y in system.transitions():
        word = WORDS.get(label, (label,))
        inner = [x, *((x, label, y, i) for i in range(1, len(word))), y]
        triples += zip(inner, word, inner[1:], strict=False)
    ends = [s for s in range(system.states) if system.terminating[s]]
    return Coalgebra.of(triples, states=range(system.states), initial=0, terminating=ends)


@given(targets(), targets())
def test_forgetting_action_states_leaves_value_based_correctness(one: Coalgebra, other: Coalgebra) -> None:
    rules = Abstraction.of(*((word, generated) for generated, word in WORDS.items()))
    source = written_out(one)
    outcome = prov.observationally_correct(source, other, rules, share=False)
    expected = prov.weak_bisimulation(source, written_out(other))
    assert bool(outcome) == bool(expected)
    assert set(outcome.values) == {(x, y) for x, y in expected.relation if y < other.states}
    assert prov.observationally_correct(source, one, rules, share=False)


@given(targets())
def test_every_execution_has_its_trace(target: Coalgebra) -> None:
    rules = Abstraction.of(*((word, generated) for generated, word in WORDS.items()))
    source = written_out(target)
    outcome = prov.observationally_correct(source, target, rules, share=False)
    for i, (_, label, _) in enumerate(target.transitions()):
        performed = outcome.performed(i)
        wanted = set() if label is TAU else set(WORDS.get(label, (label,)))
        assert {step.label for step in performed} == wanted
        for step in performed:
            at = next(j for j, other in enumerate(source.transitions()) if other == step)
            assert target.transition(i) in outcome.performers(at)


RESIDUAL = [("conv", ["x", "w"], ["m"]), ("relu", ["m"], ["r"]), ("add", ["r", "x"], ["y"])]


def test_fusing_a_residual_block() -> None:
    source = prov.from_dataflow(RESIDUAL, inputs=["x", "w"], outputs=["y"])
    target = prov.from_dataflow([("fused", ["x", "w"], ["y"])], inputs=["x", "w"], outputs=["y"])
    rules = Abstraction.of(
        (["conv.0", "relu", "add.0"], "fused.0"), (["add.1"], "fused.0"), (["conv.1", "relu", "add.0"], "fused.1")
    ).reversed()
    outcome = prov.observationally_correct(source, target, rules)
    assert outcome, str(outcome)
    position = list(target.transitions()).index(next(t for t in target.transitions() if t.label == "fused.0"))
    assert names(source, outcome.performed(position)) == ["m conv.0 x", "r relu m", "y add.0 r", "y add.1 x"]
    swapped = prov.from_dataflow([("fused", ["w", "x"], ["y"])], inputs=["x", "w"], outputs=["y"])
    assert not prov.observationally_correct(source, swapped, rules)


TWINS = [("f", ["x"], ["a"]), ("f", ["x"], ["b"]), ("g", ["a", "b"], ["y"]), ("h", ["x"], ["dead"])]
MERGED = [("f", ["x"], ["a"]), ("g", ["a", "a"], ["y"])]


def test_definitions_do_not_see_merging_and_deletion_and_uses_do() -> None:
    def graph(nodes: list[tuple[str, list[str], list[str]]], uses: bool) -> Coalgebra:
        return prov.from_dataflow(nodes, inputs=["x"], outputs=["y"], observe="uses" if uses else "definitions")

    assert prov.strong_bisimulation(graph(TWINS, uses=False), graph(MERGED, uses=False))
    assert not prov.weak_bisimulation(graph(TWINS, uses=True), graph(MERGED, uses=True))


def test_dataflow_labels() -> None:
    graph = prov.from_dataflow(
        [Operation("one", (), ("c",)), Operation("split", ("x",), ("l", "r")), Operation("add", ("l", "c"), ("y",))],
        inputs=["x"],
        outputs=["y", "r"],
    )
    told = {(graph.name(x), label, graph.name(y)) for x, label, y in graph.transitions()}
    assert told == {
        ("start", "output 0", "y"),
        ("start", "output 1", "r"),
        ("y", "add.0", "l"),
        ("y", "add.1", "c"),
        ("l", "split.0>0", "x"),
        ("r", "split.0>1", "x"),
        ("c", "one", "end"),
        ("x", "input 0", "end"),
    }
    with pytest.raises(ValueError, match="'y' is defined twice"):
        prov.from_dataflow([("f", ["x"], ["y"]), ("g", ["x"], ["y"])], inputs=["x"], outputs=["y"])
    with pytest.raises(ValueError, match="'z' is used and never defined"):
        prov.from_dataflow([("f", ["z"], ["y"])], inputs=["x"], outputs=["y"])


@st.composite
def graphs(draw: st.DrawFn) -> list[tuple[str, list[str], list[str]]]:
    nodes: list[tuple[str, list[str], list[str]]] = []
    values = ["x", "y"]
    for i in range(draw(st.integers(1, 7))):
        op = draw(st.sampled_from(["f", "add", "one"]))
        operands = draw(st.lists(st.sampled_from(values), min_size=2, max_size=2))
        nodes.append((op, operands[: {"f": 1, "add": 2, "one": 0}[op]], [f"v{i}"]))
        values.append(f"v{i}")
    return nodes


@given(graphs())
def test_definitions_are_terms(nodes: list[tuple[str, list[str], list[str]]]) -> None:
    graph = prov.from_dataflow(nodes, inputs=["x", "y"], outputs=[nodes[-1][2][0]])
    term: dict[str, object] = {"x": "x", "y": "y"}
    for op, operands, (result,) in nodes:
        term[result] = (op, *(term[operand] for operand in operands))
    state = {graph.name(s): s for s in range(graph.states)}
    for weak in (False, True):
        compare = prov.weak_bisimulation if weak else prov.strong_bisimulation
        relation = compare(graph).relation
        for a in term:
            for b in term:
                assert relation.related(state[a], state[b]) == (term[a] == term[b])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("compare", [prov.strong_bisimulation, prov.weak_bisimulation])
def test_a_system_is_like_itself_in_another_order(
    kind: Kind, compare: Callable[[Coalgebra, Coalgebra], prov.Verdict]
) -> None:
    left, right, places = permuted(kind, 3000)
    relation = compare(left, right).relation
    assert all(relation.related(state, place) for state, place in enumerate(places))
