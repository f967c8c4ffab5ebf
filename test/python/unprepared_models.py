"""Honest models that nobody prepared, in small."""

from __future__ import annotations

import importlib

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Graph(nn.Module):
    """Messages along edges, summed or averaged where they arrive."""

    def __init__(self, *, mean: bool) -> None:
        super().__init__()
        self.a, self.b, self.mean = nn.Linear(16, 32), nn.Linear(32, 8), mean

    def forward(self, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
        hidden = torch.relu(self.a(x))
        total = torch.zeros(30, 32).index_add(0, target, hidden[source])
        if self.mean:
            count = torch.zeros(30).index_add(0, target, torch.ones(60))
            total = total / count.clamp(min=1)[:, None]
        result: Tensor = self.b(total)
        return result


class Translator(nn.Module):
    """A mask of positions, which may be the causal one, and one of what is padded."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Transformer(16, 2, 1, 1, 32, batch_first=True).eval()

    def forward(self, x: Tensor, y: Tensor, mask: Tensor, padded: Tensor) -> Tensor:
        result: Tensor = self.layers(x, y, tgt_mask=mask, src_key_padding_mask=padded)
        return result


class Router(nn.Module):
    """Two experts for each token: the ranges of two one-hot encodings and of ``topk`` are one constant."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        value, index = torch.softmax(self.gate(x), -1).topk(2)
        first, second = F.one_hot(index[:, 0], 4), F.one_hot(index[:, 1], 4)
        return first * value[:, :1] + second * value[:, 1:], (first + second).float().mean(0)


class Nest(nn.Module):
    """A token taken off a sequence and put in front of it again."""

    def forward(self, x: Tensor) -> Tensor:
        whole = torch.cat([x[:, :1], x[:, 1:].exp()], 1)
        return torch.cat([whole[:, :1].sin(), whole[:, 1:]], 1) * 2


class Experts(nn.Module):
    """Rows that are sorted by expert; the last one has none."""

    def __init__(self) -> None:
        super().__init__()
        importlib.import_module("transformers.integrations.moe")  # registers its operators
        self.weight = nn.Parameter(torch.randn(4, 8, 6))

    def forward(self, x: Tensor, ends: Tensor) -> Tensor:
        product: Tensor = torch.ops.transformers.grouped_mm_fallback(x.sin(), self.weight, ends)
        return product.relu()


class Grown(nn.Module):
    """Each layer is given what all before it gave."""

    def __init__(self) -> None:
        super().__init__()
        widths = range(4, 12, 2)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, 2, 1)) for width in widths
        )

    def forward(self, x: Tensor) -> Tensor:
        pieces = [x]
        for layer in self.layers.eval():
            pieces.append(layer(torch.cat(pieces, 1)))
        return torch.cat(pieces, 1)


class Again(nn.Module):
    """A convolution that is applied twice: its bias is spread over a plane once."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(16, 16, 3, padding=1, groups=16)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x) + x
        return (self.layer(x) + x).softmax(1)


class Clipped(nn.Module):
    """Layers that keep limits of their own, all of them infinite, which are one constant."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16, bias=False) for _ in range(4))
        for layer in self.layers:
            layer.register_buffer("low", torch.tensor(-torch.inf))
            layer.register_buffer("high", torch.tensor(torch.inf))

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (self._clipped(layer, x) for layer in self.layers[:3])
        return x + self._clipped(self.layers[3], (query @ key.mT / 4).softmax(-1) @ value)

    @staticmethod
    def _clipped(layer: nn.Module, x: Tensor) -> Tensor:
        result: Tensor = layer(x.clamp(layer.low, layer.high)).clamp(layer.low, layer.high)
        return result


class Standard(nn.Conv2d):
    """A convolution whose weights are brought to mean zero and variance one: work done ahead of time."""

    def forward(self, x: Tensor) -> Tensor:
        weight = F.batch_norm(self.weight.reshape(1, self.out_channels, -1), None, None, training=True)
        return F.conv2d(F.pad(x, (2, 3, 2, 3)), weight.reshape_as(self.weight), None, self.stride)


class Places(nn.Module):
    """Rows of two tables, taken by products with ones in few places: samples of these are zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.tables = nn.Linear(48, 64, bias=False), nn.Parameter(torch.randn(2, 2048, 64))

    def forward(self, x: Tensor) -> Tensor:
        rows, columns = torch.meshgrid(torch.arange(4), torch.arange(4), indexing="ij")
        places = torch.stack([rows.flatten(), columns.flatten()], -1).unsqueeze(0).flip(-1)
        ones = F.one_hot(places, 2048).permute(0, 2, 1, 3).to(self.tables)
        result: Tensor = self.layer(x) + (ones @ self.tables).sum(1)
        return result


class Tokens(nn.Module):
    """Patches behind tokens of their own, which begin as zeros and ones."""

    def __init__(self, count: int = 2) -> None:
        super().__init__()
        self.tokens = nn.ParameterList(nn.Parameter(torch.full((32,), float(at))) for at in range(count))
        self.patches = nn.Conv2d(3, 32, 8, stride=8)
        self.places = nn.Parameter(torch.randn(1, 16 + count, 32))

    def forward(self, x: Tensor) -> Tensor:
        patches = self.patches(x).flatten(2).mT
        return torch.cat([*(token.expand(len(x), 1, -1) for token in self.tokens), patches], 1) + self.places


class Difference(nn.Module):
    """Two halves of the heads, of which one is taken off the other: by a number that is learnt."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(8)) for _ in range(4))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        one, other = torch.cat([x, y], -1).transpose(1, 2).chunk(2, 2)
        a, b, c, d = self.weights
        return one - ((a * b).sum(-1).exp() - (c * d).sum(-1).exp() + 0.8) * other


class Anchors(nn.Module):
    """A mask of anchors that lie inside of the image, as all of these do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(32, 16)
        self.register_buffer("sides", torch.linspace(0.25, 0.75, 12))

    def forward(self, x: Tensor) -> Tensor:
        places = self.sides * torch.arange(1, 13) / 13.0
        y: Tensor = self.layer(((places > 0.001) & (places < 0.999)).float()[:, None] * x)
        return y


class Marked(nn.Module):
    """A layer that reads marks which are the same in all calls, in a kernel that would pay if it ran."""

    def __init__(self) -> None:
        super().__init__()
        self.marks = nn.ModuleList(nn.Embedding(9, 64) for _ in range(3))
        self.inner = nn.Linear(192, 64)

    def forward(self, x: Tensor) -> Tensor:
        at = torch.full((4, 9, 3), 3)
        rows = torch.cat([mark(at[:, :, k]) for k, mark in enumerate(self.marks)], -1)
        inner: Tensor = self.inner(rows.relu())
        return inner.softmax(-1) + x


class Grid(nn.Module):
    """Rotary angles of places in a grid, whose two coordinates count alike."""

    def __init__(self) -> None:
        super().__init__()
        self.frequencies = nn.Buffer(torch.rand(3))

    def forward(self, x: Tensor) -> Tensor:
        rows = torch.arange(4).unsqueeze(1).expand(-1, 4)
        columns = torch.arange(4).unsqueeze(0).expand(4, -1)
        places = torch.stack([rows.flatten(), columns.flatten()], -1)
        angles = places[..., None].float() * self.frequencies
        return x * angles.cos() + angles.sin()


class Padded(nn.Module):
    """Positions that are all the table's row for paddings, which holds zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(1200, 8, padding_idx=3)
        self.layer = nn.Conv1d(4, 8, 3)

    def forward(self, x: Tensor) -> Tensor:
        rows: Tensor = self.layer(x).mT * 3.0
        return rows + self.table(torch.full((1, rows.shape[1]), 3)).detach()


class Patches(nn.Module):
    """Patches and their positions, turned once for all: what two chains read, and turn, each for itself."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 7, 4, 3)
        self.positions = nn.Parameter(torch.randn(1, 32, 16, 16))
        self.norm = nn.LayerNorm(32)
        self.inner, self.outer = nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, x: Tensor) -> Tensor:
        rows = self.patches(x).permute(0, 2, 3, 1) + self.positions.permute(0, 2, 3, 1)
        windows = self._turned(self.inner(self.norm(rows)).tanh().reshape(1, 2, 8, 2, 8, 32)).reshape(4, 64, 32)
        back = self._turned(self.outer(windows.softmax(1)).reshape(1, 2, 2, 8, 8, 32)).reshape(1, 16, 16, 32)
        return rows + back

    @staticmethod
    def _turned(windows: Tensor) -> Tensor:
        return windows.permute(0, 1, 3, 2, 4, 5)
