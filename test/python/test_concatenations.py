"""Concatenations in place (`covan_mlir.lowering.concatenations`): what is copied, and what lineages say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d

from covan_mlir import Executable, compile_module


class Ghost(nn.Module):
    """Half of the channels are computed from the other half, which both readers of it share."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(16, 32, 3, padding=1)
        self.second = nn.Conv2d(32, 32, 3, padding=1, groups=32)
        self.last = nn.Conv2d(64, 16, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.first(x).relu()
        second = self.second(first).relu()
        return self.last(torch.cat([first, second], 1))


class Dense(nn.Module):
    """Each layer reads the results of all before it."""

    def __init__(self, joined: bool) -> None:
        super().__init__()
        self.joined = joined
        self.first = nn.Conv2d(16, 32, 3, padding=1)
        self.layers = nn.ModuleList(nn.Conv2d(32 + 16 * i, 16, 3, padding=1) for i in range(4))
        self.last = nn.Conv2d(96, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        features = [self.first(x)]
        for layer in self.layers:
            read = features[0] if len(features) == 1 else torch.cat(features, 1)
            if self.joined:
                features = [read]
            features.append(layer(read).relu())
        return self.last(torch.cat(features, 1))


class Joined(nn.Module):
    """A function of two convolutions of an input, and the input."""

    def __init__(self, join: Callable[[Tensor, Tensor, Tensor], Tensor | tuple[Tensor, ...]]) -> None:
        super().__init__()
        self.join = join
        self.first = nn.Conv2d(16, 32, 3, padding=1)
        self.second = nn.Conv2d(32, 32, 3, padding=1)
        self.third = nn.Conv2d(64, 32, 1)

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        first = self.first(x).relu()
        return self.join(first, self.second(first).relu(), x)


def _compiled(model: nn.Module, batch: int = 1) -> tuple[Executable, Counter[str]]:
    torch.manual_seed(0)
    model.eval()
    x = torch.randn(batch, 16, 28, 28)
    exe = compile_module(model, (x,))
    with torch.no_grad():
        expected = model.double()(x.double())
        given = exe(x)
    for ours, theirs in zip(*((t if isinstance(t, tuple) else (t,)) for t in (given, expected)), strict=True):
        assert (ours - theirs).abs().max() <= 1e-5 * theirs.abs().max()
    assert exe.verify()
    return exe, Counter(site.kernel for site in exe.lineage.sites if site.phase == "call")


def test_what_two_read_is_written_where_it_belongs() -> None:
    exe, kernels = _compiled(Ghost())
    assert kernels["copy"] == 0
    assert len(exe.lineage.sites) == 3
    (cat,) = (action for action in exe.lineage.actions if action.name == "cat")
    fate = exe.lineage.fate(cat.id)
    assert fate.kind == "view"
    assert fate.sites == (0, 1)


@pytest.mark.parametrize("joined", [False, True])
def test_a_dense_block_is_one_allocation(joined: bool) -> None:
    exe, kernels = _compiled(Dense(joined))
    assert kernels["copy"] == 0
    assert len(exe.lineage.sites) == 6


JOINS: dict[str, tuple[Callable[[Tensor, Tensor, Tensor], Tensor | tuple[Tensor, ...]], int]] = {
    "an argument is copied": (lambda a, b, x: max_pool2d(torch.cat([x, a, b], 1), 2), 1),
    "the program gives it": (lambda a, b, x: torch.cat([a, b], 1), 1),
    "twice the same": (lambda a, b, x: max_pool2d(torch.cat([a, b, a], 1), 2), 1),
    "two that overlap": (
        lambda a, b, x: max_pool2d(torch.cat([a, b], 1), 2) + max_pool2d(torch.cat([b, a], 1), 3, 2, 1),
        2,
    ),
    "a piece is given, too": (lambda a, b, x: (max_pool2d(torch.cat([a, b], 1), 2), a), 1),
}


@pytest.mark.parametrize("case", JOINS)
def test_what_cannot_lie_there_is_copied(case: str) -> None:
    join, most = JOINS[case]
    _, kernels = _compiled(Joined(join))
    assert kernels["copy"] <= most


def test_a_piece_whose_place_is_computed_is_a_share_of_the_concatenation() -> None:
    """Its copy computes where the piece is read, and writes it."""

    def padded(x: Tensor) -> Tensor:
        n = x.shape[1]
        whole = torch.cat([x[:, :1], x, x[:, -1:]], 1)
        return whole[:, :n] + whole[:, 2 : n + 2]

    exe = compile_module(padded, (torch.randn(3, 7),), dynamic_shapes={"x": {1: torch.export.Dim.DYNAMIC}})
    x = torch.randn(3, 5)
    torch.testing.assert_close(exe(x), padded(x))
    assert [[action.name for action in exe.lineage.why(site)] for site in exe.lineage.sites[:3]] == [["cat"]] * 3
    assert exe.verify(), str(exe.verify())


def test_pieces_that_are_no_runs_of_bytes_stay_copies() -> None:
    exe, _ = _compiled(Ghost(), batch=2)
    assert len(exe.lineage.sites) > 3


def _looked_up(indices: Tensor, tables: Tensor, more: Tensor) -> Tensor:
    return torch.stack([more, *(table[indices[:, at]] for at, table in enumerate(tables))], 1)


def _written_over(x: Tensor) -> Tensor:
    joined = x.exp()
    joined[:, 1:3] = x[:, :2].relu()
    return joined


STRIDED: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...], int]] = {
    "look-ups": (_looked_up, (torch.arange(12).reshape(4, 3), torch.randn(3, 12, 8), torch.randn(4, 8)), 1),
    "transposed": (lambda x, y: torch.cat([x.mT * 2, y.mT.exp()], 1), (torch.randn(5, 4), torch.randn(3, 4)), 0),
    "the program gives a piece": (lambda x: torch.cat([x.mT, (y := x.mT.exp())], 1) * y.sum(), (torch.randn(5, 4),), 1),
    "a piece is a sum": (
        lambda x, y: torch.cat([x.sum(2), y.mT.exp()], 1),
        (torch.randn(4, 5, 6), torch.randn(3, 4)),
        1,
    ),
    "there were elements before": (_written_over, (torch.randn(4, 4),), 1),
}


@pytest.mark.parametrize("case", STRIDED)
def test_pieces_in_columns_are_written_where_they_belong(case: str) -> None:
    function, args, copies = STRIDED[case]

    class Model(nn.Module):
        def forward(self, *args: Tensor) -> Tensor:
            return function(*args)

    exe = compile_module(Model(), args)
    torch.testing.assert_close(exe(*args), function(*args))
    assert exe.verify()
    assert sum("memcpy" in site.kernel for site in exe.lineage.sites) == copies
