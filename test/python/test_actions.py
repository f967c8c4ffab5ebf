"""The ledger: one action per call node of the exported graph, tied to its parts, modules and source lines."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import pytest
import torch
import zoo
from torch import nn

from covan_mlir.frontend.capture import capture
from covan_mlir.frontend.decompose import decompose
from covan_mlir.frontend.parts import ledger
from covan_mlir.provenance.model import Action


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return helper(self.fc(x))


def helper(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1)


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.blocks[0](x)


def actions_of(model: Any, *args: Any, **kwargs: Any) -> tuple[Action, ...]:
    program = capture(model, args, kwargs, None).program
    return ledger(program.graph, decompose(program).graph)[0]


def test_instances_of_one_class_are_distinct() -> None:
    actions = actions_of(Twice(), torch.randn(2, 4))
    # The last call runs blocks.0 again: another action of the same module instance.
    assert [(a.op, a.module) for a in actions] == [
        ("aten.linear.default", "blocks.0.fc"),
        ("aten.softmax.int", "blocks.0"),
        ("aten.linear.default", "blocks.1.fc"),
        ("aten.softmax.int", "blocks.1"),
        ("aten.linear.default", "blocks.0.fc"),
        ("aten.softmax.int", "blocks.0"),
    ]
    assert [a.id for a in actions] == list(range(6))
    assert len({a.name for a in actions}) == 6


def test_frames_are_users_first_and_innermost_first() -> None:
    linear, softmax = actions_of(Twice(), torch.randn(2, 4))[:2]
    line = inspect.getsourcelines(helper)[1] + 1
    assert [(f.function, f.internal) for f in softmax.frames] == [
        ("helper", False),
        ("forward", False),
        ("forward", False),
    ]
    assert softmax.line == f"{__file__}:{line}"
    assert [f.internal for f in linear.frames] == [False, False, True]
    assert linear.frames[-1].file.endswith("torch/nn/modules/linear.py")


def test_functions_have_frames() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        return helper(x)

    (softmax,) = actions_of(forward, torch.randn(2, 4))
    assert [f.function for f in softmax.frames] == ["helper", "forward"]
    assert softmax.module == ""


def test_result_types() -> None:
    actions = actions_of(lambda x: torch.max(x, dim=1), torch.randn(2, 4).bfloat16())
    assert [(a.op, a.types) for a in actions] == [
        ("aten.max.dim", ("bf16[2]", "i64[2]")),
        ("operator.getitem", ("bf16[2]",)),
        ("operator.getitem", ("i64[2]",)),
    ]


@pytest.mark.parametrize("name", ["mobilenet", "gpt2-sdpa", "bert-eager", "lstm", "whisper_encoder-sdpa"])
def test_every_node_of_the_decomposed_graph_is_a_part(name: str) -> None:
    module, args, kwargs = zoo.build(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = capture(module, args, kwargs, None).program
        decomposed = decompose(program)
    actions, parts = ledger(program.graph, decomposed.graph)
    assert len(actions) == sum(node.op == "call_function" for node in program.graph.nodes)
    assert set(parts) == {node for node in decomposed.graph.nodes if node.op == "call_function"}
    ids = [a.id for a in actions] + [p.id for p in parts.values()]
    assert len(ids) == len(set(ids))
    assert {p.action for p in parts.values()} <= {a.id for a in actions}
    # Data flow: a part reads what came before it.
    assert all(i < p.id for p in parts.values() for i in p.inputs)
