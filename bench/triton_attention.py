"""FlashAttention's forward pass (Dao 2023) written by hand in Triton: a baseline of gpu_fused_reductions.py."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _block(
    acc,
    total,
    m,
    q,
    k_ptr,
    v_ptr,
    low,
    high,
    rows,
    keys,
    scale,
    masked: tl.constexpr,
    BN: tl.constexpr,
    D: tl.constexpr,
):
    d = tl.arange(0, D)
    for start in range(low, high, BN):
        n = start + tl.arange(0, BN)
        k = tl.load(k_ptr + n[None, :] * D + d[:, None])
        s = tl.dot(q, k) * scale
        if masked:
            s = tl.where(n[None, :] <= rows[:, None], s, -float("inf"))
        new = tl.maximum(m, tl.max(s, 1))
        p = tl.exp2(s - new[:, None])
        alpha = tl.exp2(m - new)
        v = tl.load(v_ptr + n[:, None] * D + d[None, :])
        acc = tl.dot(p.to(v.dtype), v, acc * alpha[:, None])
        total = total * alpha + tl.sum(p, 1)
        m = new
    return acc, total, m


CONFIGS = [
    triton.Config({"BM": bm, "BN": bn}, num_warps=warps, num_stages=stages)
    for bm, warps in ((64, 4), (128, 4), (128, 8))
    for bn in (32, 64, 128)
    for stages in (2, 3)
]


@triton.autotune(CONFIGS, key=["keys", "D", "causal"])
@triton.jit
def _forward(
    q_ptr, k_ptr, v_ptr, y_ptr, keys, scale, causal: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr
):
    head = tl.program_id(1).to(tl.int64) * keys * D
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    at = rows[:, None] * D + d[None, :]
    q = tl.load(q_ptr + head + at)
    m = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    middle = tl.program_id(0) * BM // BN * BN if causal else keys
    acc, total, m = _block(acc, total, m, q, k_ptr + head, v_ptr + head, 0, middle, rows, keys, scale, False, BN, D)
    if causal:
        end = tl.program_id(0) * BM + BM
        acc, total, m = _block(
            acc, total, m, q, k_ptr + head, v_ptr + head, middle, end, rows, keys, scale, True, BN, D
        )
    tl.store(y_ptr + head + at, (acc / total[:, None]).to(tl.float16))


def attention(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """Attention of (heads, positions, features) in f16; as many queries as keys, a multiple of 128."""
    heads, keys, depth = k.shape
    y = torch.empty_like(q)
    scale = depth**-0.5 * 1.4426950408889634
    _forward[lambda meta: (keys // meta["BM"], heads)](q, k, v, y, keys, scale, causal, D=depth)
    return y
