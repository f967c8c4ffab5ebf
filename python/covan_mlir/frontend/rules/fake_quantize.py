"""Numbers rounded as quantised ones are, by scales of each channel: torch-mlir lowers those of a whole tensor alone."""

from __future__ import annotations

import torch
from torch import Tensor

from covan_mlir.frontend.rules.registry import rule

aten = torch.ops.aten


@rule(aten.fake_quantize_per_channel_affine.default)
def fake_quantize(x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, least: int, largest: int) -> Tensor:
    return with_mask(x, scale, zero_point, axis, least, largest)[0]


@rule(aten.fake_quantize_per_channel_affine_cachemask.default)
def with_mask(
    x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, least: int, largest: int
) -> tuple[Tensor, Tensor]:
    """As eager's kernel: zeros that are integers are added to what was rounded, others before.

    What no integer of 64 bits holds becomes the least of these there, so ``least``. Results are multiplied in f64 where
    f32 would round twice.
    """
    shape = [1] * x.dim()
    shape[axis] = -1
    scale, zero = scale.reshape(shape), zero_point.reshape(shape)
    whole = not zero.dtype.is_floating_point
    zero = zero.float()
    scaled = (x if x.dtype is torch.float64 else x.float()) * (1 / scale)
    steps = scaled.round() + zero if whole else (scaled + zero).round()
    fits = steps.abs() < 2.0**63
    kept = torch.where(fits, steps.clamp(least, largest), least)
    within = fits & (steps >= least) & (steps <= largest)
    if whole and x.dtype is torch.float32:
        return (kept - zero) * scale, within
    return ((kept.double() - zero.double()) * scale.double()).to(x.dtype), within
