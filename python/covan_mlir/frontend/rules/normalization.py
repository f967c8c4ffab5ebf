"""Normalisation by statistics that are known before the program runs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from covan_mlir.frontend.rules.registry import rule, wide

aten = torch.ops.aten


@rule(aten._native_batch_norm_legit_no_training.default)
def batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    var: Tensor,
    momentum: float,
    eps: float,
) -> Any:
    """A factor and a summand per channel, as eager has it: they follow from weights, and are computed ahead of time."""
    values = wide(x)

    def along(channels: Tensor) -> Tensor:
        for _ in range(x.dim() - 2):
            channels = channels.unsqueeze(-1)
        return channels

    factor = (var.to(values.dtype) + eps).sqrt().reciprocal()
    if weight is not None:
        factor = factor * weight.to(values.dtype)
    summand = -mean.to(values.dtype) * factor
    if bias is not None:
        summand = summand + bias.to(values.dtype)
    result = (values * along(factor) + along(summand)).to(x.dtype)
    return result, x.new_zeros((0,)), x.new_zeros((0,))
