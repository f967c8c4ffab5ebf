"""Reductions over axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from covan_mlir.frontend.onnx.call import Call
from covan_mlir.frontend.onnx.registry import Translation, operator, table
from covan_mlir.frontend.translation import unsigned

_Reduction = Callable[[Tensor, list[int], bool], Tensor]


def _reduced(reduction: _Reduction, order: bool = False) -> Translation:
    def translation(call: Call) -> Tensor:
        value, axes = call.tensor(0), call.axes(1)
        keep = bool(call.integer("keepdims", 1))
        if not axes:
            if (call.integer("noop_with_empty_axes") and axes is not None) or (
                axes is None and call.integer("noop_with_empty_axes")
            ):
                axes = []
            else:
                axes = list(range(value.dim()))
        apply: Any = unsigned.ordered if order else unsigned.computed
        result: Tensor = apply(lambda v: reduction(v, axes, keep), value)
        return result

    return translation


def _sum(value: Tensor, axes: list[int], keep: bool) -> Tensor:
    return value.sum(axes, keepdim=keep, dtype=value.dtype) if axes else value


def _mean(value: Tensor, axes: list[int], keep: bool) -> Tensor:
    if not axes:
        return value
    if value.dtype.is_floating_point:
        return value.mean(axes, keepdim=keep)
    count = 1
    for axis in axes:
        count *= value.shape[axis]
    return torch.div(_sum(value, axes, keep), count, rounding_mode="trunc")


def _prod(value: Tensor, axes: list[int], keep: bool) -> Tensor:
    for axis in sorted((axis % max(value.dim(), 1) for axis in axes), reverse=True):
        value = value.prod(axis, keepdim=keep, dtype=value.dtype) if value.dim() else value
    return value


def _extreme(function: Callable[..., Tensor], lowest: bool) -> _Reduction:
    def reduction(value: Tensor, axes: list[int], keep: bool) -> Tensor:
        if not axes:
            return value
        if value.dtype is torch.bool:
            return reduction(value.to(torch.uint8), axes, keep) > 0
        if any(value.shape[axis] == 0 for axis in axes):
            shape = [1 if a in {x % value.dim() for x in axes} else n for a, n in enumerate(value.shape)]
            bounds = torch.finfo(value.dtype) if value.dtype.is_floating_point else torch.iinfo(value.dtype)
            if value.dtype.is_floating_point:
                neutral: Any = float("-inf") if lowest else float("inf")
            else:
                neutral = bounds.min if lowest else bounds.max
            empty = torch.full(shape, neutral, dtype=value.dtype)
            return empty if keep else empty.squeeze([x % value.dim() for x in axes])
        return function(value, axes, keepdim=keep)

    return reduction


def _log_sum_exp(value: Tensor, axes: list[int], keep: bool) -> Tensor:
    return torch.logsumexp(value, axes, keepdim=keep) if axes else value


def _norm(value: Tensor, axes: list[int], keep: bool) -> Tensor:
    return torch.sqrt(_sum(value * value, axes, keep)).to(value.dtype)


table(
    [
        ("ReduceSum", _reduced(_sum)),
        ("ReduceMean", _reduced(_mean)),
        ("ReduceProd", _reduced(_prod)),
        ("ReduceMax", _reduced(_extreme(torch.amax, lowest=True), order=True)),
        ("ReduceMin", _reduced(_extreme(torch.amin, lowest=False), order=True)),
        ("ReduceL1", _reduced(lambda value, axes, keep: _sum(value.abs(), axes, keep))),
        ("ReduceL2", _reduced(_norm)),
        ("ReduceLogSum", _reduced(lambda value, axes, keep: torch.log(_sum(value, axes, keep)))),
        ("ReduceLogSumExp", _reduced(_log_sum_exp)),
        ("ReduceSumSquare", _reduced(lambda value, axes, keep: _sum(value * value, axes, keep))),
    ]
)


@operator("ArgMax", "ArgMin")
def arg_extreme(call: Call) -> Tensor:
    """The place of the largest or smallest element: the first, or the last."""
    value, axis = call.tensor(0), call.integer("axis")
    keep = bool(call.integer("keepdims", 1))
    function = torch.argmax if call.node.op_type == "ArgMax" else torch.argmin
    value = unsigned.signed(value)
    if not call.integer("select_last_index"):
        return function(value, axis, keepdim=keep)
    return value.shape[axis] - 1 - function(value.flip(axis), axis, keepdim=keep)
