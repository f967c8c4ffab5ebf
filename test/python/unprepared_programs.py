"""Honest programs that nobody prepared: small ones of users', and what they are called with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from unprepared_models import (
    Again,
    Anchors,
    Clipped,
    Difference,
    Experts,
    Graph,
    Grid,
    Grown,
    Marked,
    Nest,
    Padded,
    Patches,
    Places,
    Router,
    Standard,
    Tokens,
    Translator,
)


def _written(x: Tensor, y: Tensor) -> Tensor:
    whole = y.clone()
    whole[:, :, 2:6, 2:6].copy_(x.relu()[:, :, :4, :4])
    return whole.sin()


def _expanded(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    rows = torch.cat([x.exp(), y.sin(), x.cos()], 1).expand(2, 3, 5)
    return rows * 2, rows[:, 2:] / y


def _image(channels: int) -> tuple[Tensor, ...]:
    return (torch.randn(1, channels, 4, 4),)


def _picked(x: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    """The compiler computes what is read behind the gather, of the elements that were picked."""
    rows = torch.gather(torch.where(x > 0, x.exp(), x), -1, at)
    return torch.gather(rows, -1, torch.arange(5).expand(8, 5) * 3), rows * 2


def _masked(scores: Tensor) -> Tensor:
    """What is done of the mask again, after it was written to, belongs to no assertion about it."""
    groups = scores.view(3, 1, 8).topk(2, dim=-1)[0].sum(-1)
    mask = torch.zeros_like(groups)
    mask.scatter_(1, groups.topk(1, dim=-1, sorted=False)[1], 1)
    mask = mask.unsqueeze(-1).expand(-1, 1, 8).reshape(-1, 8)
    return scores.masked_fill(~mask.bool(), 0.0).exp()


def _centres(x: Tensor, centres: Tensor) -> Tensor:
    """What is joined for the distances stands in memory that is written piece by piece, again in each turn."""
    for _ in range(2):
        nearest = F.one_hot(torch.cdist(x, centres).argmin(1), 4).float()
        centres = nearest.T @ x / nearest.sum(0).clamp(min=1)[:, None]
    return centres


def _shifted(x: Tensor) -> Tensor:
    shifted = x.clone()
    shifted[1:, 1:] += x[:-1, :-1]
    return shifted


def _signed(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.to(torch.int8), x.to(torch.int8).to(torch.uint8) + 1


def _recurrence(x: Tensor) -> Tensor:
    """Each row is written in place; a copy gives back what it is given, whatever it is written over."""
    out, state = torch.zeros_like(x), x[:, 0].sin()
    for row in range(x.shape[1]):
        state = torch.tanh(state + x[:, row])
        out[:, row] = state
    return out


def _strided(x: Tensor) -> Tensor:
    """Two insertions, the second into what the first gave: the names of both are in their places."""
    y = x.clone()
    y[:, 1:] = 1
    y[:, ::2] *= 2
    return y


def _cleared(x: Tensor) -> Tensor:
    """The indices of a diagonal are laid out ahead of time, which reads nothing of what is put there."""
    y = x.clone()
    y.diagonal().fill_(0)
    return y


def _overwritten(x: Tensor) -> tuple[Tensor, Tensor]:
    """Of what is written over, its sizes are asked for, and nothing else."""
    y = x * 2
    view = y.permute(2, 0, 1)
    view[0] = 7
    return y, view


def _spread(x: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers are written over what others have inserted rows into: theirs, and no work of who writes."""
    y = x + 1
    y[2:4].mul_(3)
    y.view(-1)[::9] = 5
    return y, y[2:4]


def _places(x: Tensor, up: Tensor, down: Tensor, scores: Tensor) -> Tensor:
    hidden = torch.relu(torch.relu(x @ up) @ down)
    ranks = torch.argsort(torch.topk(torch.softmax(hidden @ scores, -1), 2, -1)[1].reshape(-1), stable=True)
    places = torch.empty_like(ranks)
    places[ranks] = torch.arange(ranks.shape[0])
    return places


def Turned(x: Tensor) -> Tensor:
    one, other = x.chunk(2, -1)
    return x * 0.5 + torch.cat([-other, one], -1) * 2


def _edges_of(x: Tensor) -> Tensor:
    across = torch.tensor([[1.0, 0, -1], [2, 0, -2], [1, 0, -1]])[None, None]
    return F.conv2d(x, across, padding=1) ** 2 + F.conv2d(x, across.mT, padding=1) ** 2


def _kept(overlap: Tensor) -> Tensor:
    keep = torch.ones(5, dtype=torch.bool)
    for i in range(5):
        keep = keep & ~((overlap[i] > 0.3) & (torch.arange(5) > i) & keep[i])
    return keep


def _limited(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    rows = x.abs().sum(-1, keepdim=True).repeat(1, 10)
    limited = rows.clamp(0, 5)
    return (rows != limited).any(), y * limited


@dataclass(frozen=True)
class Program:
    """
    Attributes:
        slow: to verify it takes long: of lies beside it none is told in every run.
    """

    model: Callable[[], Callable[..., Any]]
    args: Callable[[], tuple[Tensor, ...]]
    slow: bool = False


def _grouped(groups: Tensor, x: Tensor) -> Tensor:
    values, inverse = torch.unique(groups, return_inverse=True)
    return torch.zeros(values.shape[0], x.shape[1]).index_add(0, inverse, x)


def _turned(x: Tensor, y: Tensor) -> Tensor:
    result = x.clone()
    result[result > 0] = y[result > 0].flip(0)
    return result


def _ordered(x: Tensor) -> Tensor:
    turned = x.permute(2, 1, 0)
    return torch.stack([turned.gather(2, turned.argsort(dim=2, stable=True)), turned.sin()], 1)


def _squared(real: Tensor, imaginary: Tensor) -> tuple[Tensor, ...]:
    x = torch.complex(real, imaginary)
    y = x.mT
    return (y * y).abs(), x * x, y, torch.view_as_real(y).sum(-1).cumsum(-1), torch.view_as_real(x)


def _masked_layers(keys: Tensor, queries: Tensor) -> Tensor:
    """Products of which a part is masked: each layer has masks of its own, which are the same."""
    for _ in range(2):
        below, strictly = (torch.triu(torch.ones(16, 16, dtype=torch.bool), diagonal) for diagonal in (0, 1))
        one = (keys @ queries.mT).masked_fill(below, 0) @ keys
        keys = (one + (queries @ keys.mT).masked_fill(strictly, 0) @ queries).tanh()
    return keys


def _number_written(x: Tensor) -> Tensor:
    y = x.clone()
    y[3:4] = x.norm()
    return y


def _stencil(x: Tensor) -> Tensor:
    """Two turns of a stencil, and borders."""
    x = x.clone()
    for _ in range(2):
        x[1:-1, 1:-1] += 0.1 * (x[2:, 1:-1] + x[:-2, 1:-1] - 2 * x[1:-1, 1:-1])
    x[0], x[:, -1] = 0, 1
    return x


def _assigned(x: Tensor) -> Tensor:
    y = x.exp()
    y[:, 1:3] = x[:, :2].relu()
    return y


def _ordered(x: Tensor) -> tuple[Tensor, Tensor]:
    """Two calls with the same indices."""
    order = x.argsort(-1)
    return torch.zeros_like(x).scatter(-1, order, x), x.gather(-1, order)


class _Turned(nn.Module):
    """A feed-forward with a depthwise convolution between: its results go to a product, one row for each point."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.depthwise = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.product = nn.Linear(16, 24)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.product(self.function(self.depthwise(x).flatten(2).transpose(1, 2)))
        return y


def _joined_twice(x: Tensor, one: Tensor, other: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """What compilers merge, piece by piece and as a whole."""
    first, second = (torch.cat([one[x[:, 0]], other[x[:, 1]].relu()], dim) for _ in range(2))
    return first.sum(1), second


class _ChannelAttention(nn.Module):
    """Two means padded with zeros, which share the memory that holds these (as in ECA-Net)."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Conv2d(8, 256, 1), nn.Conv2d(256, 8, 1)
        self.first, self.second = (nn.Conv1d(1, 1, 5, padding=2, bias=False) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.wide(x).relu()
        x = self.wide(self.narrow(x * self._weights(self.first, x))).relu()
        return x * self._weights(self.second, x)

    @staticmethod
    def _weights(across: nn.Module, x: Tensor) -> Tensor:
        return across(x.mean((2, 3))[:, None]).sigmoid().view(1, -1, 1, 1)


def _padded(x: Tensor, mode: str) -> Tensor:
    return F.pad(x, (1, 2, 2, 1), mode=mode).relu()


def image() -> tuple[Tensor, ...]:
    return (torch.randn(1, 3, 8, 8),)


def _graph() -> tuple[Tensor, ...]:
    return torch.randn(30, 16), torch.randint(0, 30, (60,)), torch.randint(0, 30, (60,))


def _sorted_rows(rows: int) -> tuple[Tensor, ...]:
    return torch.randn(rows, 8), torch.tensor([0, 1, rows - 1, rows - 1], dtype=torch.int32)


def _rows() -> tuple[Tensor, ...]:
    return (torch.randn(3, 4),)


# Of four rows a window of three that moves by two reads three, and of six columns it reads five.
_WINDOWS: tuple[tuple[str, Callable[..., nn.Module], dict[str, int]], ...] = (
    ("convolution", nn.Conv2d, {"in_channels": 8, "out_channels": 4, "kernel_size": 3, "stride": 2}),
    (
        "convolution of channels",
        nn.Conv2d,
        {"in_channels": 8, "out_channels": 8, "kernel_size": 3, "stride": 2, "groups": 8},
    ),
    ("maximum", nn.MaxPool2d, {"kernel_size": 3, "stride": 2}),
    ("mean", nn.AvgPool2d, {"kernel_size": 3, "stride": 2}),
)

PROGRAMS = {
    "equal limits of layers": Program(Clipped, lambda: (torch.randn(2, 5, 16),)),
    "convolution by standard weights, norm": Program(
        lambda: nn.Sequential(Standard(3, 32, 7, 2, bias=False), nn.GroupNorm(16, 32), nn.ReLU()),
        lambda: (torch.randn(1, 3, 32, 32),),
    ),
    "places by products": Program(Places, lambda: (torch.randn(1, 16, 48),)),
    **{
        f"pad {mode}": Program(partial(partial, _padded, mode=mode), image)
        for mode in ("reflect", "replicate", "circular")
    },
    **{
        f"convolution, padded {mode}": Program(
            partial(nn.Conv2d, 3, 4, 3, padding=1, padding_mode=mode),
            image,
        )
        for mode in ("zeros", "reflect", "circular")
    },
    "interpolate bicubic": Program(lambda: lambda x: F.interpolate(x, size=(12, 12), mode="bicubic"), image),
    "interpolate bilinear": Program(lambda: lambda x: F.interpolate(x, size=(12, 12), mode="bilinear"), image),
    **{
        f"interpolate {mode} by 3": Program(
            lambda mode=mode: lambda x: F.interpolate(x.sin(), scale_factor=3, mode=mode), image
        )
        for mode in ("nearest", "bilinear")
    },
    **{
        f"{name} behind a transposition": Program(partial(_Turned, function), lambda: (torch.randn(1, 16, 12, 12),))
        for name, function in (("gelu", F.gelu), ("silu", F.silu))
    },
    "interpolate one row": Program(
        lambda: lambda x: F.interpolate(x.sin(), size=(4, 4), mode="bilinear").cos(), lambda: (torch.randn(1, 3, 1, 2),)
    ),
    **{
        f"the same concatenated twice along {dim}": Program(
            partial(partial, _joined_twice, dim=dim), lambda: (torch.randint(0, 9, (6, 2)), *torch.randn(2, 9, 4))
        )
        for dim in (0, 1)
    },
    "two routers": Program(
        lambda: lambda x, y: tuple(torch.zeros(8, 4).scatter(1, t.topk(2)[1], 1.0).long().sum(0) for t in (x, y)),
        lambda: (torch.randn(8, 4), torch.randn(8, 4)),
    ),
    "masks that two layers share": Program(
        lambda: _masked_layers, lambda: (torch.randn(2, 16, 32), torch.randn(2, 16, 32))
    ),
    "a stencil, twice, and borders": Program(lambda: _stencil, lambda: (torch.randn(8, 8),)),
    "a mean and a sum, put together": Program(
        lambda: lambda x: torch.stack([x.mean(1), x.sum(1), x.mean(1) * x.sum(1)]), lambda: (torch.randn(3, 6),)
    ),
    "a copy of a concatenation is returned": Program(
        lambda: lambda x: torch.cat([x.neg(), x.relu()]).clone(), lambda: (torch.randn(4),)
    ),
    "a padding that is returned and multiplied": Program(
        lambda: lambda x: (lambda y: (y, y @ y.mT, y.unsqueeze(1)))(F.pad(x, (0, 2))), lambda: (torch.randn(5, 8),)
    ),
    "a number written into a slice": Program(lambda: _number_written, lambda: (torch.randn(7),)),
    "one element along an axis": Program(
        lambda: lambda x: (x.argmax(1), x.sort(1)[1], x.amax(1), x.tril(-1), x.sin().roll(3, 1)),
        lambda: (torch.randn(1, 1),),
    ),
    "masks of positions that are the same everywhere": Program(
        lambda: lambda x: (x.sin().tril(-1), x.cos().triu(-4)), lambda: (torch.randn(1, 4),)
    ),
    "the only place of an index": Program(
        lambda: lambda x: x.sin().gather(1, (x > 9).long()), lambda: (torch.randn(4, 1),)
    ),
    "a row and a column": Program(lambda: lambda x: (x + 1) @ (x + 1).mT, lambda: (torch.randn(1, 6),)),
    "a column turned round": Program(
        lambda: lambda x: (lambda y: torch.minimum(y, y.flip(0)))((x @ x.mT)[:, 3]), lambda: (torch.randn(7, 6),)
    ),
    "one element, taken with a step": Program(
        lambda: lambda x: (lambda y: y @ y.mT)(torch.stack([x, x.erf()], 1)[:, 1:2:2]), lambda: (torch.randn(2),)
    ),
    "bytes beside wider numbers": Program(
        lambda: lambda x: (x.to(torch.int16) * 2 - x, x.to(torch.int64) * 3 + x),
        lambda: (torch.randint(255, (4, 5), dtype=torch.uint8),),
    ),
    "a value and itself": Program(
        lambda: lambda x: torch.maximum(x, x) + torch.minimum(x, x), lambda: (torch.randn(5),)
    ),
    "a table of positions, returned": Program(
        lambda: lambda x: (x + 1, torch.arange(7).float().flip(0)), lambda: (torch.randn(7),)
    ),
    "a layer of constants alone": Program(Marked, lambda: (torch.randn(4, 9, 64),)),
    "a padding of a padding": Program(
        lambda: lambda x: (lambda y: (y, F.pad(y, (1, 0))))(F.pad(x, (0, 2))), lambda: (torch.randn(3, 4),)
    ),
    "rows again, read in two shapes": Program(
        lambda: lambda x: (lambda y: (y.unflatten(-1, (4, 8)).abs(), y + 1))(x.repeat(1, 1, 4)),
        lambda: (torch.randn(2, 3, 8),),
    ),
    "a flip, and views of it": Program(
        lambda: lambda x: (lambda y: (y, y.reshape(2, 4).unsqueeze(0).expand(2, 2, 4)))(x.neg().flip(0)),
        lambda: (torch.randn(8),),
    ),
    "slices stacked and read by two": Program(
        lambda: lambda x: (lambda y: (y, torch.minimum(x, y)))(torch.stack([x[3], x[2]])[:, None]),
        lambda: (torch.randn(6),),
    ),
    "one factor, and ones": Program(lambda: lambda x: (x * torch.ones(3), x + 1), lambda: (torch.randn(2, 3),)),
    "whole numbers with themselves": Program(
        lambda: lambda x: (x - x, x == x, (x ^ x) + x), lambda: (torch.randint(9, (4,)),)
    ),
    "columns beside a kernel of rows": Program(
        lambda: lambda x: (torch.softmax(x, -1) - x[:, 1:2], x[:, 1:2] + 1), lambda: (torch.randn(5, 7),)
    ),
    "a slice of what was computed is assigned": Program(lambda: _assigned, lambda: (torch.randn(4, 4),)),
    "written and read by one order": Program(lambda: _ordered, lambda: (torch.randn(4, 7),)),
    "buckets": Program(
        lambda: lambda x, bounds: torch.bucketize(x, bounds), lambda: (torch.rand(8), torch.rand(3).sort()[0])
    ),
    "windows taken apart and summed": Program(
        lambda: lambda x: F.fold(F.unfold(x, 3, padding=1), 8, 3, padding=1), lambda: (torch.randn(2, 3, 8, 8),)
    ),
    "elements stacked": Program(lambda: lambda x: torch.stack([x[0, 0], x[0, 1], x[1, 2]]), _rows),
    "sums, and products of sums": Program(
        lambda: lambda x: (x.cumsum(0), x.cumsum(1).cumprod(0)), lambda: (torch.randn(5, 9),)
    ),
    "a concatenation of what is empty": Program(
        lambda: lambda x, y, z: (torch.cat([x, y.sin(), x]) * 2, torch.cat([x, z, z]).exp()),
        lambda: (torch.randn(0, 4), torch.randn(3, 4), torch.randint(0, 3, (2, 4))),
    ),
    "occurrences counted": Program(
        lambda: lambda x: torch.bincount(x, minlength=5).clamp(min=1), lambda: (torch.randint(0, 5, (9,)),)
    ),
    "divided by as many occurrences": Program(
        lambda: lambda x, y: y / torch.bincount(x, minlength=5).clamp(min=1),
        lambda: (torch.randint(0, 5, (9,)), torch.randn(5)),
    ),
    "means of half floats": Program(
        lambda: lambda x: (F.avg_pool2d(x, 2), x.mean((2, 3))), lambda: (torch.randn(1, 3, 8, 8).half(),)
    ),
    "centres of what is near": Program(lambda: _centres, lambda: (torch.randn(64, 2), torch.randn(4, 2))),
    "windows of integers": Program(
        lambda: lambda x, w: F.conv2d(x.to(torch.int32), w.to(torch.int32)),
        lambda: (
            torch.randint(0, 5, (1, 2, 9, 8), dtype=torch.int8),
            torch.randint(0, 5, (4, 2, 3, 3), dtype=torch.int8),
        ),
    ),
    "ranks of two": Program(
        lambda: lambda x, y: (x.sort()[1], y.sort()[1]), lambda: (torch.randn(16), torch.randn(16))
    ),
    "mask of chosen groups": Program(lambda: _masked, lambda: (torch.randn(3, 8),)),
    "messages summed": Program(lambda: Graph(mean=False), _graph),
    "messages averaged": Program(lambda: Graph(mean=True), _graph),
    "attention over channels, twice": Program(_ChannelAttention, lambda: (torch.randn(1, 8, 4, 4),)),
    "norm, silu, padded convolution": Program(
        lambda: nn.Sequential(nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv2d(8, 8, 3, padding=1)),
        lambda: (torch.randn(1, 8, 6, 6),),
    ),
    "batch norm, relu, padded convolution": Program(
        lambda: nn.Sequential(nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 3, padding=1)).eval(),
        lambda: (torch.randn(1, 4, 6, 6),),
    ),
    "router": Program(Router, lambda: (torch.randn(6, 8),)),
    "sums of constants": Program(lambda: lambda x: (x + torch.ones(4).sum(), torch.ones(3, 4).sum(-1)), _rows),
    "sums of what is like an argument": Program(
        lambda: lambda x: (torch.ones_like(x).sum(-1), torch.zeros_like(x).sum(), (x.long() * 0).sum()), _rows
    ),
    "slices of a concatenation": Program(Nest, lambda: (torch.randn(1, 3, 16),)),
    **{
        f"{kind}, in one place": Program(partial(layer, **options), lambda: (torch.randn(2, 8, 4, 6),))
        for kind, layer, options in _WINDOWS
    },
    **{f"experts, {rows} rows": Program(Experts, partial(_sorted_rows, rows)) for rows in (3, 16)},
    "detached": Program(
        lambda: lambda x: (x.sin().sigmoid() @ x.mT, x.sin().detach().sigmoid()[:, None, :, :2]), image
    ),
    "a layer applied twice": Program(Again, lambda: (torch.randn(1, 16, 16, 16),)),
    "rows written one by one": Program(lambda: _recurrence, lambda: (torch.randn(2, 3, 4),)),
    "added to a slice of slices": Program(lambda: _shifted, lambda: (torch.randn(4, 4),)),
    "copies, one of them returned": Program(lambda: lambda x: (x.clone(), x.clone() + 1), _rows),
    "signs, and one by what has them": Program(lambda: lambda x: (torch.signbit(x), 1 / x), _rows),
    "bytes with a sign": Program(lambda: _signed, lambda: (torch.tensor([250, 3, 128], dtype=torch.uint8),)),
    "padded behind work": Program(lambda: lambda x: F.pad(x * 2, (8, 0)), _rows),
    "transposed and padded, twice": Program(
        lambda: lambda x, y: (F.pad(x.mT, (0, 0, 0, 2)) * 2, F.pad(y.mT, (0, 0, 0, 2)) * 3),
        lambda: (torch.randn(1, 4, 6), torch.randn(1, 4, 6)),
    ),
    "work, padding, depthwise convolution": Program(
        lambda: nn.Sequential(nn.SiLU(), nn.ConstantPad1d((8, 0), 0.0), nn.Conv1d(8, 8, 9, groups=8)),
        lambda: (torch.randn(1, 8, 13),),
    ),
    "depthwise convolutions of rows and of columns, a norm between": Program(
        lambda: (
            lambda x, v, w, s, b: F.conv2d(
                F.conv2d(x, v, padding=(0, 2), groups=7) * s + b, w, padding=(2, 0), groups=7
            )
        ),
        lambda: (torch.randn(1, 7, 2, 2), torch.randn(7, 1, 1, 5), torch.randn(7, 1, 5, 1), *torch.randn(2, 7, 1, 1)),
    ),
    "depthwise convolution, norm of its channels": Program(
        lambda: lambda x, w: F.layer_norm(F.conv1d(x, w, groups=8).mT, (8,)),
        lambda: (torch.randn(1, 8, 13), torch.randn(8, 1, 9)),
    ),
    "places of ranks, far behind the arguments": Program(
        lambda: _places,
        lambda: (
            torch.randn(16, 1024),
            *(torch.randn(rows, width) / rows**0.5 for rows, width in ((1024, 4096), (4096, 1024), (1024, 4))),
        ),
        slow=True,
    ),
    "what grows by one piece after the other": Program(Grown, lambda: (torch.randn(1, 4, 6, 6),)),
    "those that a mask of two axes takes": Program(
        lambda: lambda x: (x[x > 0].sum(), x.reshape(-1)[x.reshape(-1) < 0], x[:, x[0] > 0].relu()),
        lambda: (torch.randn(7, 13),),
    ),
    "products padded alike": Program(
        lambda: (
            lambda x, y: (
                F.pad((x @ x.mT)[None], (1, 0))[..., 1:].exp(),
                F.pad((y @ y.mT)[None], (1, 0))[..., 1:].sin(),
            )
        ),
        lambda: (torch.randn(2, 6, 4), torch.randn(2, 6, 4)),
    ),
    "sums of bags that begin anywhere": Program(
        lambda: lambda weight, indices, begins: F.embedding_bag(indices, weight, begins, mode="sum"),
        lambda: (torch.randn(10, 4), torch.randint(0, 10, (8,)), torch.tensor([0, 3, 5])),
    ),
    "written into a diagonal": Program(
        lambda: lambda x, y: torch.diagonal_scatter(x, y) * 2, lambda: (torch.randn(4, 4), torch.randn(4))
    ),
    "written into every second column": Program(lambda: _strided, lambda: (torch.randn(4, 8),)),
    "a diagonal of zeros": Program(lambda: _cleared, lambda: (torch.randn(5, 5),)),
    "written through a view": Program(lambda: _overwritten, lambda: (torch.randn(3, 4, 5),)),
    "written over rows of a view": Program(lambda: _spread, lambda: (torch.randn(8, 8),)),
    "copy into a slice": Program(lambda: _written, lambda: (*image(), torch.randn(1, 3, 9, 9))),
    "products with what positions say": Program(
        lambda: lambda x: torch.relu(x @ (w := torch.linspace(-1, 1, 64).view(8, 8))) @ w.T,
        lambda: (torch.randn(2, 8),),
    ),
    "a filter and its transposition": Program(lambda: _edges_of, lambda: (torch.randn(1, 1, 20, 20),)),
    "read by strides": Program(lambda: lambda x: x.as_strided((4, 4), (16, 5)) * 2, lambda: (torch.randn(4, 4, 4),)),
    "last of sequences": Program(
        lambda: lambda x, n: x.cumsum(1).gather(1, (n - 1)[:, None, None].expand(-1, 1, 5)),
        lambda: (torch.randn(2, 6, 5), torch.tensor([3, 5])),
    ),
    "numbers by their bits": Program(
        lambda: lambda x, y: (torch.nextafter(x, y) + y, (x.view(torch.int32) & 0x7FFFFFFF).view(torch.float32)),
        lambda: (torch.randn(6, 6), torch.randn(6, 6)),
    ),
    "determinant": Program(lambda: torch.linalg.det, lambda: (torch.randn(4, 4),)),
    "pieces of a view": Program(
        lambda: lambda x: (x.mT[..., 0].abs(), x.mT[0:1].sum(), (x.mT * 2)[1:3].exp()), lambda: (torch.randn(4, 5),)
    ),
    "class tokens, of which one is zeros": Program(Tokens, lambda: (torch.randn(1, 3, 32, 32),)),
    "a class token of zeros": Program(lambda: Tokens(1), lambda: (torch.randn(1, 3, 32, 32),)),
    **{
        f"a number computed of weights, in {dtype}": Program(
            partial(lambda dtype: Difference().to(dtype), dtype),
            partial(lambda dtype: tuple(torch.randn(2, 1, 4, 8, 8).to(dtype)), dtype),
        )
        for dtype in (torch.float32, torch.bfloat16, torch.float16)
    },
    "means of means beside what they are of": Program(
        lambda: lambda x: F.gelu(x) * 2 + F.gelu(F.gelu(x).mean(2, keepdim=True).mean(3, keepdim=True)),
        lambda: (torch.randn(1, 32, 4, 4),),
    ),
    "a mean times itself": Program(lambda: lambda x: (x.mean(1) * x.mean(1)).sum(), lambda: (torch.randn(4, 6),)),
    "heads of as many columns as rows": Program(
        lambda: lambda q, k: Turned(q) @ Turned(k).mT.repeat_interleave(2, 1),
        lambda: (torch.randn(1, 4, 8, 8), torch.randn(1, 2, 8, 8)),
    ),
    "a piece of what others read whole": Program(
        lambda: lambda x, y: ((z := torch.cat([x[:, :1].exp(), y[:, 1:]], 1))[:, 0:1] * 2, z.sum(1), z[:, 1:] + 1),
        lambda: (torch.randn(2, 3, 8), torch.randn(2, 5, 8)),
    ),
    "a concatenation that is split where it was joined": Program(
        lambda: (
            lambda x, y: ((z := torch.cat([x, y], 1)).split([3, 5], 1)[1].sum(1), z.split([3, 5], 1)[0] * 2, z.mean(1))
        ),
        lambda: (torch.randn(2, 3, 8), torch.randn(2, 5, 8)),
    ),
    "a depthwise convolution beside every other element": Program(
        lambda: lambda x, w: F.conv2d(x, w, stride=2, padding=1, groups=32) + F.avg_pool2d(x, 1, 2),
        lambda: (torch.randn(1, 32, 4, 4), torch.randn(32, 1, 3, 3)),
    ),
    "a mask of weights that is true everywhere": Program(lambda: Anchors().eval(), lambda: (torch.randn(12, 32),)),
    "two convolutions of one image": Program(
        lambda: lambda x, v, w: (F.conv2d(x, v, stride=2, padding=1), F.conv2d(x, w, stride=2, padding=1, groups=16)),
        lambda: (torch.randn(1, 16, 8, 8), torch.randn(32, 16, 3, 3), torch.randn(16, 1, 3, 3)),
    ),
    "one convolution of two images": Program(
        lambda: lambda x, y, w, b: F.conv2d(x, w, b, padding=1) * F.conv2d(y, w, b, padding=1),
        lambda: (torch.randn(1, 16, 8, 8), torch.randn(1, 16, 8, 8), torch.randn(32, 16, 3, 3), torch.randn(32)),
    ),
    "two Fourier transforms in a row": Program(
        lambda: lambda x: torch.fft.fftn(x, dim=(1, 2)).real, lambda: (torch.randn(2, 6, 8),)
    ),
    "the first of a long axis that is not the last": Program(
        lambda: lambda x: x.topk(3, dim=1), lambda: (torch.randn(2, 300, 3),)
    ),
    "boxes that others suppress, one by one": Program(lambda: _kept, lambda: (torch.rand(5, 5),)),
    "there and back, by tables that are equal": Program(
        lambda: lambda x: torch.fft.ifft2(torch.fft.fftshift(torch.fft.fft2(x), dim=(-2, -1))).abs(),
        lambda: (torch.randn(2, 3, 8, 6),),
    ),
    "work on a matrix and on its transposition": Program(
        lambda: lambda x: (x.mT.sin().exp()[1:3] * 2, x.sin().exp()[:, 1].sum()), lambda: (torch.randn(3, 4),)
    ),
    "a gather from what is computed, which two read": Program(
        lambda: _picked, lambda: (torch.randn(8, 20), torch.randint(0, 20, (8, 20)))
    ),
    "powers that leave no fractions": Program(
        lambda: lambda x: torch.float_power(2.0, x), lambda: (torch.randint(1, 5, (4, 9)),)
    ),
    "a column of what is widened, rounded before": Program(
        lambda: lambda x, w: (x @ w).half().float()[:, torch.tensor([1, 3])],
        lambda: (torch.randn(5, 8), torch.randn(8, 16)),
    ),
    "a long axis, sorted": Program(lambda: lambda x: x.sort(-1)[0].diff(), lambda: (torch.randn(2, 200),), slow=True),
    "a broadcast that a reduction and others read": Program(
        lambda: _limited, lambda: (torch.randn(300, 25), torch.randn(300, 10))
    ),
    **{
        f"a dilated transposed convolution, stride {stride}": Program(
            partial(nn.ConvTranspose2d, 4, 6, 3, stride=stride, padding=1, dilation=2, groups=2),
            lambda: (torch.randn(1, 4, 5, 4),),
        )
        for stride in (1, 2)
    },
    **{
        f"a transposed convolution of {inner} channels, stride 1, padding {padding}": Program(
            partial(nn.ConvTranspose2d, inner, outer, 3, padding=padding), partial(_image, inner)
        )
        for inner, outer, padding in ((32, 64, 1), (16, 16, 1), (7, 9, 2))
    },
    "places along two axes, turned round": Program(
        lambda: lambda x: (x.nonzero().flip(1), x.nonzero().T.sum(1)), lambda: (torch.randn(4, 5),)
    ),
    "a padding of what a mask chooses": Program(
        lambda: lambda x: F.pad(x[x > 0], (1, 2)).diff(), lambda: (torch.randn(4, 5),)
    ),
    "what a mask chooses, written the other way round": Program(lambda: _turned, lambda: tuple(torch.randn(2, 4, 5))),
    "a transposition of a transposition": Program(
        lambda: lambda x: (lambda y: (y, y.permute(1, 2, 0)))((x * x).permute(2, 1, 0)), lambda: (torch.randn(4, 5, 3),)
    ),
    "a gather from a transposition by its order, beside its sine": Program(
        lambda: _ordered, lambda: (torch.randn(2, 4, 5),)
    ),
    "complex numbers and a transposition of them, both squared": Program(
        lambda: _squared, lambda: (torch.randn(2, 4, 5), torch.randn(2, 4, 5))
    ),
    "a row of a concatenation that is expanded": Program(
        lambda: _expanded, lambda: (torch.randn(2, 1, 5), torch.rand(2, 1, 5) + 1)
    ),
    "indices along an axis of one element": Program(
        lambda: lambda x, at: (x.index_select(0, at), torch.zeros(1).scatter_reduce(0, at, x[0, :1], "mean")),
        lambda: (torch.randn(1, 5), torch.zeros(1, dtype=torch.int64)),
    ),
    "entropies of probabilities": Program(
        lambda: F.binary_cross_entropy, lambda: (torch.rand(5, 5) * 0.9, torch.rand(5, 5))
    ),
    "a number rounded to thousands": Program(
        lambda: lambda x: torch.round(x, decimals=-3), lambda: (torch.tensor(2701.0),)
    ),
    "numbers that are rounded, where functions jump": Program(
        lambda: lambda x: (x % 0.3, torch.fmod(x, 0.7), torch.sinc(x), (x + 3.14159265) % 6.2831853),
        lambda: (torch.randn(4, 5),),
    ),
    "exponentials of integers, and what is no number": Program(
        lambda: lambda x: (x.exp(), x.isinf(), x.isnan()), lambda: (torch.randint(-9, 9, (4, 5)),)
    ),
    "pieces, one of them empty": Program(lambda: lambda x: x.split([1, 4, 0]), lambda: (torch.randn(5, 3),)),
    "where the largest were": Program(
        lambda: (
            lambda g, x, at: torch.ops.aten.max_pool2d_with_indices_backward(
                g, x, [2, 2], [2, 2], [0, 0], [1, 1], False, at
            )
        ),
        lambda: (torch.randn(2, 3, 3), x := torch.randn(2, 6, 6), F.max_pool2d(x, 2, return_indices=True)[1]),
    ),
    "nothing but what it is given": Program(lambda: lambda x: (x.contiguous(), x), lambda: (torch.randn(3),)),
    "a complex matrix and its transposition, multiplied": Program(
        lambda: lambda z: z @ z.mT, lambda: (torch.randn(4, 6, dtype=torch.complex64),)
    ),
    "a padded Fourier transform of doubles": Program(
        lambda: lambda x: torch.fft.fft2(x, s=(5, 9)), lambda: (torch.randn(4, 6, dtype=torch.float64),)
    ),
    "complex rows, added where they belong": Program(
        lambda: lambda z: torch.zeros_like(z).index_add(0, torch.tensor([0, 2, 0, 1]), z),
        lambda: (torch.randn(4, 6, dtype=torch.complex128),),
    ),
    "a choice between a value and itself": Program(
        lambda: lambda x: (torch.where(x > 0, x.mT.mT, x), torch.maximum(x.permute(0, 1), x[:]) + 1),
        lambda: (torch.randn(3, 4),),
    ),
    "a slice of one element, with another axis, and joined": Program(
        lambda: lambda x: (lambda y: (y, torch.cat([y, y + 1], 1)))(x[1:2].unsqueeze(0)), lambda: (torch.randn(7),)
    ),
    "an axis of one element, joined": Program(
        lambda: lambda x: torch.cat([x > 1, (x > 0).reshape(-1, 1).any(1), x.exp().reshape(1, -1).sum(0) > 1]),
        lambda: (torch.randn(9),),
    ),
    "sums by groups that are counted": Program(
        lambda: _grouped, lambda: (torch.randint(0, 5, (9,)), torch.randn(9, 4)), slow=True
    ),
    "as many as a mask has places": Program(
        lambda: lambda x: (torch.ones((x > 0).nonzero().shape[0]), (x > 0).long().cumsum(0)), lambda: (torch.randn(9),)
    ),
    "places in a grid": Program(Grid, lambda: (torch.randn(16, 2, 3),)),
    "positions of paddings": Program(Padded, lambda: (torch.randn(1, 4, 27),)),
    "patches and their positions": Program(Patches, lambda: (torch.randn(1, 3, 64, 64),)),
    "two masks": Program(
        Translator,
        lambda: (
            *torch.randn(2, 2, 6, 16),
            nn.Transformer.generate_square_subsequent_mask(6),
            torch.arange(6) > torch.tensor([[4], [5]]),
        ),
    ),
}
