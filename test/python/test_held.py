"""What a lineage says that weights hold."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import covan_mlir
from covan_mlir.provenance.bodies import Bodies, Runs, malformed


class Cut(nn.Module):
    """Reads a piece of a weight."""

    def __init__(self, table: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("table", table)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.table[2:4]


def held(table: torch.Tensor) -> dict[str, object]:
    """Of the weights of `Cut`."""
    return dict(covan_mlir.compile_module(Cut(table), (torch.randn(2, 10),)).lineage.bodies.weights)


def test_runs_of_one_number_in_a_weight_of_which_a_piece_is_read() -> None:
    table = torch.randn(6, 10)
    table[1, 5:] = table[2] = 0.5  # one run
    table[4, :7] = 3.0  # too short
    table[5] = -torch.inf
    assert held(table) == {"table": Runs([15, 50], [15, 10], [0.5, "-inf"])}
    assert held(torch.randn(6, 10)) == {}


@pytest.mark.parametrize(
    "runs",
    [
        Runs([0, 5], [9, 9], [1, 2]),
        Runs([-1], [9], [1]),
        Runs([0], [0], [1]),
        Runs([0], [9, 9], [1]),
        Runs([0], [9], ["one"]),
        Runs([], [], []),
    ],
)
def test_runs_that_are_none(runs: Runs) -> None:
    assert malformed(Bodies(weights={"w": runs}), 0) == "the runs of w are not in order"
    assert not malformed(Bodies(weights={"w": Runs([0, 9], [9, 9], [1, "nan"])}), 0)
