"""Comparisons with numbers: in the type of the tensor, as in eager. The lowerings compare in float64, where no float32
is equal to 0.1."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from covan_mlir.frontend.rules.registry import rule

aten = torch.ops.aten


def _with_a_rounded_number(op: OpOverload) -> None:
    """Register a comparison with the number that the type of the comparison has for a fraction."""

    def comparison(x: Any, number: Any) -> Any:
        if not isinstance(x, Tensor) or not isinstance(number, float):
            return NotImplemented
        dtype = torch.result_type(x, number)
        if not dtype.is_floating_point or not abs(number) <= torch.finfo(dtype).max:
            return NotImplemented
        rounded = _rounded(number, dtype)
        return NotImplemented if (x.dtype, number) == (dtype, rounded) else op(x.to(dtype), rounded)

    rule(op)(comparison)


def _rounded(number: float, dtype: torch.dtype) -> float:
    """The nearest number of a type; the even one of two."""
    kind = torch.finfo(dtype)
    step = max(math.ldexp(kind.eps, math.frexp(number)[1] - 1), kind.smallest_normal * kind.eps)
    return round(number / step) * step


for _packet in (aten.eq, aten.ne, aten.lt, aten.le, aten.gt, aten.ge):
    _with_a_rounded_number(_packet.Scalar)
    _with_a_rounded_number(_packet.Tensor)
