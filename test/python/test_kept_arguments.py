"""What a program writes goes where eager puts it, and the caller's arguments stay as they are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import covan_mlir

ROWS = torch.tensor([1, 3])
PLACES = torch.tensor([[0, 1], [2, 3]])
WRITERS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], tuple[int, ...]]] = {
    "slice_scatter": (lambda x, s: torch.slice_scatter(x, s, 0, 3, 8), (5, 20)),
    "slice_scatter of a result": (lambda x, s: torch.slice_scatter(x, s * 2, 1, 3, 8), (20, 5)),
    "index_put": (lambda x, s: x.index_put((ROWS,), s), (2, 20)),
    "index_put, then read": (lambda x, s: (x.index_put((ROWS,), s) + 1).sum(0), (2, 20)),
    "index_copy": (lambda x, s: x.index_copy(0, ROWS, s), (2, 20)),
    "scatter": (lambda x, s: x.scatter(0, PLACES, s), (2, 2)),
    "scatter_add": (lambda x, s: x.scatter_add(0, PLACES, s), (2, 2)),
    "diagonal_scatter": (torch.diagonal_scatter, (20,)),
    "a view of it": (lambda x, s: x.reshape(-1).index_put((ROWS,), s).reshape(20, 20), (2,)),
}


@pytest.mark.parametrize("name", WRITERS)
def test_arguments_stay(name: str) -> None:
    function, shape = WRITERS[name]
    draw = torch.Generator().manual_seed(0)
    x, source = torch.randn(20, 20, generator=draw), torch.randn(shape, generator=draw)
    before = x.clone()
    exe = covan_mlir.compile_module(function, (x, source))
    for _ in range(2):
        torch.testing.assert_close(exe(x, source), function(before.clone(), source))
        assert torch.equal(x, before)


class Caches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("block", torch.zeros(20, 20))
        self.register_buffer("rows", torch.zeros(20, 20))

    def forward(self, x: Tensor, places: Tensor) -> Tensor:
        self.block[3:8] = x
        self.rows.index_copy_(0, places, x)
        return self.block.sum() + self.rows.sum()


def test_buffers_are_written() -> None:
    model, eager = Caches(), Caches()
    x, places = torch.randn(5, 20, generator=torch.Generator().manual_seed(0)), torch.tensor([3, 4, 6, 7, 1])
    exe = covan_mlir.compile_module(model, (x, places))
    torch.testing.assert_close(exe(x, places), eager(x, places))
    assert torch.equal(model.block, eager.block)
    assert torch.equal(model.rows, eager.rows)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_sums_of_products_with_fewer_axes(dtype: torch.dtype) -> None:
    """IREE's vectorizer takes them for contractions, which they are not."""
    draw = torch.Generator().manual_seed(0)
    x, w = (torch.randint(-9, 9, shape, generator=draw).to(dtype) for shape in ((4, 5, 6), (5, 6)))

    def sums(x: Tensor, w: Tensor) -> list[Tensor]:
        return [(x * w).sum(), (x * w[0]).sum((1, 2)), (x * w[:, :1]).sum((0, 2)), (x[0] * w[0]).sum()]

    exe = covan_mlir.compile_module(sums, (x, w))
    torch.testing.assert_close(exe(x, w), sums(x, w))
    assert exe.verify()


def test_what_is_read_before_a_write_is_what_was_there() -> None:
    """Products of a tensor, and of the tensor with rows of it replaced, wait for the same number of steps."""

    def products(
        x: Tensor, y: Tensor, column: Tensor, scale: Tensor, lower: Tensor, other: Tensor
    ) -> tuple[Tensor, Tensor]:
        whole = x @ y.T
        whole = whole - (scale * column) * (column.T @ whole)
        product = whole @ column
        rows = whole[1:5]
        rows = rows - (other * lower) * (lower.T @ rows)
        return product, torch.slice_scatter(whole, rows, -2, 1, 5) @ (other * column)

    draw = torch.Generator().manual_seed(0)
    shapes = (5, 4), (5, 4), (5, 1), (1, 1), (4, 1), (1, 1)
    given = [torch.randn(*shape, generator=draw) for shape in shapes]
    exe = covan_mlir.compile_module(products, tuple(given))
    torch.testing.assert_close(exe(*given), products(*given))
    verdict = exe.verify()
    assert verdict, str(verdict)
