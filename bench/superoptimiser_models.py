"""Models that rules are applied to, with random weights: `bench/superoptimiser_search.py` says what comes of it."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional


class NasCell(nn.Module):
    """A cell as NasRNN has it (Zoph and Le, 2017): eight sums of a product with the input and one with the state, put
    together by activations and products; a step of a sequence."""

    def __init__(self, size: int = 512) -> None:
        super().__init__()
        self.of_input = nn.ModuleList(nn.Linear(size, size, bias=False) for _ in range(8))
        self.of_state = nn.ModuleList(nn.Linear(size, size, bias=False) for _ in range(8))

    def forward(self, x: Tensor, state: Tensor) -> Tensor:
        sums = [a(x) + b(state) for a, b in zip(self.of_input, self.of_state, strict=True)]
        layer = [
            torch.tanh(torch.sigmoid(sums[0]) * torch.relu(sums[1])),
            torch.relu(torch.sigmoid(sums[2]) * torch.tanh(sums[3])),
            torch.sigmoid(torch.tanh(sums[4]) * torch.tanh(sums[5])),
            torch.tanh(torch.relu(sums[6]) * torch.sigmoid(sums[7])),
        ]
        return torch.tanh(torch.tanh(layer[0] + layer[1]) * torch.tanh(layer[2] + layer[3]))


class Attention(nn.Module):
    """Attention of several heads, with a linear layer for each of query, key and value."""

    def __init__(self, size: int, heads: int, bias: bool) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(size, size, bias=bias) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, size = x.shape
        q, k, v = (
            layer(x).view(batch, tokens, self.heads, -1).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        scores = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(size // self.heads), dim=-1)
        mixed: Tensor = self.out((scores @ v).transpose(1, 2).reshape(batch, tokens, size))
        return mixed


class BertLayer(nn.Module):
    """A layer of BERT (Devlin et al., 2019)."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.attention = Attention(size, heads, bias=True)
        self.up, self.down = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)
        self.norms = nn.ModuleList(nn.LayerNorm(size) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.norms[0](x + self.attention(x))
        y: Tensor = self.norms[1](x + self.down(functional.gelu(self.up(x))))
        return y


class SwigluLayer(nn.Module):
    """A layer of a transformer with gated products (Shazeer, 2020)."""

    def __init__(self, size: int, heads: int) -> None:
        super().__init__()
        self.attention = Attention(size, heads, bias=False)
        self.gate, self.up = (nn.Linear(size, 8 * size // 3, bias=False) for _ in range(2))
        self.down = nn.Linear(8 * size // 3, size, bias=False)
        self.norms = nn.ModuleList(nn.RMSNorm(size) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norms[0](x))
        y = self.norms[1](x)
        gated: Tensor = self.down(functional.silu(self.gate(y)) * self.up(y))
        return x + gated


class Fire(nn.Module):
    """A module of SqueezeNet (Iandola et al., 2016)."""

    def __init__(self, channels: int, squeezed: int, expanded: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(channels, squeezed, 1)
        self.one, self.three = nn.Conv2d(squeezed, expanded, 1), nn.Conv2d(squeezed, expanded, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.squeeze(x))
        return torch.cat([torch.relu(self.one(x)), torch.relu(self.three(x))], 1)


class Inception(nn.Module):
    """A module of Inception (Szegedy et al., 2015)."""

    def __init__(self, channels: int, outputs: tuple[int, int, int, int, int, int]) -> None:
        super().__init__()
        one, before_three, three, before_five, five, pooled = outputs
        self.one = nn.Conv2d(channels, one, 1)
        self.three = nn.ModuleList([nn.Conv2d(channels, before_three, 1), nn.Conv2d(before_three, three, 3, padding=1)])
        self.five = nn.ModuleList([nn.Conv2d(channels, before_five, 1), nn.Conv2d(before_five, five, 5, padding=2)])
        self.pooled = nn.Conv2d(channels, pooled, 1)

    def forward(self, x: Tensor) -> Tensor:
        pieces = [
            self.one(x),
            self.three[1](torch.relu(self.three[0](x))),
            self.five[1](torch.relu(self.five[0](x))),
            self.pooled(functional.max_pool2d(x, 3, 1, 1)),
        ]
        return torch.cat([torch.relu(piece) for piece in pieces], 1)


class Branches(nn.Module):
    """Heads side by side on one vector, whose results are weighted and added."""

    def __init__(self, size: int = 256, count: int = 8) -> None:
        super().__init__()
        self.heads = nn.ModuleList(nn.Linear(size, size) for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        total = torch.zeros_like(x)
        for number, head in enumerate(self.heads):
            total = total + torch.tanh(head(x)) * (1.0 / (number + 1))
        return total


def squeezenet() -> nn.Module:
    """SqueezeNet 1.1 without its last layers."""
    fires = [(64, 16, 64), (128, 16, 64)], [(128, 32, 128), (256, 32, 128)], [(256, 48, 192), (384, 48, 192)]
    stem = [nn.Conv2d(3, 64, 3, stride=2), nn.ReLU(), nn.MaxPool2d(3, 2)]
    stages = [[*(Fire(*fire) for fire in stage), nn.MaxPool2d(3, 2)] for stage in fires]
    return nn.Sequential(*stem, *(layer for stage in stages for layer in stage), Fire(384, 64, 256), Fire(512, 64, 256))


def inception() -> nn.Module:
    """Modules 3a, 3b and 4a of GoogLeNet."""
    return nn.Sequential(
        Inception(192, (64, 96, 128, 16, 32, 32)),
        Inception(256, (128, 128, 192, 32, 96, 64)),
        nn.MaxPool2d(3, 2, 1),
        Inception(480, (192, 96, 208, 16, 48, 64)),
    )


MODELS: dict[str, Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]] = {
    "NasRNN cell, 512": lambda: (NasCell(), (torch.randn(1, 512), torch.randn(1, 512))),
    "BERT-base, 128 tokens": lambda: (
        nn.Sequential(*(BertLayer(768, 12) for _ in range(12))),
        (torch.randn(1, 128, 768),),
    ),
    "BERT-base, 1 token": lambda: (nn.Sequential(*(BertLayer(768, 12) for _ in range(12))), (torch.randn(1, 1, 768),)),
    "SqueezeNet 1.1, 224": lambda: (squeezenet(), (torch.randn(1, 3, 224, 224),)),
    "Inception modules, 28": lambda: (inception(), (torch.randn(1, 192, 28, 28),)),
    "SwiGLU, 4 x 512, 32 tokens": lambda: (
        nn.Sequential(*(SwigluLayer(512, 8) for _ in range(4))),
        (torch.randn(1, 32, 512),),
    ),
    "SwiGLU, 4 x 512, 1 token": lambda: (
        nn.Sequential(*(SwigluLayer(512, 8) for _ in range(4))),
        (torch.randn(1, 1, 512),),
    ),
    "8 branches of 256": lambda: (Branches(), (torch.randn(1, 256),)),
}
