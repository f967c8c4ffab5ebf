"""Sketches: what the rules derive, that each template's kernels are among it, and rules of users' own."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import numpy as np
import pytest
import torch
from dense_chains import MACHINE, arrays_of, channels_last, convolution, f, near, product
from limits import part
from plain_chains import Writer, attention, softmax
from test_correlations import weight_gradient
from test_integer_products import CASES as INTEGERS
from test_loop_nest import CASES
from test_word_depthwise import CASES as DEPTHWISE
from tile_chains import attention_gradients

from covan_mlir import tuner, tuning
from covan_mlir.fred.chain import Chain
from covan_mlir.fred.interpret import interpret
from covan_mlir.lowering.kernels import registry
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.kernel import Executable, Refusal
from covan_mlir.lowering.kernels.select import Candidate, choices
from covan_mlir.lowering.kernels.standalone import Standalone
from covan_mlir.lowering.kernels.structure import Structure
from covan_mlir.lowering.kernels.template import IllegalScheduleError
from covan_mlir.tuning.sketches import rules
from covan_mlir.tuning.sketches.derive import sketch_of, sketches
from covan_mlir.tuning.sketches.nest_text import nest_text
from covan_mlir.tuning.sketches.state import State

TARGET = CpuTarget(replace(MACHINE, bf16_pairs=True, int8_words=("vpdpbusd",)))


def weighted(chain: Chain, *names: str) -> Chain:
    return replace(chain, inputs=tuple(replace(value, weight=value.name in names) for value in chain.inputs))


def two_products(joined: bool) -> Chain:
    """Of one factor: side by side, or one of them gates the other."""
    w = Writer("f32", i=70, j=48, k=64)
    x, a, b = w.input("x", "ik"), w.input("a", "kj"), w.input("b", "kj")
    one = w.reduce("s", "ij", "add", "k", f("arith.mulf", x, a))
    other = w.reduce("t", "ij", "add", "k", f("arith.mulf", x, b))
    if joined:
        w.map("y", "ij", f("arith.mulf", one, other))
        return w.chain("y")
    w.map("y", "ij", f("arith.negf", one))
    w.map("z", "ij", f("arith.negf", other))
    return w.chain("y", "z")


def attention_of(rows: int) -> Chain:
    chain = attention(n=600)
    axes = tuple(replace(axis, size=rows) if axis.name == "i" else axis for axis in chain.axes)
    return replace(chain, axes=axes)


TAKEN = {
    "product": [product("ik", "kj", "ij", "k", i=70, j=64, k=600), weighted(CASES["long"], "b")],
    "integer_product": [INTEGERS["plain"], INTEGERS["unsigned"]],
    "dot_product": [product("ik", "jk", "ij", "k", i=3, j=33, k=70)],
    "output_lanes": [
        weighted(convolution(20, 32, (3, 3), (7, 7)), "f"),
        weighted(product("ik", "kj", "ij", "k", i=64, j=25, k=30), "a"),
    ],
    "convolution": [
        convolution(20, 32, (3, 3), (14, 14)),
        weighted(convolution(8, 9, (3, 3), (9, 9), dtype="bf16"), "f"),
    ],
    "word_convolution": [weighted(convolution(8, 16, (3, 3), (9, 9), dtype="bf16"), "f")],
    "winograd": [
        weighted(convolution(20, 32, (3, 3), (14, 14)), "f"),
        convolution(20, 32, (3, 3), (14, 14)),
    ],
    "correlation": [weight_gradient(20, 33, (3, 3), (8, 8), images=6)],
    "depthwise": [convolution(16, 16, (3, 3), (28, 28), groups=16), CASES["maxima"]],
    "word_depthwise": [DEPTHWISE["same"], DEPTHWISE["line"]],
    "channel_lanes": [convolution(64, 64, (3, 3), (7, 7), groups=64)],
    "channels_last": [
        channels_last(convolution(64, 64, (3, 3), (14, 14), groups=64)),
        weighted(channels_last(convolution(40, 40, (5, 5), (9, 9), groups=40, stride=2)), "f"),
    ],
    "siblings": [two_products(joined=False)],
    "gated": [two_products(joined=True)],
    "rows": [softmax(), product("ki", "jk", "ij", "k", i=18, j=17, k=50)],
    "few_rows": [attention_of(1)],
    "many_rows": [attention_of(40)],
    "shared_tile": [attention_gradients()],
    "loop_nest": list(CASES.values()),
}


def candidate(chain: Chain, template: str) -> Candidate:
    listed = choices(chain, TARGET)
    assert not isinstance(listed, Refusal)
    return next(one for one in listed.candidates if one.template.name == template)


@pytest.mark.parametrize("template", TAKEN)
def test_the_rules_reach_every_template(template: str) -> None:
    """Each of its schedules, of chains that it takes, has a structure that a sketch covers."""
    for chain in TAKEN[template]:
        one, derived = candidate(chain, template), sketches(chain)
        structures = {one.match.structure(schedule) for schedule in one.match.schedules()}
        assert structures
        for structure in structures:
            assert structure is not None
            assert sketch_of(structure, derived) is not None, (structure, [each.structure for each in derived])


def test_all_templates_for_cpus_are_looked_at() -> None:
    known = {
        one.name for kind in ("rows", "contractions", "products", "windows") for one in registry.templates("cpu", kind)
    }
    assert {*TAKEN} == known


def test_there_are_few() -> None:
    for chains in TAKEN.values():
        for chain in chains:
            assert 1 <= len(sketches(chain)) <= 10


def test_steps_have_stages() -> None:
    """A product with a bias and a gate: the sum is a nest, in whose tiles the result is made."""
    (sketch,) = [one for one in sketches(TAKEN["product"][0]) if one.structure == Structure("tiles")]
    assert [(stage.step, stage.place) for stage in sketch.stages] == [("s", "nest"), ("y", "fused")]
    chain = softmax()
    (sketch,) = sketches(chain)
    assert sketch.structure.loops == "rows"
    places = {stage.step: stage.place for stage in sketch.stages}
    assert {places[step.name] for step in chain.reductions} == {"nest"}
    assert {places[name] for name in chain.outputs} == {"fused"}


def test_what_is_printed_is_the_nest() -> None:
    (held,) = [one for one in sketches(TAKEN["product"][0]) if one.structure == Structure("tiles", held=True)]
    assert nest_text(held).splitlines()[:6] == [
        "parallel for i.0, j.0:",
        "  for k.0:",
        "    for i.1, j.1:",
        "      for k.1:",
        "        registers i.2, j.2:",
        "          s[i, j] = add(s[i, j], a * b)",
    ]
    for chains in TAKEN.values():
        for chain in chains:
            for sketch in sketches(chain):
                text = nest_text(sketch)
                assert all(f"{step.name}[" in text for step in chain.reductions)


# Programs of a sketch


def outputs(chain: Chain, kernels: list[Executable]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    alone, arrays = Standalone(kernels), arrays_of(chain, 3)
    want = interpret(chain, arrays, "f64")["y"]
    for kernel in kernels:
        got = np.asarray(alone[kernel.name](*(alone.buffer(arrays[each.name]) for each in chain.inputs)).to_host())
        yield got, want


SAMPLED = ("distances", "few distances", "five axes", "strided", "correlation", "maxima")


@pytest.mark.parametrize("name", part(SAMPLED, kept=("distances", "five axes", "correlation", "maxima")))
def test_sampled_programs_are_of_their_sketch_and_right(name: str) -> None:
    """Whatever their numbers are; so are programs with one of them changed, and those made of two."""
    chain, random = CASES[name], Random(4)
    match = candidate(chain, "loop_nest").match
    schedules = []
    for sketch in sketches(chain):
        sampled = [one for _ in range(20) if (one := match.sampled(sketch.structure, random)) is not None]
        for one in sampled:
            changed = match.mutated(one, random)
            assert changed is None or match.structure(changed).held == match.structure(one).held
            crossed = match.crossed(one, sampled[0], random)
            for each in (one, changed, crossed):
                assert each is None or sketch_of(match.structure(each), sketches(chain)) is not None
                assert each is None or match.read(each.to_json()) == each
            assert sketch.structure.covers(match.structure(one))
        schedules += sampled[:2] + [
            one for one in (match.mutated(one, random) for one in sampled[:1]) if one is not None
        ]
    kernels = [match.emit(schedule, f"k{n}", ()) for n, schedule in enumerate(schedules)]
    assert len(kernels) >= 4
    for got, want in outputs(chain, kernels):
        near(got, want, 2100, "f32")


def test_illegal_programs_are_refused_with_a_reason() -> None:
    one = candidate(CASES["long"], "loop_nest")
    fields = one.first.to_json()
    for change, reason in (
        ({"depth": 11}, "blocks of 11 do not divide k"),
        ({"rows": 40}, "do not fit into"),
        ({"lane": "k"}, "lanes do not run along k"),
        ({"row": "j"}, "two axes of the results"),
        ({"unroll": 99}, "99 positions are written out"),
        ({"tiles": [["j", 3]]}, "no vector along j"),
        ({"rows": "many"}, "no schedule of a loop nest"),
    ):
        with pytest.raises(IllegalScheduleError, match=reason):
            one.match.read({**fields, **change})
    strided = candidate(CASES["strided"], "loop_nest")
    with pytest.raises(IllegalScheduleError, match=r"x\.0 has to go through scratch"):
        strided.match.read({**strided.first.to_json(), "staged": []})


# Rules of users' own


@pytest.fixture
def own_rules() -> Iterator[None]:
    before = {rule.name for rule in rules.rules()}
    yield
    for rule in rules.rules():
        if rule.name not in before:
            rules.unregister(rule.name)


def test_a_rule_of_ones_own_makes_sketches_that_are_written(own_rules: None) -> None:
    """The example of docs/tuning.md: of what is read more than once, only the first input goes through scratch."""

    @tuning.rule
    def first_input_in_scratch(state: State) -> Iterator[State]:
        yield state
        structure = state.structure
        if state.first and structure is not None and structure.loops == "tiles" and not structure.cached:
            yield state.changed(replace(structure, cached=state.reads.inputs[:1]))

    chain = product("ik", "kj", "ij", "k", i=21, j=40, k=24)
    (sketch,) = [one for one in sketches(chain) if one.structure == Structure("tiles", cached=("a",))]
    assert sketch.derivation[-1] == "first_input_in_scratch"
    match = candidate(chain, "loop_nest").match
    listed = next(iter(match.structured(sketch.structure)))
    sampled = match.sampled(sketch.structure, Random(1))
    assert sampled is not None
    assert match.structure(listed) == match.structure(sampled) == sketch.structure
    for got, want in outputs(chain, [match.emit(listed, "k0", ()), match.emit(sampled, "k1", ())]):
        near(got, want, 24, "f32")


def test_rules_that_go_wrong_are_left_out(own_rules: None, caplog: pytest.LogCaptureFixture) -> None:
    before = sketches(CASES["distances"])

    @tuning.rule
    def raises(state: State) -> Iterator[State]:
        raise RuntimeError("no such thing")

    @tuning.rule
    def other_chain(state: State) -> Iterator[State]:
        yield replace(state, chain=CASES["long"])

    @tuning.rule
    def endless(state: State) -> Iterator[State]:
        while True:
            yield state

    with caplog.at_level(logging.WARNING):
        assert sketches(CASES["distances"]) == before
    for name in ("raises", "other_chain", "endless"):
        assert f"the rule {name} is left out" in caplog.text
    with pytest.raises(ValueError, match="there is a rule 'raises'"):
        tuning.rule(raises)
    with pytest.raises(KeyError):
        rules.unregister("always_inline")


def test_sketches_of_a_model() -> None:
    """Those that no template writes say so."""

    def distances(points: torch.Tensor, centres: torch.Tensor) -> torch.Tensor:
        return (points[:, None] - centres[None]).abs().sum(-1)

    text = tuner.sketches(distances, (torch.randn(64, 40), torch.randn(48, 40)))
    assert "sum: " in text.splitlines()[0] or "sub, abs_1, sum_1" in text.splitlines()[0]
    assert "written by loop_nest (" in text
    assert "written by loop_nest\n" in text  # in numbers that are not listed
    assert "written by no template" in text
    assert "| parallel for" in text
