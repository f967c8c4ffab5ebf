"""Losses whose decompositions are wrong, or that have none."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
import torch.nn.modules.linear_cross_entropy  # registers its operators
from torch import Tensor

from covan_mlir.frontend.rules.registry import rule

aten = torch.ops.aten
torch_nn = torch.ops.torch_nn

_MEAN, _SUM = 1, 2
"""ATen's ``Reduction``."""


@rule(aten.multilabel_margin_loss_forward.default)
def multilabel_margin_loss_forward(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """Of each row's labels, those before the first -1: torch's decomposition counts those behind it as label 0."""
    scores, labels = (tensor.reshape(-1, tensor.shape[-1]) for tensor in (x, target))
    classes = scores.shape[1]
    numbers = torch.arange(classes, device=target.device)
    end = torch.where(labels == -1, numbers, classes).amin(-1, keepdim=True)
    counts = numbers < end
    scored = scores.gather(-1, torch.where(counts, labels, 0))
    is_label = (numbers == torch.where(counts, labels, -1).unsqueeze(-1)).any(1)
    # [row, label, class]
    margins = (1.0 - scored.unsqueeze(-1) + scores.unsqueeze(1)).clamp_min(0) / classes
    losses = torch.where(counts.unsqueeze(-1) & ~is_label.unsqueeze(1), margins, 0).sum((1, 2))
    loss = losses.mean() if reduction == _MEAN else losses.sum() if reduction == _SUM else losses
    if x.dim() < 2 and reduction not in (_MEAN, _SUM):
        loss = loss.reshape(())
    return loss, is_label.to(x.dtype).reshape(target.shape)


@rule(torch_nn._linear_cross_entropy_batch_chunked.default)
def linear_cross_entropy(
    x: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    linear_bias: Tensor | None,
    weight: Tensor | None,
    reduction: str,
    ignore_index: int,
    label_smoothing: float,
    batch_chunk_size: int,
    acc_policy: str,
    acc_dtype: torch.dtype,
    allow_retain_graph: bool,
    *gradients: bool,
) -> Any:
    """The whole batch at once; no gradients, which PyTorch computes along with the loss."""
    if any(gradients) or label_smoothing:
        return NotImplemented
    loss = _linear_cross_entropy(x, linear_weight, target, linear_bias, weight, reduction, ignore_index, acc_dtype)
    none = x.new_zeros((0, 0))
    return loss, none, none.clone(), x.new_zeros(0)


@rule(torch_nn._linear_cross_entropy_batch_chunked_no_reduction.default)
def linear_cross_entropies(
    x: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    linear_bias: Tensor | None,
    weight: Tensor | None,
    ignore_index: int,
    batch_chunk_size: int,
    acc_policy: str,
    acc_dtype: torch.dtype,
) -> Tensor:
    return _linear_cross_entropy(x, linear_weight, target, linear_bias, weight, "none", ignore_index, acc_dtype)


def _linear_cross_entropy(
    x: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    linear_bias: Tensor | None,
    weight: Tensor | None,
    reduction: str,
    ignore_index: int,
    dtype: torch.dtype,
) -> Tensor:
    logits, factors, bias, each = (
        None if tensor is None else tensor.to(dtype) for tensor in (x, linear_weight, linear_bias, weight)
    )
    logits = F.linear(logits, factors, bias)  # type: ignore[arg-type]  # those two are never None
    return F.cross_entropy(logits, target, each, ignore_index=ignore_index, reduction=reduction).to(x.dtype)
