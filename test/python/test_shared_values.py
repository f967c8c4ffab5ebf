"""Values that two actions share: each site names all whose value it computes, and nobody is where others' work is.

The oracle is the data flow of the program, which knows no parts: what only the first result needs is no work of the
action that gives the second.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import cache
from itertools import combinations
from typing import Any

import pytest
import torch
from limits import part
from lineages import edited, performing
from mutation import Oracle, Verdict
from oracle import assert_same
from torch import Tensor, nn
from torch.nn import functional as F

import covan_mlir
from covan_mlir.checking.verify import verify
from covan_mlir.frontend.capture import capture
from covan_mlir.frontend.importer import import_program
from covan_mlir.lineage import Lineage
from covan_mlir.provenance.data_nodes import data_nodes
from covan_mlir.provenance.program_graph import NodeResult
from covan_mlir.provenance.relation import Source

Op = Callable[[Tensor, Tensor], Tensor]
NAN = (("maximum", "isnan"), ("minimum", "atan2"), ("nan_to_num", "isnan"))
"""Pairs that compare a tensor with itself."""

UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    **{
        name: getattr(torch, name)
        for name in (
            *("isnan", "isinf", "isfinite", "isposinf", "isneginf", "nan_to_num", "sign", "sgn", "square", "frac"),
            *("trunc", "exp2", "expm1", "log1p", "log2", "log10", "sigmoid", "tanh", "rsqrt", "reciprocal", "sinc"),
            *("logit", "erf", "atan", "asinh", "acosh", "atanh", "sinh", "cosh", "tan", "deg2rad", "abs", "neg"),
        )
    },
    **{
        name: getattr(F, name)
        for name in (
            *("relu", "relu6", "gelu", "silu", "mish", "softplus", "hardtanh", "hardswish", "hardsigmoid", "selu"),
            *("leaky_relu", "elu", "celu", "logsigmoid", "tanhshrink", "softshrink", "hardshrink", "softsign"),
        )
    },
    "softmax": lambda x: torch.softmax(x, -1),
    "log_softmax": lambda x: torch.log_softmax(x, -1),
    "logsumexp": lambda x: torch.logsumexp(x, -1, keepdim=True),
    "layer_norm": lambda x: F.layer_norm(x, (4,)),
    "normalize": lambda x: F.normalize(x, dim=-1),
    "var": lambda x: x.var(-1, keepdim=True),
    "std": lambda x: x.std(1, keepdim=True),
    "mean": lambda x: x.mean(-1, keepdim=True),
    "norm": lambda x: torch.linalg.vector_norm(x, dim=1, keepdim=True),
}
BINARY: dict[str, Op] = {
    name: getattr(torch, name)
    for name in (
        *("maximum", "minimum", "fmax", "fmin", "atan2", "hypot", "logaddexp", "xlogy", "remainder", "fmod"),
        *("copysign", "heaviside", "floor_divide", "sub", "mul", "div", "add", "gt", "lt", "cosine_similarity"),
    )
}


def _of_first(function: Callable[[Tensor], Tensor]) -> Op:
    return lambda x, y: function(x)


OPS: dict[str, Op] = {**{name: _of_first(function) for name, function in UNARY.items()}, **BINARY}


class Several(nn.Module):
    """Operators of the same two tensors; the first may be summed, so that each result has its own kernel."""

    def __init__(self, names: Iterable[str], *, summed: bool = False) -> None:
        super().__init__()
        self.names, self.summed = tuple(names), summed

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        first, *others = [OPS[name](x, y) for name in self.names]
        return (first.sum(0) if self.summed else first, *others)


def inputs() -> tuple[Tensor, Tensor]:
    return torch.rand(3, 4).mul(0.9).add(0.05), torch.rand(3, 4).add(0.1)


@cache
def sharing() -> tuple[tuple[str, str], ...]:
    """The pairs of operators of which decompositions make a step that is one value, and no constant."""
    program = torch.export.export(Several(OPS), inputs(), strict=False)
    imported = import_program(capture(program, (), None, None), provenance=True, external_weight_bytes=1 << 40)
    parts = {part.id: part for action in imported.actions for part in action.parts}
    source = Source(parts)
    position = {int(name): index for index, (kind, name) in enumerate(imported.results) if kind == "p"}
    users: dict[int, set[int]] = {}
    for result, index in position.items():
        stack, seen = [result], {result}
        while stack:
            part = stack.pop()
            if not source.constant[part] and not parts[part].view:
                users.setdefault(source.twin(part), set()).add(index)
            fresh = set(parts[part].inputs) - seen
            seen |= fresh
            stack += fresh
    pairs = {pair for using in users.values() for pair in combinations(sorted(using), 2)}
    names = tuple(OPS)
    return tuple((names[a], names[b]) for a, b in sorted(pairs))


def behind(lineage: Lineage, result: int) -> set[int]:
    """The sites that a result needs."""
    graph = lineage.phases[-1].graph
    of_node = {site.node: site.id for site in lineage.sites}
    sites, stack, seen = set(), [graph.results[result]], set()
    while stack:
        value = stack.pop()
        if isinstance(value, NodeResult) and value.node not in seen:
            seen.add(value.node)
            stack += graph.nodes[value.node].inputs
            sites |= {of_node[value.node]} if value.node in of_node else set()
    return sites


def check(lineage: Lineage) -> None:
    """Of a pair: each site names those whose result needs it, and no others."""
    graph = lineage.phases[-1].graph
    data = data_nodes(graph)
    returned = [lineage.parts[int(name)].action for _, name in lineage.results]
    needed = [behind(lineage, index) for index in range(len(returned))]
    ours: list[set[int]] = [set(), set()]
    for index, action in enumerate(returned):
        stack = [action]
        while stack:
            each = stack.pop()
            ours[index].add(each)
            stack += lineage.actions[each].inputs
    for site in lineage.sites:
        if site.node is None or site.node in data:
            continue
        for index, name in enumerate(("first", "second")):
            if site.id in needed[index]:
                assert ours[index].intersection(site.trace), (site, f"does no work of the {name} result")
            else:
                assert not ours[index].difference(ours[1 - index]).intersection(site.trace), (site, name)
    for site in lineage.sites:
        assert set(site.trace) == {lineage.parts[part].action for part in site.parts}
    for action in lineage.actions:
        fate = lineage.fate(action)
        assert fate.kind != "merged" or lineage.where(action) or action.view, (action, fate)


@cache
def compiled(first: str, second: str) -> Any:
    return covan_mlir.compile_module(Several((first, second), summed=True), inputs())


def sample(count: int, seed: int) -> list[tuple[str, str]]:
    return random.Random(seed).sample(sharing(), count)


def test_many_pairs_share_a_step() -> None:
    assert len(OPS) >= 60
    assert len(sharing()) >= 60


@pytest.mark.parametrize("seed", part(range(3), kept=(0,)))
def test_sites_name_all_whose_values_they_compute(seed: int) -> None:
    torch.manual_seed(seed)
    for first, second in (NAN[seed], *sample(5, seed)):
        exe, args = compiled(first, second), inputs()
        assert_same(exe(*args), Several((first, second), summed=True)(*args), depth=8)
        check(exe.lineage)
        verdict = exe.verify()
        assert verdict, (first, second, str(verdict))


@pytest.mark.parametrize(("first", "second"), NAN)
def test_an_action_is_not_where_others_work_is(first: str, second: str) -> None:
    lineage = compiled(first, second).lineage
    parts = lineage.parts
    moved = 0
    for site in lineage.sites:
        for own in site.parts:
            for twin in (p for p in parts if parts[p].twin == parts[own].twin and p not in site.parts):
                exchanged = tuple(sorted({*site.parts, twin} - {own}))
                for claimed in (exchanged, tuple(sorted({*site.parts, twin}))):
                    moved += 1
                    assert verify(edited(lineage, performing(lineage, site, claimed))).outcome == "no", (site, claimed)
    assert moved


@pytest.mark.parametrize("seed", range(2))
def test_machine_code_changes_where_the_lineage_says(seed: int) -> None:
    ((first, second),) = [NAN[0]] if seed == 0 else sample(1, seed)
    program = torch.export.export(Several((first, second), summed=True), inputs(), strict=False)
    oracle = Oracle(program)
    count = min(len(oracle), 4)
    verdicts = [oracle.judge(index * len(oracle) // count) for index in range(count)]
    for verdict in verdicts:
        if isinstance(verdict, Verdict):
            assert verdict.truth == verdict.claimed, verdict


def test_positions_along_one_axis_belong_to_those_who_read_them() -> None:
    """Both results compute them, from a size alone, at the location of the first."""

    def forward(x: Tensor) -> tuple[Tensor, Tensor]:
        n = x.shape[1]
        return n - torch.arange(n), n / 2 - torch.arange(n)

    exe = covan_mlir.compile_module(forward, (torch.randn(3, 7),), dynamic_shapes={"x": {1: torch.export.Dim.DYNAMIC}})
    names = [{action.name for action in exe.lineage.why(site)} for site in exe.lineage.sites]
    assert len(names) == 2
    assert "arange_1" not in names[0]
    assert {"arange", "arange_1"} & names[1] == {"arange_1"}
    assert not exe.verify().counterexamples
