"""Half precision through float32, rounded once, as in eager: the lowerings compute in the type of their operands, and
round each step and each number."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils import _pytree as pytree

from covan_mlir.frontend.rules.registry import rule

aten = torch.ops.aten

_HALVES = (torch.float16, torch.bfloat16)


def _in_float32(op: OpOverload, half: torch.dtype, args: Any, kwargs: Any) -> Any:
    """The results of ``op`` on float32, of half precision again."""

    def widened(x: Tensor) -> Tensor:
        return x.to(torch.float32) if x.dtype in _HALVES else x

    def narrowed(x: Tensor) -> Tensor:
        return x.to(half) if x.dtype is torch.float32 else x

    args, kwargs = pytree.tree_map_only(Tensor, widened, (args, kwargs))
    return pytree.tree_map_only(Tensor, narrowed, op(*args, **kwargs))


def _of_several_steps(op: OpOverload) -> None:
    """Register ``op`` on float32 as the decomposition of ``op`` on half precision."""

    def several_steps(*args: Any, **kwargs: Any) -> Any:
        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        half = next((x.dtype for x in tensors if x.dtype in _HALVES), None)
        if half is None or kwargs.pop("dtype", None) not in (None, half):
            return NotImplemented
        return _in_float32(op, half, args, kwargs)

    rule(op)(several_steps)


for _op in (
    aten._adaptive_avg_pool2d.default,
    aten._adaptive_avg_pool3d.default,
    aten._trilinear.default,
    aten.acos.default,
    aten.adaptive_avg_pool1d.default,
    aten.asin.default,
    aten.avg_pool1d.default,
    aten.avg_pool2d.default,
    aten.avg_pool3d.default,
    aten.elu.default,
    aten.embedding_bag.padding_idx,
    aten.gelu.default,
    aten.index_add.default,
    aten.mean.default,
    aten.mean.dim,
    aten.norm.Scalar,
    aten.norm.ScalarOpt_dim,
    aten.round.decimals,
    aten.scatter_add.default,
    aten.scatter_reduce.two,
    aten.softshrink.default,
    aten.sum.default,
    aten.sum.dim_IntList,
    aten.var_mean.correction,
):
    _of_several_steps(_op)


def _with_a_number(op: OpOverload) -> None:
    """Register ``op`` on float32 for a number that half precision does not have: rounded, it may be 0 or infinite."""

    def with_a_number(a: Any, b: Any) -> Any:
        half, number = (b, a) if _rounded_away(b, a) else (a, b)
        return _in_float32(op, half.dtype, (a, b), {}) if _rounded_away(half, number) else NotImplemented

    rule(op)(with_a_number)


for _packet in (aten.div, aten.mul):
    _with_a_number(_packet.Tensor)
    _with_a_number(_packet.Scalar)


def _rounded_away(x: Any, number: Any) -> bool:
    """Whether ``number``, maybe as a tensor without axes, is perhaps another one in the type of ``x``, a half one."""
    if not isinstance(x, Tensor) or x.dtype not in _HALVES:
        return False
    if isinstance(number, Tensor):
        return number.dim() == 0 < x.dim() and number.dtype in (torch.float32, torch.float64)
    if not isinstance(number, float) or not math.isfinite(number):
        return False
    kind = torch.finfo(x.dtype)
    fits = number == 0 or kind.tiny <= abs(number) <= kind.max
    return not (fits and (math.frexp(number)[0] * 2 / kind.eps).is_integer())
