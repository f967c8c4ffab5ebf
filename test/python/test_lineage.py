"""What the lineage says of a small model whose kernels are known, and how it is asked."""

from __future__ import annotations

import inspect
import json

import pytest
import torch
from torch import nn

import covan_mlir
from covan_mlir import Lineage
from covan_mlir.provenance.program_graph import Argument, Constant, NodeResult, ProgramGraph, ProgramNode, Value
from covan_mlir.provenance.tracing import read_sites


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.relu(self.up(x)))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(16), Block(16), Block(16)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return torch.softmax(x, -1)


@pytest.fixture(scope="module")
def exe() -> covan_mlir.Executable:
    return covan_mlir.compile_module(Model().eval(), (torch.randn(8, 16),))


def names(lineage: Lineage, site: int) -> list[str]:
    return [action.name for action in lineage.why(site)]


def test_twin_blocks_share_kernels_but_not_sites(exe: covan_mlir.Executable) -> None:
    lineage = exe.lineage
    first, second = lineage.where("blocks.0"), lineage.where("blocks.1")
    assert len(first) == len(second) == 2
    assert [s.kernel for s in first] == [s.kernel for s in second]  # deduplicated by the compiler
    assert not {s.id for s in first} & {s.id for s in second}
    assert names(lineage, first[0].id) == ["linear", "relu"]
    assert names(lineage, first[1].id) == ["linear_1", "add"]
    assert names(lineage, second[0].id) == ["linear_2", "relu_1"]
    assert names(lineage, second[1].id) == ["linear_3", "add_1"]


def test_fused_softmax_is_one_site(exe: covan_mlir.Executable) -> None:
    """With the sum that only it reads: the last block's product stands alone."""
    (site,) = exe.lineage.where("softmax")
    assert names(exe.lineage, site.id) == ["add_2", "softmax"]
    assert [names(exe.lineage, other.id) for other in exe.lineage.where("linear_5")] == [["linear_5"]]


def test_command_buffers_name_every_site_once_in_order(exe: covan_mlir.Executable) -> None:
    commands = [site for buffer in exe.lineage.commands for site in buffer if site is not None]
    assert commands == [site.id for site in exe.lineage.sites]


def test_queries(exe: covan_mlir.Executable) -> None:
    lineage = exe.lineage
    relu = lineage.find("relu")[0]
    assert lineage.where(relu) == lineage.where(relu.id) == lineage.where("relu")
    line = inspect.getsourcelines(Block.forward)[1] + 1
    of_line = lineage.where(f"test_lineage.py:{line}")
    every = lineage.where("blocks.0") + lineage.where("blocks.1") + lineage.where("blocks.2")
    assert of_line == lineage.where(f"{__file__}:{line}") == every
    assert lineage.where("blocks") == of_line
    assert lineage.where("module:blocks.0.up") == lineage.where("linear")


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ("softmx", "nothing in the model is called 'softmx'; did you mean softmax"),
        ("blocks.0.upp", "did you mean blocks.0.up"),
        ("test_lineage.py:1", "nothing in the model"),
        (99, "no action 99"),
        ("block", "nothing in the model"),  # a module path is not a prefix of characters
    ],
)
def test_unknown_names(exe: covan_mlir.Executable, question: str | int, message: str) -> None:
    with pytest.raises(KeyError, match=message):
        exe.lineage.where(question)


def test_unknown_site(exe: covan_mlir.Executable) -> None:
    with pytest.raises(KeyError, match="no site 99: the program has 7"):
        exe.lineage.why(99)


def test_json_round_trip(exe: covan_mlir.Executable) -> None:
    text = json.dumps(exe.lineage.to_json())
    again = Lineage.from_json(json.loads(text))
    assert again.actions == exe.lineage.actions
    assert again.sites == exe.lineage.sites
    assert again.commands == exe.lineage.commands
    assert again.fates == exe.lineage.fates
    assert again.part_fates == exe.lineage.part_fates
    assert again.history == exe.lineage.history
    assert len(text) < 2560 * len(exe.lineage.actions)


def test_printing_is_the_table(exe: covan_mlir.Executable) -> None:
    assert str(exe.lineage) == exe.explain()
    assert exe.lineage.where("relu")[0].kernel in exe.explain("relu")
    assert exe.lineage.where("softmax")[0].kernel not in exe.explain("relu")


def test_sites_read_through_moves_that_are_no_sites() -> None:
    reads: list[tuple[Value, ...]] = [
        (Argument(0),),
        (NodeResult(0),),
        (NodeResult(1),),
        (NodeResult(2), NodeResult(0), Constant()),
    ]
    graph = ProgramGraph(tuple(ProgramNode("dispatch", "call", inputs, (), ()) for inputs in reads))
    assert read_sites(graph, 3, {0: [0], 3: [1]}) == (0,)
    assert read_sites(graph, 3, {0: [0], 1: [1, 2], 3: [3]}) == (0, 1, 2)
    assert read_sites(graph, 0, {0: [0]}) == ()
