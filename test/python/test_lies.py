"""No lie about a small program is believed: the public JSON of its lineage, changed in one place or in all that follow.

Some changes are no lies, by a symmetry that `symmetry.is_true` proves; whatever else is accepted is an error. What
nothing is checked against stands in docs/provenance.md, and is not lied about.
``bench/tell_lies.py`` tells more.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import combinations, product
from typing import Any

import msgspec
import pytest
import torch
from lies import KINDS, lies
from limits import many, part, some
from symmetry import Json, is_true
from torch import Tensor, nn
from torch._higher_order_ops import scan, while_loop

import covan_mlir
from covan_mlir.checking.verify import verify
from covan_mlir.lineage import Lineage
from covan_mlir.provenance.lineage_schema import StoredLineage, check
from covan_mlir.provenance.program_graph import NodeResult, ProgramGraph, Value
from covan_mlir.support.typed_json import SchemaError

EACH = many(3, 6)
"""Lies of each kind about each program."""


def _two_sums(x: Tensor) -> Tensor:
    return torch.relu(x).sum(-1) - torch.exp(x).sum(-1)


def _messages(x: Tensor, source: Tensor, target: Tensor) -> Tensor:
    total = torch.zeros(6, 8).index_add(0, target, x[source].tanh())
    return total / torch.zeros(6).index_add(0, target, torch.ones(9)).clamp(min=1)[:, None]


def _attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return nn.functional.scaled_dot_product_attention(q, k, v).relu()


class Twins(nn.Module):
    """A value computed twice, a dead one, a view, a folded constant, an operation that changes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        first, again, other = torch.relu(x), torch.relu(x), torch.sigmoid(x)
        torch.tanh(x)
        scaled = (first + other) * (torch.ones(8) * 3)
        return torch.softmax(self.linear(scaled * 1.0).transpose(0, 1) + again.transpose(0, 1), -1).max(-1).values


def _loop(x: Tensor, y: Tensor) -> Any:
    """Two values go round, and one is asked whether to go on."""
    return while_loop(lambda a, b: a.sum() < 100, lambda a, b: (a.abs() * 2 + b, b.sin()), (x, y))


def _branches(x: Tensor, y: Tensor) -> Tensor:
    chosen: Tensor = torch.cond(y.sum() > 0, lambda x, y: x.sin() @ y, lambda x, y: x.cos() @ y.exp(), (x, y))
    return chosen.softmax(-1)


def _scanned(first: Tensor, xs: Tensor) -> Any:
    return scan(lambda carry, x: (carry * 0.5 + x.sin(), (carry @ x).exp()), first, xs)


def _views(x: Tensor) -> Any:
    """Work on a value and on two shapes of it, which is done once."""
    first, other = x.transpose(0, 1), x.transpose(1, 2)
    return x.sin(), first.sin().exp(), other.sin().cumsum(0), first.argsort(0), other, first


PROGRAMS: dict[str, tuple[Callable[[], Callable[..., Any]], tuple[Tensor, ...], bool]] = {
    "two sums": (lambda: _two_sums, (torch.randn(4, 8),), False),
    "messages": (
        lambda: _messages,
        (torch.randn(6, 8), torch.randint(0, 6, (9,)), torch.randint(0, 6, (9,))),
        True,
    ),
    "attention": (lambda: _attention, tuple(torch.randn(1, 2, 8, 16) for _ in range(3)), True),
    "twins": (Twins, (torch.randn(4, 8),), True),
    "layers": (
        lambda: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8), nn.LayerNorm(8)),
        (torch.randn(4, 8),),
        False,
    ),
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        (torch.randn(1, 3, 8, 8),),
        True,
    ),
    "loop": (lambda: _loop, (torch.randn(4, 8), torch.randn(4, 8)), False),
    "branches": (lambda: _branches, (torch.randn(4, 4), torch.randn(4, 4)), False),
    "views": (lambda: _views, (torch.randn(3, 3, 3),), False),
    "scan": (lambda: _scanned, (torch.randn(4, 4), torch.randn(3, 4, 4)), False),
}

TOLD = list(product(PROGRAMS, KINDS))
# Each kind is told in every run: nine and the number of kinds have no divisor in common.


@cache
def told(name: str) -> Json:
    """The JSON of a program's lineage, which holds."""
    model, args, fused = PROGRAMS[name]
    torch.manual_seed(0)
    options = covan_mlir.CompileOptions(fuse_reductions=fused)
    lineage = covan_mlir.compile_module(model(), args, options=options).lineage
    verdict = verify(lineage)
    assert verdict, str(verdict)
    data: Json = json.loads(json.dumps(lineage.to_json()))
    return data


def believed(data: Json) -> bool:
    """Whether a lineage can be read and is not refuted."""
    try:
        check(msgspec.convert(data, StoredLineage))
    except (SchemaError, msgspec.ValidationError):
        return False
    return verify(Lineage.from_json(data)).outcome != "no"


@pytest.mark.parametrize(("program", "kind"), part(TOLD, kept=TOLD[::9]))
def test_no_lie_is_believed(program: str, kind: str) -> None:
    data = told(program)
    accepted = [lie.what for lie in lies(data, kind, 0, EACH) if believed(lie.data) and not is_true(data, lie.data)]
    assert not accepted


@pytest.mark.parametrize("program", part(["loop", "branches", "scan"], kept=["branches"]))
def test_each_value_of_a_body_goes_its_own_way(program: str) -> None:
    """Of branches and loops no two values may be exchanged, and in a body nothing is read but what goes round."""
    lineage = Lineage.from_json(told(program))
    for number in (0, len(lineage.phases) - 1):
        graph = lineage.phases[number].graph
        control = [index for index, node in enumerate(graph.nodes) if node.kind == "control"]
        slots = [(index, position) for index in control for position in range(len(graph.nodes[index].inputs))]
        changes = [
            {first: _read_at(graph, second), second: _read_at(graph, first)}
            for first, second in combinations(slots, 2)
            if _read_at(graph, first) != _read_at(graph, second)
        ]
        for index, node in enumerate(graph.nodes):
            for position, value in enumerate(node.inputs if node.kind == "dispatch" else ()):
                if isinstance(value, NodeResult) and graph.nodes[value.node].op == "carried":
                    changes.append({(index, position): graph.nodes[value.node].inputs[0]})
        assert changes
        for change in changes:
            lie = Lineage.from_json(told(program))
            phases = list(lineage.phases)
            phases[number] = replace(phases[number], graph=_reading(graph, change))
            lie.phases = tuple(phases)
            assert verify(lie).outcome == "no", (number, change)


def _read_at(graph: ProgramGraph, slot: tuple[int, int]) -> Value:
    return graph.nodes[slot[0]].inputs[slot[1]]


def _reading(graph: ProgramGraph, change: dict[tuple[int, int], Value]) -> ProgramGraph:
    """The graph, some nodes of which read other values."""
    nodes = list(graph.nodes)
    for (index, position), value in change.items():
        inputs = list(nodes[index].inputs)
        inputs[position] = value
        nodes[index] = msgspec.structs.replace(nodes[index], inputs=tuple(inputs))
    return msgspec.structs.replace(graph, nodes=tuple(nodes))


def test_all_kinds_are_told() -> None:
    """Each kind of lie is told of some program."""
    assert all(any(next(lies(told(name), kind, 0), None) for name in PROGRAMS) for kind in KINDS)


def test_lies_are_told_in_words() -> None:
    """Messages name operators, lines, sites and kernels, and no node by its number."""
    data = told("layers")
    for kind in KINDS:
        for lie in some(list(lies(data, kind, 1, 3)), 1):
            verdict = verify(Lineage.from_json(lie.data))
            for example in verdict.counterexamples:
                assert "node" not in example.why, example
            assert not [reason for check in verdict.checks for reason in check.missing if "node" in reason]


def _renamed(graph: ProgramGraph, names: dict[int, int]) -> ProgramGraph:
    """The graph, its nodes named after other parts."""
    nodes = []
    for node in graph.nodes:
        outputs = tuple(
            tuple(msgspec.structs.replace(link, ids=tuple(sorted(names.get(i, i) for i in link.ids))) for link in links)
            for links in node.outputs
        )
        evidence = tuple(sorted(names.get(part, part) for part in node.evidence))
        nodes.append(msgspec.structs.replace(node, outputs=outputs, evidence=evidence))
    return msgspec.structs.replace(graph, nodes=tuple(nodes))


def test_names_that_were_exchanged_between_two_phases_are_found_where_that_was_done() -> None:
    """Each side of the subtraction has the names of the other one, which the source alone does not tell."""
    lineage = Lineage.from_json(told("two sums"))
    (relu,), (first,) = lineage.find("relu")[0].parts, lineage.find("sum_1")[0].parts
    (exp,), (second,) = lineage.find("exp")[0].parts, lineage.find("sum_2")[0].parts
    names = {relu.id: exp.id, exp.id: relu.id, first.id: second.id, second.id: first.id}
    steps = [phase.step for phase in lineage.phases]
    linalg = steps.index("torch-to-linalg")
    for planted in range(linalg + 1, len(steps) - 1):
        lie = Lineage.from_json(told("two sums"))
        lie.phases = tuple(
            replace(phase, graph=_renamed(phase.graph, names)) if planted <= index < len(steps) - 1 else phase
            for index, phase in enumerate(lie.phases)
        )
        failing = [check.phase for check in verify(lie).checks if check.outcome == "no"]
        assert failing[0] == steps[planted]
        assert lineage.actions[relu.action].name in str(verify(lie))
