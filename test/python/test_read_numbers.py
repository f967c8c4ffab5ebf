"""Programs that compute with numbers which they read from tensors: lengths of pieces, sizes, places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from limits import part
from oracle import assert_same
from torch import Tensor, nn
from torch.nn import functional as F

import covan_mlir

Program = Callable[..., Any]
X = torch.randn(9, 5, generator=torch.Generator().manual_seed(2))
W = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(3))
COUNTS = (torch.tensor([2, 4, 3]), torch.tensor([0, 8, 1]), torch.tensor([9, 0, 0]))


def _size(number: Tensor, most: int) -> int:
    size = int(number.item())
    torch._check(size >= 0)
    torch._check(size <= most)
    return size


def _split(x: Tensor, counts: Tensor) -> Tensor:
    return torch.cat([piece * k for k, piece in enumerate(torch.split(x, counts.tolist()))])


def _products(x: Tensor, counts: Tensor) -> Tensor:
    return torch.cat([piece @ W[k] for k, piece in enumerate(torch.split(x, counts.tolist()))])


def _sums(x: Tensor, counts: Tensor) -> Tensor:
    """The same numbers are asserted about again and again."""
    sums, start = [], 0
    for count in counts.tolist():
        torch._check(count >= 0)
        torch._check(start + count <= 9)
        sums.append(x[start : start + count].sum(0))
        start = start + count
    return torch.stack(sums)


def _written(x: Tensor, counts: Tensor) -> Tensor:
    size, whole = _size(counts[0], 9), x.clone()
    whole[:size] = x[:size].sin()
    return whole


def _sized(x: Tensor, counts: Tensor) -> tuple[Tensor, ...]:
    size = _size(counts[0], 9)
    return torch.ones(size, 5) + x[:size], torch.arange(size) * 2, torch.full((size,), 2.5)


def _around(x: Tensor, counts: Tensor) -> tuple[Tensor, ...]:
    """The same rows, said in two ways, and a piece of the others."""
    size = _size(counts[0], 9)
    return x[:size].sum(0), x.narrow(0, 0, size).sin().sum(), x[size:].sum(0) * x[size:, :3].sum()


def _followed(x: Tensor, counts: Tensor) -> Tensor:
    """A number that is read is where the next one is read."""
    steps = x[:5].argmax(1)
    path = [x[8].argmax()]
    for _ in range(2):
        path.append(steps[path[-1]])
    return torch.stack(path)


def _masked(x: Tensor, counts: Tensor) -> Tensor:
    longest = _size(counts.max(), 9)
    mask = torch.arange(longest)[None] < counts[:, None]
    return mask.to(x.dtype) @ x[:longest]


def _softmax(x: Tensor, counts: Tensor) -> Tensor:
    return x[: _size(counts.max(), 9)].softmax(0)


def _filled(x: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    return torch.full((5,), counts.max().item()), x * 2


def _counted(x: Tensor, counts: Tensor) -> Tensor:
    """A size that is one more than a number: what is as long is a sum, or made alike."""
    size = int(counts.max().item()) + 1
    torch._check(size >= 0)
    return torch.zeros(size).index_add(0, counts, x[:3, 0])


def _chosen(x: Tensor, counts: Tensor) -> Tensor:
    """Sizes of what is chosen are asked of one tensor, and of another that is as long."""
    chosen = torch.nonzero(counts)[:, 0]
    return torch.zeros(chosen.shape[0]).index_add(0, torch.zeros_like(chosen), x[:, 0][chosen])


def _weighted(x: Tensor, counts: Tensor) -> Tensor:
    return torch.bincount(counts, x[:3, 0]).sin()


def _replaced(x: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Places of a mask take what an equal one chose: as many, or none. Rows are added to."""
    y, whole, least = x.flip(1), x.clone(), counts.min()
    whole[x > least] = y[x > least]
    rows = x.sum(1) > least
    added = x.clone()
    added[rows] += y[rows]
    return whole, added


def _ranked(x: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
    """Both count from the front."""
    return (x[:, 0] > 0).nonzero(), (x[:, 0] > 0).to(torch.int64).cumsum(0)


def _parted(x: Tensor, counts: Tensor) -> tuple[Tensor, ...]:
    """At places that are given, and at such as are known; and a mask of one element."""
    return (
        *torch.tensor_split(x, counts[:2]),
        *torch.tensor_split(x, torch.tensor([1, 6])),
        (counts[:1] > 1).nonzero(),
    )


class Experts(nn.Module):
    """Rows sorted by the expert that they go to, which is one of three, and back in their places."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(5, 3)

    def forward(self, x: Tensor, counts: Tensor) -> Tensor:
        gates, experts = self.router(x).softmax(1).topk(2, 1)
        order = experts.flatten().argsort(stable=True)
        rows, chosen = order // 2, F.one_hot(experts, 3).sum((0, 1)).tolist()
        given = torch.cat([piece @ weight for piece, weight in zip(x[rows].split(chosen), W, strict=True)])
        return torch.zeros(len(x), 4).index_add(0, rows, given * gates.flatten()[order][:, None])


PROGRAMS: dict[str, Program] = {
    "pieces": _split,
    "products of pieces": _products,
    "sums of pieces": _sums,
    "written over the first rows": _written,
    "rows around a place": _around,
    "a path": _followed,
    "sizes of constants": _sized,
    "lengths of sequences": _masked,
    "softmax of the first rows": _softmax,
    "a number everywhere": _filled,
    "sums by numbers that count them": _counted,
    "sums of what is chosen": _chosen,
    "sums by bins": _weighted,
    "replaced by a mask": _replaced,
    "places and ranks": _ranked,
    "experts": Experts().eval(),
    "parted at places": _parted,
}


@pytest.mark.parametrize("name", part(PROGRAMS, kept=list(PROGRAMS)[::2]))
def test_numbers_that_are_read_from_tensors(name: str) -> None:
    program = PROGRAMS[name]
    exe = covan_mlir.compile_module(program, (X, COUNTS[0]))
    for counts in COUNTS:
        assert_same(exe(X, counts), program(X, counts), depth=64)
    verdict = exe.verify()
    assert verdict, str(verdict)


def test_who_takes_a_number_reads_it() -> None:
    """Of what a constant is made like, only the sizes are read: of the number that it is filled with, the value."""
    lineage = covan_mlir.compile_module(_filled, (X, COUNTS[0])).lineage
    (filled,) = (part for part in lineage.parts.values() if "full" in part.op)
    assert [lineage.parts[read].op for read in filled.inputs] == ["aten._local_scalar_dense.default"]
