"""Integers of 16 and 64 bits without a sign, and the bits of one number, which torch-mlir crashes on."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from covan_mlir.frontend.rules.registry import plain, rule

aten = torch.ops.aten
_SIGNED = {torch.uint16: torch.int16, torch.uint64: torch.int64}


@rule(torch.ops.prims.convert_element_type.default, first=True)
def convert(x: Tensor, dtype: torch.dtype) -> Any:
    """By way of signed integers of as many bits: what is too large wraps around, as in eager."""
    if dtype not in _SIGNED or x.dtype is dtype:
        return NotImplemented
    return x.to(torch.int64).to(_SIGNED[dtype]).view(dtype)


@rule(aten.view.dtype)
def bits(x: Tensor, dtype: torch.dtype) -> Any:
    """Of a tensor without axes by way of one with an axis."""
    if x.dim():
        return NotImplemented
    return plain(aten.view.dtype, x.reshape(1), dtype).reshape(())
