"""Honest programs that nobody prepared: small ones of users', and what they are called with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import unprepared_functions as functions
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


@dataclass(frozen=True)
class Program:
    """
    Attributes:
        slow: to verify it takes long: of lies beside it none is told in every run.
    """

    model: Callable[[], Callable[..., Any]]
    args: Callable[[], tuple[Tensor, ...]]
    slow: bool = False


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
        f"pad {mode}": Program(partial(partial, functions.padded, mode=mode), functions.image)
        for mode in ("reflect", "replicate", "circular")
    },
    **{
        f"convolution, padded {mode}": Program(
            partial(nn.Conv2d, 3, 4, 3, padding=1, padding_mode=mode),
            functions.image,
        )
        for mode in ("zeros", "reflect", "circular")
    },
    "interpolate bicubic": Program(lambda: lambda x: F.interpolate(x, size=(12, 12), mode="bicubic"), functions.image),
    "interpolate bilinear": Program(
        lambda: lambda x: F.interpolate(x, size=(12, 12), mode="bilinear"), functions.image
    ),
    **{
        f"interpolate {mode} by 3": Program(
            lambda mode=mode: lambda x: F.interpolate(x.sin(), scale_factor=3, mode=mode), functions.image
        )
        for mode in ("nearest", "bilinear")
    },
    **{
        f"{name} behind a transposition": Program(
            partial(functions.FeedForward, function), lambda: (torch.randn(1, 16, 12, 12),)
        )
        for name, function in (("gelu", F.gelu), ("silu", F.silu))
    },
    "interpolate one row": Program(
        lambda: lambda x: F.interpolate(x.sin(), size=(4, 4), mode="bilinear").cos(), lambda: (torch.randn(1, 3, 1, 2),)
    ),
    **{
        f"the same concatenated twice along {dim}": Program(
            partial(partial, functions.joined_twice, dim=dim),
            lambda: (torch.randint(0, 9, (6, 2)), *torch.randn(2, 9, 4)),
        )
        for dim in (0, 1)
    },
    "two routers": Program(
        lambda: lambda x, y: tuple(torch.zeros(8, 4).scatter(1, t.topk(2)[1], 1.0).long().sum(0) for t in (x, y)),
        lambda: (torch.randn(8, 4), torch.randn(8, 4)),
    ),
    "masks that two layers share": Program(
        lambda: functions.masked_layers, lambda: (torch.randn(2, 16, 32), torch.randn(2, 16, 32))
    ),
    "a stencil, twice, and borders": Program(lambda: functions.stencil, lambda: (torch.randn(8, 8),)),
    "a mean and a sum, put together": Program(
        lambda: lambda x: torch.stack([x.mean(1), x.sum(1), x.mean(1) * x.sum(1)]), lambda: (torch.randn(3, 6),)
    ),
    "a copy of a concatenation is returned": Program(
        lambda: lambda x: torch.cat([x.neg(), x.relu()]).clone(), lambda: (torch.randn(4),)
    ),
    "a padding that is returned and multiplied": Program(
        lambda: lambda x: (lambda y: (y, y @ y.mT, y.unsqueeze(1)))(F.pad(x, (0, 2))), lambda: (torch.randn(5, 8),)
    ),
    "a number written into a slice": Program(lambda: functions.number_written, lambda: (torch.randn(7),)),
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
    "a slice of what was computed is assigned": Program(lambda: functions.assigned, lambda: (torch.randn(4, 4),)),
    "written and read by one order": Program(lambda: functions.ordered, lambda: (torch.randn(4, 7),)),
    "buckets": Program(
        lambda: lambda x, bounds: torch.bucketize(x, bounds), lambda: (torch.rand(8), torch.rand(3).sort()[0])
    ),
    "windows taken apart and summed": Program(
        lambda: lambda x: F.fold(F.unfold(x, 3, padding=1), 8, 3, padding=1), lambda: (torch.randn(2, 3, 8, 8),)
    ),
    "elements stacked": Program(lambda: lambda x: torch.stack([x[0, 0], x[0, 1], x[1, 2]]), functions.rows),
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
    "centres of what is near": Program(lambda: functions.centres, lambda: (torch.randn(64, 2), torch.randn(4, 2))),
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
    "mask of chosen groups": Program(lambda: functions.masked, lambda: (torch.randn(3, 8),)),
    "messages summed": Program(lambda: Graph(mean=False), functions.graph),
    "messages averaged": Program(lambda: Graph(mean=True), functions.graph),
    "attention over channels, twice": Program(functions.ChannelAttention, lambda: (torch.randn(1, 8, 4, 4),)),
    "norm, silu, padded convolution": Program(
        lambda: nn.Sequential(nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv2d(8, 8, 3, padding=1)),
        lambda: (torch.randn(1, 8, 6, 6),),
    ),
    "batch norm, relu, padded convolution": Program(
        lambda: nn.Sequential(nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 3, padding=1)).eval(),
        lambda: (torch.randn(1, 4, 6, 6),),
    ),
    "router": Program(Router, lambda: (torch.randn(6, 8),)),
    "sums of constants": Program(lambda: lambda x: (x + torch.ones(4).sum(), torch.ones(3, 4).sum(-1)), functions.rows),
    "sums of what is like an argument": Program(
        lambda: lambda x: (torch.ones_like(x).sum(-1), torch.zeros_like(x).sum(), (x.long() * 0).sum()), functions.rows
    ),
    "slices of a concatenation": Program(Nest, lambda: (torch.randn(1, 3, 16),)),
    **{
        f"{kind}, in one place": Program(partial(layer, **options), lambda: (torch.randn(2, 8, 4, 6),))
        for kind, layer, options in _WINDOWS
    },
    **{f"experts, {rows} rows": Program(Experts, partial(functions.sorted_rows, rows)) for rows in (3, 16)},
    "detached": Program(
        lambda: lambda x: (x.sin().sigmoid() @ x.mT, x.sin().detach().sigmoid()[:, None, :, :2]), functions.image
    ),
    "a layer applied twice": Program(Again, lambda: (torch.randn(1, 16, 16, 16),)),
    "rows written one by one": Program(lambda: functions.recurrence, lambda: (torch.randn(2, 3, 4),)),
    "added to a slice of slices": Program(lambda: functions.shifted, lambda: (torch.randn(4, 4),)),
    "copies, one of them returned": Program(lambda: lambda x: (x.clone(), x.clone() + 1), functions.rows),
    "signs, and one by what has them": Program(lambda: lambda x: (torch.signbit(x), 1 / x), functions.rows),
    "bytes with a sign": Program(lambda: functions.signed, lambda: (torch.tensor([250, 3, 128], dtype=torch.uint8),)),
    "padded behind work": Program(lambda: lambda x: F.pad(x * 2, (8, 0)), functions.rows),
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
        lambda: functions.places,
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
    "written into every second column": Program(lambda: functions.strided, lambda: (torch.randn(4, 8),)),
    "a diagonal of zeros": Program(lambda: functions.cleared, lambda: (torch.randn(5, 5),)),
    "written through a view": Program(lambda: functions.overwritten, lambda: (torch.randn(3, 4, 5),)),
    "written over rows of a view": Program(lambda: functions.spread, lambda: (torch.randn(8, 8),)),
    "copy into a slice": Program(lambda: functions.written, lambda: (*functions.image(), torch.randn(1, 3, 9, 9))),
    "products with what positions say": Program(
        lambda: lambda x: torch.relu(x @ (w := torch.linspace(-1, 1, 64).view(8, 8))) @ w.T,
        lambda: (torch.randn(2, 8),),
    ),
    "a filter and its transposition": Program(lambda: functions.edges_of, lambda: (torch.randn(1, 1, 20, 20),)),
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
        lambda: lambda q, k: functions.turned_round(q) @ functions.turned_round(k).mT.repeat_interleave(2, 1),
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
    "boxes that others suppress, one by one": Program(lambda: functions.kept, lambda: (torch.rand(5, 5),)),
    "there and back, by tables that are equal": Program(
        lambda: lambda x: torch.fft.ifft2(torch.fft.fftshift(torch.fft.fft2(x), dim=(-2, -1))).abs(),
        lambda: (torch.randn(2, 3, 8, 6),),
    ),
    "work on a matrix and on its transposition": Program(
        lambda: lambda x: (x.mT.sin().exp()[1:3] * 2, x.sin().exp()[:, 1].sum()), lambda: (torch.randn(3, 4),)
    ),
    "a gather from what is computed, which two read": Program(
        lambda: functions.picked, lambda: (torch.randn(8, 20), torch.randint(0, 20, (8, 20)))
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
        lambda: functions.limited, lambda: (torch.randn(300, 25), torch.randn(300, 10))
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
            partial(nn.ConvTranspose2d, inner, outer, 3, padding=padding), partial(functions.image_of, inner)
        )
        for inner, outer, padding in ((32, 64, 1), (16, 16, 1), (7, 9, 2))
    },
    "places along two axes, turned round": Program(
        lambda: lambda x: (x.nonzero().flip(1), x.nonzero().T.sum(1)), lambda: (torch.randn(4, 5),)
    ),
    "a padding of what a mask chooses": Program(
        lambda: lambda x: F.pad(x[x > 0], (1, 2)).diff(), lambda: (torch.randn(4, 5),)
    ),
    "what a mask chooses, written the other way round": Program(
        lambda: functions.turned, lambda: tuple(torch.randn(2, 4, 5))
    ),
    "a transposition of a transposition": Program(
        lambda: lambda x: (lambda y: (y, y.permute(1, 2, 0)))((x * x).permute(2, 1, 0)), lambda: (torch.randn(4, 5, 3),)
    ),
    "a gather from a transposition by its order, beside its sine": Program(
        lambda: functions.gathered_in_order, lambda: (torch.randn(2, 4, 5),)
    ),
    "complex numbers and a transposition of them, both squared": Program(
        lambda: functions.squared, lambda: (torch.randn(2, 4, 5), torch.randn(2, 4, 5))
    ),
    "a row of a concatenation that is expanded": Program(
        lambda: functions.expanded, lambda: (torch.randn(2, 1, 5), torch.rand(2, 1, 5) + 1)
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
        lambda: functions.grouped, lambda: (torch.randint(0, 5, (9,)), torch.randn(9, 4)), slow=True
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
    "a product of many factors in three sums": Program(
        lambda: functions.in_three_sums, lambda: (torch.rand(5, 10, 5), torch.rand(10, 5)), slow=True
    ),
    "constants of bytes, returned": Program(
        lambda: lambda x: (torch.full_like(x, 7, dtype=torch.uint8), torch.arange(5, dtype=torch.int8), x + 1),
        lambda: (torch.randn(3, 4),),
    ),
    "one number put in its place, in halves": Program(
        lambda: lambda x, i, s: x.scatter_add(0, i, s),
        lambda: (torch.randn(1).bfloat16(), torch.zeros(1, dtype=torch.int64), torch.randn(1).bfloat16()),
    ),
    "places that are counted, and looked up again": Program(
        lambda: lambda x: (torch.ones((x > 0).nonzero().shape[0], 3), (x > 0).nonzero()), lambda: (torch.randn(3, 4),)
    ),
    "no columns of places": Program(
        lambda: lambda x: (x.nonzero()[:, :0], torch.zeros((x > 1).nonzero().shape[0], 0)), lambda: (torch.randn(3, 4),)
    ),
}
