"""`flex_attention`: its functions of scores and masks become part of the program."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import covan_mlir


def _attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    def changed(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return torch.tanh(score / 20) * 20 + bias[h] + (i - j) * 0.1

    def causal(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return i >= j

    size = q.shape[2]
    blocks = create_block_mask(causal, None, None, size, size, device="cpu")
    return flex_attention(q, k, v, score_mod=changed, block_mask=blocks)


def test_scores_and_masks() -> None:
    args = (*torch.randn(3, 1, 2, 16, 8).unbind(), torch.randn(2))
    exe = covan_mlir.compile_module(_attention, args)
    torch.testing.assert_close(exe(*args), _attention(*args))
    assert exe.verify().outcome == "yes"
    assert exe.lineage.where("flex_attention")
