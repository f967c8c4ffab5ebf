"""Features of audio frames to entries of a codebook: once as it was written first, once with a product."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Tokenizer(nn.Module):
    """A soft choice among codes, by distance, over frames `[N, 64]`."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 32))
        self.codebook = nn.Parameter(torch.randn(256, 32))

    def forward(self, frames: Tensor) -> Tensor:
        features = self.encode(frames)
        difference = features[:, None] - self.codebook
        distances = (difference * difference).sum(-1)
        return torch.softmax(-distances, -1) @ self.codebook


class FastTokenizer(Tokenizer):
    """The same: a squared distance is |f|² - 2 f·c + |c|², and f·c is a matrix product."""

    def forward(self, frames: Tensor) -> Tensor:
        features = self.encode(frames)
        products = features @ self.codebook.t()
        squares = (features * features).sum(-1, keepdim=True) + (self.codebook * self.codebook).sum(-1)
        distances = squares - 2 * products
        return torch.softmax(-distances, -1) @ self.codebook
