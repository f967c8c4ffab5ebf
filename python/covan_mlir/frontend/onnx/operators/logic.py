"""Comparisons, booleans and bits."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from covan_mlir.frontend.onnx.call import Call
from covan_mlir.frontend.onnx.registry import Translation, operator, table
from covan_mlir.frontend.translation import unsigned


def _compared(function: Callable[[Tensor, Tensor], Tensor]) -> Translation:
    return lambda call: unsigned.ordered(function, *call.pair())


def _of_two(function: Callable[[Tensor, Tensor], Tensor]) -> Translation:
    return lambda call: unsigned.computed(function, *call.pair())


table(
    [
        ("Equal", _compared(torch.eq)),
        ("Greater", _compared(torch.gt)),
        ("Less", _compared(torch.lt)),
        ("And", _of_two(torch.logical_and)),
        ("Or", _of_two(torch.logical_or)),
        ("Xor", _of_two(torch.logical_xor)),
    ]
)
table([("Not", lambda call: torch.logical_not(call.tensor(0)))], since=1)
table([("GreaterOrEqual", _compared(torch.ge)), ("LessOrEqual", _compared(torch.le))], since=12)
table([("IsNaN", lambda call: torch.isnan(call.tensor(0)))], since=9)
table(
    [
        ("BitwiseAnd", _of_two(torch.bitwise_and)),
        ("BitwiseOr", _of_two(torch.bitwise_or)),
        ("BitwiseXor", _of_two(torch.bitwise_xor)),
        ("BitwiseNot", lambda call: unsigned.computed(torch.bitwise_not, call.tensor(0))),
    ],
    since=18,
)


@operator("IsInf", since=10)
def is_infinite(call: Call) -> Tensor:
    """Of either sign, or of one."""
    value = call.tensor(0)
    below, above = call.integer("detect_negative", 1), call.integer("detect_positive", 1)
    if below and above:
        return torch.isinf(value)
    if not below and not above:
        return torch.zeros_like(value, dtype=torch.bool)
    return value == (float("inf") if above else float("-inf"))


@operator("BitShift", since=11)
def bit_shift(call: Call) -> Tensor:
    """Of unsigned integers."""
    shift = unsigned.shifted_left if call.text("direction") == "LEFT" else unsigned.shifted_right
    return shift(call.tensor(0), call.tensor(1))


@operator("Where", since=9)
def where(call: Call) -> Tensor:
    """One of two, by a condition."""
    condition = call.tensor(0)
    return unsigned.computed(lambda a, b: torch.where(condition, a, b), call.tensor(1), call.tensor(2))
