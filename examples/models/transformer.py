"""A pre-norm transformer whose attention is spelled out: matmul, softmax, matmul."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class Attention(nn.Module):
    """Multi-head self-attention over `[N, seq, dim]`, with a causal mask if asked for."""

    mask: Tensor | None

    def __init__(self, dim: int, heads: int, seq: int, causal: bool) -> None:
        super().__init__()
        if dim % heads:
            raise ValueError(f"dim {dim} is not a multiple of heads {heads}")
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        mask = torch.full((seq, seq), -math.inf).triu(1) if causal else None
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, seq, dim = x.shape
        qkv = self.qkv(x).view(batch, seq, 3, self.heads, dim // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # each [N, heads, seq, dim / heads]
        scores = q @ k.transpose(-2, -1) / math.sqrt(dim // self.heads)
        if self.mask is not None:
            scores = scores + self.mask[:seq, :seq]
        y = scores.softmax(dim=-1) @ v
        out: Tensor = self.out(y.transpose(1, 2).reshape(batch, seq, dim))
        return out


class MLP(nn.Sequential):
    """The position-wise half of a block."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.up = nn.Linear(dim, 4 * dim)
        self.act = nn.GELU()
        self.down = nn.Linear(4 * dim, dim)


class Block(nn.Module):
    """Attention and MLP, each behind a LayerNorm and beside a residual."""

    def __init__(self, dim: int, heads: int, seq: int, causal: bool) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = Attention(dim, heads, seq, causal)
        self.norm2 = nn.LayerNorm(dim)
        self.mlp = MLP(dim)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        y: Tensor = x + self.mlp(self.norm2(x))
        return y


class Transformer(nn.Module):
    """`[N, seq, dim]` to `[N, seq, dim]`."""

    def __init__(self, blocks: int, dim: int, heads: int, seq: int, causal: bool) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Block(dim, heads, seq, causal) for _ in range(blocks)))
        self.norm = nn.LayerNorm(dim)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm(self.blocks(x))
        return y


def transformer(
    blocks: int = 2, dim: int = 256, heads: int = 4, seq: int = 64, causal: bool = False, seed: int = 0
) -> Transformer:
    """A transformer in eval mode with seeded random weights; when causal, it takes up to `seq` positions."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Transformer(blocks, dim, heads, seq, causal)
        for m in model.modules():
            if isinstance(m, nn.LayerNorm):  # not the identity, so that a lost scale or shift shows
                nn.init.uniform_(m.weight, 0.7, 1.3)
                nn.init.normal_(m.bias, std=0.2)
    return model.eval()


def example_inputs(batch: int = 1, seq: int = 64, dim: int = 256, seed: int = 1) -> tuple[Tensor]:
    """One batch of random embeddings."""
    return (torch.randn(batch, seq, dim, generator=torch.Generator().manual_seed(seed)),)
