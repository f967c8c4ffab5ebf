"""Arithmetic of unsigned integers that torch computes nothing with, by wider or signed ones."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

WIDER = {torch.uint16: torch.int32, torch.uint32: torch.int64, torch.uint64: torch.int64}
"""Of 64 bits the same bits: sums, differences and products are those of signed integers."""
_TOP = -(2**63)


def computed(function: Callable[..., Tensor], *operands: Tensor) -> Tensor:
    """A function of tensors of one type, which may be an unsigned one. What it gives has that type, or is boolean."""
    dtype = operands[0].dtype
    if dtype not in WIDER:
        return function(*operands)
    result = function(*(signed(operand) for operand in operands))
    return result if result.dtype is torch.bool else unsigned(result, dtype)


def signed(value: Tensor) -> Tensor:
    """As a signed integer; of 64 bits the same bits."""
    return value.to(WIDER[value.dtype]) if value.dtype in WIDER else value


def unsigned(value: Tensor, dtype: torch.dtype) -> Tensor:
    """The inverse; what is too large wraps around. torch-mlir converts nothing to 16 and 64 unsigned bits, but it takes
    the bits of others for such."""
    if dtype is torch.uint16:
        return bits(value.to(torch.int16), dtype)
    return bits(value, dtype) if dtype is torch.uint64 else value.to(dtype)


def converted(value: Tensor, dtype: torch.dtype) -> Tensor:
    """As another type: what is no number is true as a boolean, integers wrap around."""
    if value.dtype is dtype:
        return value
    if dtype is torch.bool:
        return signed(value) != 0
    if dtype in (torch.uint16, torch.uint64):
        return unsigned(signed(value).to(WIDER[dtype]), dtype)
    return value.to(dtype)


def bits(value: Tensor, dtype: torch.dtype) -> Tensor:
    """The same bits as another type; torch-mlir crashes on those of a tensor without axes."""
    return value.view(dtype) if value.dim() else value.reshape(1).view(dtype).reshape(())


def ordered(function: Callable[..., Tensor], *operands: Tensor) -> Tensor:
    """A function that compares, or chooses by comparing: 64 bits keep their order where the top one is flipped."""
    if operands[0].dtype is not torch.uint64:
        return computed(function, *operands)
    flipped = [signed(operand) ^ _TOP for operand in operands]
    result = function(*flipped)
    return result if result.dtype is torch.bool else unsigned(result ^ _TOP, torch.uint64)


def divided(first: Tensor, second: Tensor) -> Tensor:
    """The quotient, rounded to zero."""
    if first.dtype is not torch.uint64:
        return computed(lambda a, b: torch.div(a, b, rounding_mode="trunc"), first, second)
    a, b = signed(first), signed(second)
    half = torch.div(_shifted(a, 1), b, rounding_mode="trunc") * 2
    rest = a - half * b
    quotient = half + ((rest ^ _TOP) >= (b ^ _TOP)).to(torch.int64)
    return unsigned(torch.where(b < 0, ((a ^ _TOP) >= (b ^ _TOP)).to(torch.int64), quotient), torch.uint64)


def _shifted(value: Tensor, by: int) -> Tensor:
    """To the right, with zeros from the left."""
    return (value >> by) & (2 ** (64 - by) - 1)


def shifted_right(value: Tensor, by: Tensor) -> Tensor:
    """To the right, by numbers that need not be less than the width: with zeros from the left, or with the sign."""
    bits = torch.iinfo(value.dtype).bits
    a, n = signed(value), signed(by).to(torch.int64)
    inside = (n >= 0) & (n < bits)
    n = torch.where(inside, n, torch.zeros_like(n))
    if bits < 64 or value.dtype is torch.int64:
        shifted = a.to(torch.int64) >> n
    else:
        kept = torch.where(n == 0, torch.full_like(n, -1), (torch.ones_like(n) << (64 - n).clamp(max=63)) - 1)
        shifted = (a >> n) & kept
    filled = (
        torch.zeros_like(shifted) if value.dtype in (*WIDER, torch.uint8) else torch.where(a < 0, -1, 0).to(shifted)
    )
    return _narrowed(torch.where(inside, shifted, filled), value.dtype)


def shifted_left(value: Tensor, by: Tensor) -> Tensor:
    """To the left, by numbers that need not be less than the width; what is too large is lost."""
    bits = torch.iinfo(value.dtype).bits
    a, n = signed(value).to(torch.int64), signed(by).to(torch.int64)
    inside = (n >= 0) & (n < bits)
    shifted = a << torch.where(inside, n, torch.zeros_like(n))
    return _narrowed(torch.where(inside, shifted, torch.zeros_like(shifted)), value.dtype)


def _narrowed(value: Tensor, dtype: torch.dtype) -> Tensor:
    return unsigned(value, dtype) if dtype in WIDER else value.to(dtype)
