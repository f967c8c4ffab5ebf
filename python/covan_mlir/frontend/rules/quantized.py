"""Quantised numbers, as torch's exporter (``quantized_decomposed``) and torchao write them: by the arithmetic that
defines them.

torch-mlir lowers those of a whole tensor by quotients, where eager multiplies by the reciprocal, and says nothing of
what they are: of steps that are operators of torch's each has a meaning that is checked.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from covan_mlir.frontend.rules.registry import foreign_rule

_LEAST_SCALE = 1e-5
"""Of a token whose numbers are all close to 0."""
_FEW = 16
"""Steps that take at most half a byte each."""


def _computed(x: Tensor) -> Tensor:
    return x.to(torch.float32) if x.dtype in (torch.float16, torch.bfloat16) else x


def _number(value: Tensor) -> Tensor:
    """A parameter of a whole tensor."""
    return value.reshape(())


def _held(steps: Tensor, dtype: torch.dtype) -> Tensor:
    """Steps in the type that holds them, not by way of 8 bits with a sign: 255 is no such number."""
    return steps.to(torch.int32).to(dtype)


def _along(parameter: Tensor, x: Tensor, axis: int) -> Tensor:
    """A parameter of each position on an axis, beside a tensor."""
    shape = [1] * x.dim()
    shape[axis] = -1
    return parameter.reshape(shape)


@foreign_rule("quantized_decomposed::quantize_per_tensor")
def quantize(x: Tensor, scale: float, zero: int, least: int, largest: int, dtype: torch.dtype) -> Tensor:
    steps = torch.round(_computed(x) * (1.0 / scale)) + zero
    return _held(steps.clamp(least, largest), dtype)


@foreign_rule("quantized_decomposed::quantize_per_tensor.tensor")
def quantize_by_tensors(x: Tensor, scale: Tensor, zero: Tensor, least: int, largest: int, dtype: torch.dtype) -> Tensor:
    # The scale is a number of eager's, in double precision, whose reciprocal is rounded once.
    inverse = (1.0 / _number(scale).to(torch.float64)).to(torch.float32)
    steps = torch.round(_computed(x) * inverse) + _number(zero).to(torch.float32)
    return _held(steps.clamp(least, largest), dtype)


@foreign_rule("quantized_decomposed::quantize_per_tensor.tensor2")
def quantize_between(
    x: Tensor, scale: Tensor, zero: Tensor, least: Tensor, largest: Tensor, dtype: torch.dtype
) -> Tensor:
    inverse = (1.0 / _number(scale).to(torch.float64)).to(torch.float32)
    steps = torch.round(_computed(x) * inverse) + _number(zero).to(torch.float32)
    low, high = (_number(bound).to(torch.float32) for bound in (least, largest))
    return _held(torch.minimum(torch.maximum(steps, low), high), dtype)


@foreign_rule("quantized_decomposed::dequantize_per_tensor")
def dequantize(
    x: Tensor,
    scale: float,
    zero: int,
    least: int,
    largest: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    wide = x.to(out_dtype or torch.float32)
    return (wide - zero if zero else wide) * scale


@foreign_rule("quantized_decomposed::dequantize_per_tensor.tensor")
@foreign_rule("quantized_decomposed::dequantize_per_tensor.tensor2")
def dequantize_by_tensors(
    x: Tensor,
    scale: Tensor,
    zero: Tensor,
    least: int | Tensor,
    largest: int | Tensor,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    kind = out_dtype or torch.float32
    return (x.to(kind) - _number(zero).to(kind)) * _number(scale).to(kind)


@foreign_rule("quantized_decomposed::quantize_per_channel")
def quantize_channels(
    x: Tensor, scales: Tensor, zeros: Tensor, axis: int, least: int, largest: int, dtype: torch.dtype
) -> Tensor:
    steps = torch.round(_computed(x) * (1.0 / _along(scales, x, axis))) + _along(zeros, x, axis)
    return _held(steps.clamp(least, largest), dtype)


@foreign_rule("quantized_decomposed::dequantize_per_channel")
def dequantize_channels(
    x: Tensor,
    scales: Tensor,
    zeros: Tensor | None,
    axis: int,
    least: int,
    largest: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    steps = x.to(scales.dtype)
    if zeros is not None:
        steps = steps - _along(zeros, x, axis).to(scales.dtype)
    return (steps * _along(scales, x, axis)).to(out_dtype or torch.float32)


@foreign_rule("quantized_decomposed::choose_qparams_per_token")
def scales_of_tokens(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Of 8 bits, symmetric: the result's types are those that the operator's own shape function gives."""
    largest = torch.iinfo(dtype).max
    sizes = x.abs().amax(-1, keepdim=True)
    scales = _computed(sizes).clamp(min=_LEAST_SCALE) / largest
    return scales.to(torch.float64), torch.zeros_like(scales, dtype=torch.int64)


@foreign_rule("quantized_decomposed::quantize_per_token")
def quantize_tokens(x: Tensor, scales: Tensor, zeros: Tensor, least: int, largest: int, dtype: torch.dtype) -> Tensor:
    return _held((x * (1.0 / scales) + zeros).round().clamp(least, largest), dtype)


@foreign_rule("quantized_decomposed::dequantize_per_token")
def dequantize_tokens(
    x: Tensor,
    scales: Tensor,
    zeros: Tensor,
    least: int,
    largest: int,
    dtype: torch.dtype,
    out_dtype: torch.dtype = torch.float32,
) -> Tensor:
    return ((x - zeros) * scales).to(out_dtype)


@foreign_rule("quantized_decomposed::quantize_per_channel_group")
def quantize_groups(
    x: Tensor, scales: Tensor, zeros: Tensor, least: int, largest: int, dtype: torch.dtype, size: int = 128
) -> Tensor:
    """Of the rows of a matrix; a group that is longer than a row is a row."""
    groups = _grouped(x, scales, size)
    steps = (groups * (1.0 / scales.unsqueeze(-1)) + zeros.unsqueeze(-1)).round()
    return _held(steps.clamp(least, largest), dtype).reshape(x.shape)


@foreign_rule("quantized_decomposed::dequantize_per_channel_group")
def dequantize_groups(
    x: Tensor,
    scales: Tensor,
    zeros: Tensor | None,
    least: int,
    largest: int,
    dtype: torch.dtype,
    size: int = 128,
    out_dtype: torch.dtype = torch.float32,
) -> Tensor:
    steps = _grouped(_within(x, least, largest), scales, size).to(scales.dtype)
    if zeros is not None:
        steps = steps - zeros.unsqueeze(-1).to(scales.dtype)
    return (steps * scales.unsqueeze(-1)).reshape(x.shape).to(out_dtype)


def _grouped(x: Tensor, scales: Tensor, size: int) -> Tensor:
    """A matrix whose rows are taken apart into groups."""
    group = x.shape[-1] if size > x.shape[-1] and scales.shape[-1] == 1 else size
    return x.reshape(*x.shape[:-1], -1, group)


def _within(x: Tensor, least: int, largest: int) -> Tensor:
    """Steps that say themselves that they have few bits: others than these the operator is not given."""
    return x.clamp(least, largest) if largest - least < _FEW else x


@foreign_rule("torchao::dequantize_affine")
def dequantize_blocks(
    x: Tensor,
    block: Sequence[int],
    scales: Tensor,
    zeros: Tensor | None,
    dtype: torch.dtype,
    least: int | None = None,
    largest: int | None = None,
    out_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Of blocks of a tensor, of so many positions on each axis."""
    if least is not None and largest is not None:
        x = _within(x, least, largest)
    apart = [[size] if one in (1, size) else [size // one, one] for size, one in zip(x.shape, block, strict=True)]
    # Of the sizes of an axis, the last one is a block's, if it is not of one position.
    shared = [[*sizes[:-1], 1 if one != 1 else sizes[-1]] for sizes, one in zip(apart, block, strict=True)]
    whole, shape = ([size for sizes in each for size in sizes] for each in (apart, shared))
    steps = x.reshape(whole).to(out_dtype)
    if zeros is not None:
        steps = steps - zeros.reshape(shape).to(out_dtype)
    return (steps * scales.reshape(shape)).reshape(x.shape).to(out_dtype)


@foreign_rule("quantized_decomposed::convert_element_type.no_fuse")
def converted(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.to(dtype)
