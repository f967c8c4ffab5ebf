"""Models that learn something, over 500 compiled steps: the losses that eager PyTorch has with the same seeds.

Rounding differs, and learning enlarges that, past all bounds where maxima decide which way a gradient goes. So the
convolutional network learns in double precision. Each loss agrees within 1 %, or 0.001 where it is small.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from limits import sweep
from torch import Tensor, nn

from covan_mlir import compile_training_step

STEPS, BATCH = 500, 32
ROOT = Path(__file__).resolve().parents[2]


def resident() -> float:
    """MB of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def assert_same_curve(
    model: nn.Module,
    make: Callable[[Iterable[Any]], torch.optim.Optimizer],
    batch: Callable[[int], tuple[Tensor, Tensor]],
) -> list[float]:
    """The compiled losses, which are eager's; memory does not grow."""
    twin = copy.deepcopy(model)
    optimizer = make(twin.parameters())
    step = compile_training_step(model, F.cross_entropy, make, batch(0))
    losses, expected, memory = [], [], []
    for number in range(STEPS):
        inputs, targets = batch(number)
        torch.manual_seed(number)
        losses.append(step(inputs, targets).item())
        torch.manual_seed(number)
        optimizer.zero_grad()
        loss = F.cross_entropy(twin(inputs), targets)
        loss.backward()
        optimizer.step()
        expected.append(loss.item())
        memory.append(resident())
    assert losses == pytest.approx(expected, rel=1e-2, abs=1e-3)
    assert memory[-1] - memory[STEPS // 5] < 32
    for name, value in twin.state_dict().items():
        torch.testing.assert_close(step.state_dict()["model"][name], value, rtol=0.1, atol=0.05)
    return losses


def test_handwritten_digits() -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    digits = datasets.load_digits()
    images = torch.tensor(digits.images, dtype=torch.float64).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    torch.manual_seed(0)
    model = nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Dropout(0.1), nn.Linear(64, 10)),
    ).double()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))

    def batch(number: int) -> tuple[Tensor, Tensor]:
        chosen = order[torch.arange(number * BATCH, (number + 1) * BATCH) % len(order)]
        return images[chosen], labels[chosen]

    losses = assert_same_curve(model, lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9), batch)
    assert sum(losses[-20:]) / 20 < 0.15  # it has learned them


class Characters(nn.Module):
    """A causal transformer of one layer."""

    def __init__(self, tokens: int, width: int = 32, heads: int = 2, length: int = 24) -> None:
        super().__init__()
        self.heads = heads
        self.embedding, self.places = nn.Embedding(tokens, width), nn.Parameter(torch.zeros(length, width))
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down, self.head = nn.Linear(width, 96), nn.Linear(96, width), nn.Linear(width, tokens)

    def forward(self, indices: Tensor) -> Tensor:
        x = self.embedding(indices) + self.places
        b, t, d = x.shape
        q, k, v = self.qkv(self.first(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        x = x + self.down(F.gelu(self.up(self.second(x))))
        return self.head(x).flatten(0, 1)


@sweep
def test_characters_of_a_text() -> None:
    text = (ROOT / "README.md").read_text()
    letters = sorted(set(text))
    indices = torch.tensor([letters.index(letter) for letter in text])
    torch.manual_seed(0)
    model = Characters(len(letters))

    def batch(number: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(number)
        starts = torch.randint(0, len(indices) - 25, (8,), generator=generator)
        pieces = torch.stack([indices[start : start + 25] for start in starts])
        return pieces[:, :-1].contiguous(), pieces[:, 1:].flatten()

    losses = assert_same_curve(model, lambda p: torch.optim.AdamW(p, lr=3e-3), batch)
    assert sum(losses[-20:]) < 0.75 * sum(losses[:20])
