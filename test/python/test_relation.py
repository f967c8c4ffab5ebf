"""Relating a source graph to dispatches: what lies between a dispatch's states, on graphs small enough to see."""

from __future__ import annotations

from collections.abc import Sequence

from covan_mlir.provenance.model import Part
from covan_mlir.provenance.program_graph import (
    Argument,
    Constant,
    Definition,
    Global,
    NodeResult,
    ProgramGraph,
    ProgramNode,
    Value,
)
from covan_mlir.provenance.relation import Region, Source, relate


def part(index: int, *inputs: int, args: Sequence[int] = (), view: bool = False, twin: int | None = None) -> Part:
    first = index if twin is None else twin
    return Part(index, 0, f"p{index}", "aten.op", inputs, ("f32[4]",), tuple(args), view, first)


def node(evidence: Sequence[int], inputs: Sequence[Value], *outputs: Sequence[int]) -> ProgramNode:
    computed = tuple((Definition("compute", tuple(ids)),) for ids in outputs)
    return ProgramNode("dispatch", "call", tuple(inputs), computed, tuple(evidence))


def regions(parts: Sequence[Part], *nodes: ProgramNode, same: Sequence[int] = ()) -> list[Region]:
    return relate(Source({p.id: p for p in parts}), ProgramGraph(nodes), lambda index: index in same)


X = Argument(0)


def test_region_is_what_lies_between_the_states() -> None:
    # x -> 1 -> 2 -> 3: only 1 and 3 left a location; 2 changes the value, so it was computed all the same.
    (region,) = regions([part(1, args=[0]), part(2, 1), part(3, 2)], node([1, 3], [X], [3]))
    assert (region.performed, region.exact) == ({1, 2, 3}, True)


def test_views_and_identities_are_not_performed() -> None:
    parts = [part(1, args=[0]), part(2, 1, view=True), part(3, 2), part(4, 3)]
    (region,) = regions(parts, node([1, 4], [X], [4]), same=[3])
    assert (region.performed, region.viewed) == ({1, 4}, {2, 3})


def test_border_between_two_dispatches() -> None:
    parts = [part(1, args=[0]), part(2, 1, view=True), part(3, 2)]
    first, second = regions(parts, node([1], [X], [1]), node([3], [NodeResult(0)], [3]))
    assert (first.performed, first.viewed) == ({1}, set())
    assert (second.performed, second.viewed) == ({3}, {2})  # how the second reads what the first gives


def test_constants_are_folded_into_their_reader() -> None:
    # 1 and 2 have no argument behind them: a weight, transposed and scaled when the program was compiled.
    parts = [part(1), part(2, 1), part(3, 2, args=[0])]
    (region,) = regions(parts, node([3], [X, Constant((2,))], [3]))
    assert (region.performed, region.folded) == ({3}, {1, 2})


def test_constant_computed_at_load_is_no_secret_of_its_reader() -> None:
    parts = [part(1), part(2, 1), part(3, 2, args=[0])]
    load = node([1, 2], [Constant((1,))], [2])
    graph = ProgramGraph((load, node([3], [X, Global("g")], [3])), globals={"g": NodeResult(0)})
    first, second = relate(Source({p.id: p for p in parts}), graph, lambda _: False)
    assert (first.performed, second.performed, second.folded) == ({1, 2}, {3}, set())


def test_part_split_over_two_dispatches() -> None:
    parts = [part(1, args=[0]), part(2, 1), part(3, 2)]
    first, second = regions(parts, node([1, 2], [X], [2]), node([2, 3], [NodeResult(0)], [3]))
    assert (first.performed, second.performed) == ({1, 2}, {2, 3})
    assert first.exact
    assert second.exact


def test_producer_computed_twice() -> None:
    # 1 is cheap and was cloned into both consumers.
    parts = [part(1, args=[0]), part(2, 1), part(3, 1)]
    first, second = regions(parts, node([1, 2], [X], [2]), node([1, 3], [X], [3]))
    assert (first.performed, second.performed) == ({1, 2}, {1, 3})


def test_value_that_is_not_given_is_computed_again() -> None:
    # 2 is given to nobody but computed elsewhere as well: the second dispatch starts from x.
    parts = [part(1, args=[0]), part(2, 1), part(3, 2), part(4, 2)]
    first, second = regions(parts, node([1, 2, 3], [X], [3]), node([4], [X], [4]))
    assert (first.performed, second.performed) == ({1, 2, 3}, {1, 2, 4})
    assert second.exact


def test_twin_is_the_same_state() -> None:
    # 2 computes what 1 computes; the compiler kept 1 and gives its value to the reader of 2.
    parts = [part(1, args=[0]), part(2, args=[0], twin=1), part(3, 2)]
    first, second = regions(parts, node([1], [X], [1]), node([3], [NodeResult(0)], [3]))
    assert (first.performed, second.performed) == ({1}, {3})
    assert second.exact


def test_stranger_is_not_believed() -> None:
    # The first dispatch's locations name 3 as well, which depends on what the second computes.
    parts = [part(1, args=[0]), part(2, 1), part(3, 2)]
    first, _ = regions(parts, node([1, 3], [X], [1]), node([2], [NodeResult(0)], [2]))
    assert (first.performed, first.strangers, first.exact) == ({1}, {3}, False)


def test_gap_is_reported() -> None:
    # The second reads 1 by its locations, but is given nothing.
    parts = [part(1, args=[0]), part(2, 1)]
    _, second = regions(parts, node([1], [X], [1]), node([2], [], [2]))
    assert second.gaps == [(2, 1)]


def test_long_chains_do_not_recurse() -> None:
    parts = [part(1, args=[0])] + [part(i, i - 1, view=True) for i in range(2, 20_000)]
    (region,) = regions(parts, node([1], [X], [19_999]))
    assert len(region.viewed) == 19_998
