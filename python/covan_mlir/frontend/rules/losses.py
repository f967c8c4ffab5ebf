"""Losses whose decompositions are wrong."""

from __future__ import annotations

import torch
from torch import Tensor

from covan_mlir.frontend.rules.registry import rule

aten = torch.ops.aten

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
