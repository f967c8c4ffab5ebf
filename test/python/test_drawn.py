"""On which operands a result is compared: what the compiler computes once, of values that are one another's, is drawn
once, and the program's arguments need not be asked, behind which all of it lies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import covan_mlir
from covan_mlir.checking import draws, matching


def _views(g: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """One function of a value and of a view of it, each in a product."""
    return g.exp().flatten(0, 1) @ x, g[:, 0].exp() @ y


def _other_views(g: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    return g.exp().flatten(0, 1) @ x, g[:, 1].exp() @ y


def _enlarged(x: Tensor, w: Tensor) -> Tensor:
    """Read with neighbours and without, rounded between."""
    image = (x @ w).unflatten(0, (8, 8)).permute(2, 0, 1)[None].half()
    return F.interpolate(image.float(), scale_factor=2, mode="bilinear", align_corners=False)


@pytest.mark.parametrize(
    ("program", "shapes", "kinds"),
    [
        (_views, ((6, 1, 9), (9, 5), (9, 7)), {"all"}),
        (_other_views, ((6, 2, 9), (9, 5), (9, 7)), {"all"}),
        (_enlarged, ((64, 32), (32, 16)), {"all", "roots"}),
    ],
)
def test_results_are_told_by_what_their_node_reads(
    program: Callable[..., Any], shapes: tuple[tuple[int, ...], ...], kinds: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    executable = covan_mlir.compile_module(program, tuple(torch.randn(*shape) for shape in shapes))
    monkeypatch.setattr(matching, "DRAWS", tuple(draw for draw in draws.DRAWS if draw[0].drawn in kinds))
    verdict = executable.verify()
    assert verdict.outcome == "yes", verdict


class _Norms(nn.Module):
    """Five constants of one size in one kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(32, 32), nn.Linear(32, 32)
        self.norms = nn.ModuleList([nn.LayerNorm(32), nn.LayerNorm(32)])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.norms[0](x + 0.5 * self.first(x))
        return self.last(self.norms[1](y)), y


def test_constants_are_tried_in_the_order_in_which_the_source_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    executable = covan_mlir.compile_module(_Norms().bfloat16(), (torch.randn(1, 14, 32).bfloat16(),))
    monkeypatch.setattr(matching, "_PLANS", 10)
    assert executable.verify().outcome == "yes"


@pytest.mark.parametrize("work", [1 << 13, 1 << 16, 1 << 17, 1 << 18, 1 << 19])
def test_what_was_left_out_is_no_refusal(work: int, monkeypatch: pytest.MonkeyPatch) -> None:
    program = covan_mlir.compile_module(lambda x: (x != x.clamp(-64, 63)).any(), (torch.randint(99, (6, 900)),))
    monkeypatch.setattr(matching, "WORK", work)
    monkeypatch.setattr(matching, "_RESERVE", 0)
    outcome = program.verify().outcome
    assert outcome == "incomplete" if work < 1 << 15 else outcome in ("incomplete", "yes")


@pytest.mark.parametrize(
    "program",
    [lambda x: 10000.0**x, lambda x: 10000**x, lambda x: x.float() / 10000.0 ** (torch.arange(9) / 9).to(x.dtype)],
    ids=["float", "int", "known"],
)
@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_numbers_raised_to_powers_of_halves_are_rounded_or_not(
    program: Callable[[Tensor], Tensor], half: torch.dtype
) -> None:
    executable = covan_mlir.compile_module(program, (torch.rand(4, 9).to(half),))
    verdict = executable.verify()
    assert verdict.outcome == "yes", verdict
