"""Arithmetic, element by element."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from covan_mlir.frontend.onnx.call import Call
from covan_mlir.frontend.onnx.dtypes import torch_type
from covan_mlir.frontend.onnx.registry import Translation, operator, table
from covan_mlir.frontend.translation import unsigned
from covan_mlir.frontend.translation.refused import Refused


def _unary(function: Callable[[Tensor], Tensor]) -> Translation:
    return lambda call: unsigned.computed(function, call.tensor(0))


def _binary(function: Callable[[Tensor, Tensor], Tensor]) -> Translation:
    return lambda call: unsigned.computed(function, *call.pair())


def _of_floats(function: Callable[[Tensor], Tensor]) -> Translation:
    return lambda call: function(call.tensor(0))


table(
    [
        ("Abs", _unary(torch.abs)),
        ("Neg", _unary(torch.neg)),
        ("Sign", _unary(torch.sign)),
        ("Add", _binary(torch.add)),
        ("Sub", _binary(torch.sub)),
        ("Mul", _binary(torch.mul)),
        *(
            (name.capitalize(), _of_floats(getattr(torch, name)))
            for name in ("floor", "ceil", "round", "sqrt", "exp", "log", "sin", "cos", "tan", "asin", "acos", "atan")
        ),
        *(
            (name.capitalize(), _of_floats(getattr(torch, name)))
            for name in ("sinh", "cosh", "asinh", "acosh", "atanh", "erf", "reciprocal", "tanh")
        ),
    ]
)


@operator("Div")
def div(call: Call) -> Tensor:
    """Of integers rounded to zero."""
    first, second = call.pair()
    return first / second if first.dtype.is_floating_point else unsigned.divided(first, second)


@operator("Mod", since=10)
def mod(call: Call) -> Tensor:
    """With the sign of the divisor, or (``fmod``) of the dividend."""
    first, second = call.tensor(0), call.tensor(1)
    if call.integer("fmod"):
        if first.dtype is torch.uint64:
            return _rest(first, second)
        return unsigned.computed(torch.fmod, first, second)
    if first.dtype is torch.uint64:
        return _rest(first, second)
    return unsigned.computed(torch.remainder, first, second)


def _rest(first: Tensor, second: Tensor) -> Tensor:
    quotient = unsigned.divided(first, second)
    return unsigned.computed(lambda a, b, q: a - b * q, first, second, quotient)


@operator("Pow")
def power(call: Call) -> Tensor:
    """The result has the type of the base."""
    base, exponent = call.pair()
    if base.dtype.is_floating_point:
        known = call.value(1).only()
        if known is not None and exponent.dim() <= base.dim():
            return torch.pow(base, known)
        return torch.pow(base, exponent.to(base.dtype) if exponent.dtype.is_floating_point else exponent).to(base.dtype)
    a, b = unsigned.signed(base), unsigned.signed(exponent)
    if b.dtype.is_floating_point:
        return torch.pow(a.to(torch.float64), b.to(torch.float64)).to(base.dtype)
    # A negative power of an integer other than 1 and -1 is 0, as integers go.
    raised = torch.pow(a, b.clamp(min=0))
    odd = (b & 1) == 1
    unit = torch.where(a == 1, torch.ones_like(a), torch.where(a == -1, torch.where(odd, a, -a), torch.zeros_like(a)))
    return torch.where(b < 0, unit, raised).to(base.dtype)


def _folded(function: Callable[[Tensor, Tensor], Tensor], order: bool = False) -> Translation:
    apply = unsigned.ordered if order else unsigned.computed
    return lambda call: functools.reduce(lambda a, b: apply(function, a, b), call.tensors())


table(
    [
        ("Sum", _folded(torch.add)),
        ("Max", _folded(torch.maximum, order=True)),
        ("Min", _folded(torch.minimum, order=True)),
    ]
)


@operator("Mean")
def mean(call: Call) -> Tensor:
    """Of the operands, element by element."""
    tensors = call.tensors()
    return functools.reduce(torch.add, tensors) / len(tensors)


@operator("Clip")
def clip(call: Call) -> Tensor:
    """Between limits, which were attributes before opset 11."""
    value = call.tensor(0)
    low: Any = call.optional(1)
    high: Any = call.optional(2)
    if call.opset < 11:
        low = value.new_tensor(call.real("min")) if call.given("min") else None
        high = value.new_tensor(call.real("max")) if call.given("max") else None
    else:
        low, high = (_plain(call, index, limit) for index, limit in ((1, low), (2, high)))
        if not isinstance(low, Tensor | None) or not isinstance(high, Tensor | None):
            if isinstance(low, Tensor) or isinstance(high, Tensor):
                low, high = call.optional(1), call.optional(2)
            elif value.dtype not in unsigned.WIDER:
                return torch.clamp(value, low, high)
            else:
                low, high = call.optional(1), call.optional(2)
    if low is not None:
        value = unsigned.ordered(torch.maximum, value, low)
    return value if high is None else unsigned.ordered(torch.minimum, value, high)


def _plain(call: Call, index: int, limit: Tensor | None) -> Any:
    """A limit as a number, where it is known."""
    return limit if limit is None or (known := call.value(index).only()) is None else known


@operator("Einsum", since=12)
def einsum(call: Call) -> Tensor:
    """Sums of products by a formula of indices."""
    return torch.einsum(call.text("equation"), *call.tensors())


@operator("Cast")
def cast(call: Call) -> Tensor:
    """To another type."""
    value, dtype = call.tensor(0), torch_type(call.integer("to"))
    return converted(value, dtype)


@operator("CastLike", since=15)
def cast_like(call: Call) -> Tensor:
    """To the type of another tensor."""
    return converted(call.tensor(0), call.value(1).dtype)


def converted(value: Tensor, dtype: torch.dtype) -> Tensor:
    """As another type: what is no number is true as a boolean, integers wrap around."""
    if value.dtype.is_complex and not dtype.is_complex and dtype is not torch.bool:
        raise Refused("complex numbers become no real ones")
    return unsigned.converted(value, dtype)


@operator("BitCast", since=26)
def bit_cast(call: Call) -> Tensor:
    """The same bits as another type of the same width."""
    value, dtype = call.tensor(0), torch_type(call.integer("to"))
    if value.dtype is torch.bool:
        return unsigned.bits(value.to(torch.uint8), dtype)
    if dtype is torch.bool:
        return value != 0
    return unsigned.bits(value, dtype)


@operator("CumSum", since=11)
def cumulative_sum(call: Call) -> Tensor:
    """Sums of what comes before, with or without itself, from either end."""
    return _cumulative(call, torch.cumsum, 0)


@operator("CumProd", since=26)
def cumulative_product(call: Call) -> Tensor:
    """Products of what comes before, with or without itself, from either end."""
    return _cumulative(call, torch.cumprod, 1)


def _cumulative(call: Call, function: Callable[..., Tensor], neutral: int) -> Tensor:
    value, axis = call.tensor(0), int(call.number(1, 0))
    if call.integer("reverse"):
        value = value.flip(axis)
    if call.integer("exclusive"):
        first = torch.full_like(value.narrow(axis, 0, 1), neutral)
        value = torch.cat([first, value.narrow(axis, 0, value.shape[axis] - 1)], axis)
    result = function(value, axis, dtype=value.dtype)
    return result.flip(axis) if call.integer("reverse") else result
