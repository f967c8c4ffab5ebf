"""What differentiates losses of margins and of likelihoods."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from covan_mlir.frontend.rules.registry import rule, wide

aten = torch.ops.aten

_MEAN = 1
"""Of ATen's ``Reduction``."""


def _of_rows(gradient: Tensor, rows: int, reduction: int) -> Tensor:
    """The gradient of each row's loss, ``[rows, 1]``, or ``[1, 1]`` if all have the same."""
    each = wide(gradient).reshape(-1, 1)
    return each / rows if reduction == _MEAN else each


@rule(aten.multi_margin_loss_backward.default)
def multi_margin_gradient(
    gradient: Tensor, x: Tensor, target: Tensor, p: Any, margin: Any, weight: Tensor | None = None, reduction: int = 1
) -> Tensor:
    scores, labels = wide(x).reshape(-1, x.shape[-1]), target.reshape(-1, 1)
    rows, classes = scores.shape
    is_label = torch.arange(classes) == labels
    room = margin - scores.gather(1, labels) + scores
    slope = torch.where((room > 0) & ~is_label, room * 2 / classes if p == 2 else 1.0 / classes, 0.0).to(scores.dtype)
    if weight is not None:
        slope = slope * wide(weight).index_select(0, labels.squeeze(1)).unsqueeze(1)
    slope = torch.where(is_label, -slope.sum(1, keepdim=True), slope)
    return (slope * _of_rows(gradient, rows, reduction)).reshape(x.shape).to(x.dtype)


@rule(aten.multilabel_margin_loss_backward.default)
def multilabel_margin_gradient(
    gradient: Tensor, x: Tensor, target: Tensor, reduction: int, is_target: Tensor
) -> Tensor:
    """Of each row's labels, those before the first -1."""
    scores, labels = wide(x).reshape(-1, x.shape[-1]), target.reshape(-1, x.shape[-1])
    rows, classes = scores.shape
    numbers = torch.arange(classes)
    counts = numbers < torch.where(labels == -1, numbers, classes).amin(-1, keepdim=True)
    places = torch.where(counts, labels, 0)
    other = is_target.reshape(rows, 1, classes) == 0
    # [row, label, class]
    near = (1.0 - scores.gather(1, places).unsqueeze(2) + scores.unsqueeze(1) > 0) & other & counts.unsqueeze(2)
    pushed = near.to(scores.dtype)
    of_label = (labels.unsqueeze(2) == numbers) & counts.unsqueeze(2)
    pulled = torch.where(of_label, pushed.sum(2, keepdim=True), 0.0).sum(1)
    slope = (pushed.sum(1) - pulled) / classes
    return (slope * _of_rows(gradient, rows, reduction)).reshape(x.shape).to(x.dtype)


@rule(aten.nll_loss_backward.default, aten.nll_loss2d_backward.default)
def negative_likelihood_gradient(
    gradient: Tensor,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: Tensor,
) -> Tensor:
    """Of each position, the class that is its label: compared, and not written there, so that it is fused."""
    axis = min(x.dim() - 1, 1)
    shape = [1] * x.dim()
    shape[axis] = -1
    labels = target.unsqueeze(axis)
    slope = wide(gradient) / wide(total_weight) if reduction == _MEAN else wide(gradient)
    if slope.dim():
        slope = slope.unsqueeze(axis)
    if weight is not None:
        slope = slope * wide(weight).reshape(shape)
    is_label = (torch.arange(x.shape[axis]).reshape(shape) == labels) & (labels != ignore_index)
    return torch.where(is_label, -slope, 0.0).to(x.dtype)
