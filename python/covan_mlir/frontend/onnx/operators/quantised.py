"""Quantised tensors: integers that stand for real numbers, by scales and zero points, as ONNX rounds them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from covan_mlir.frontend.onnx.call import Call
from covan_mlir.frontend.onnx.dtypes import torch_type
from covan_mlir.frontend.onnx.operators.convolutions import convolved
from covan_mlir.frontend.onnx.registry import MICROSOFT, operator
from covan_mlir.frontend.translation import unsigned
from covan_mlir.frontend.translation.refused import Refused


def along(call: Call, scale: Tensor, value: Tensor, axis: int) -> Tensor:
    """A scale, or a zero point, shaped to be broadcast: one number, one for each place of an axis, or for blocks."""
    if scale.numel() == 1 and scale.dim() <= 1:
        return scale.reshape(())
    block = call.integer("block_size")
    axis %= value.dim()
    if block:
        return scale.repeat_interleave(block, axis).narrow(axis, 0, value.shape[axis])
    return scale.reshape([-1 if a == axis else 1 for a in range(value.dim())])


def quantised(value: Tensor, scale: Tensor, zero: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Divided by the scale, rounded to even, moved by the zero point, and kept in range."""
    limits = torch.iinfo(dtype)
    rounded = torch.round(value / scale)
    if zero is not None:
        rounded = rounded + unsigned.signed(zero).to(rounded.dtype)
    return torch.clamp(rounded, limits.min, limits.max).to(torch.int32).to(dtype)


@operator("QuantizeLinear", since=10)
@operator("QuantizeLinear", domain=MICROSOFT, since=1)
def quantize_linear(call: Call) -> Tensor:
    """Real numbers as integers."""
    value, scale, zero = call.tensor(0), call.tensor(1), call.optional(2)
    dtype = zero.dtype if zero is not None else call.dtype("output_dtype", torch.uint8)
    if dtype.is_floating_point:
        raise Refused("it quantises to floating-point numbers")
    axis = call.integer("axis", 1)
    precision = torch_type(call.integer("precision")) if call.integer("precision") else None
    kind = precision or (torch.float32 if scale.dtype != value.dtype else value.dtype)
    if kind is torch.float16 or kind is torch.bfloat16:
        # The quotient is rounded to the precision, and what follows is exact.
        quotient = (value.to(kind) / along(call, scale, value, axis).to(kind)).to(torch.float32)
        return quantised(quotient, torch.ones(()), along(call, zero, value, axis) if zero is not None else None, dtype)
    return quantised(
        value.to(kind),
        along(call, scale, value, axis).to(kind),
        along(call, zero, value, axis) if zero is not None else None,
        dtype,
    )


@operator("DequantizeLinear", since=10)
@operator("DequantizeLinear", domain=MICROSOFT, since=1)
def dequantize_linear(call: Call) -> Tensor:
    """Integers as real numbers."""
    value, scale, zero = call.tensor(0), call.tensor(1), call.optional(2)
    axis = call.integer("axis", 1)
    dtype = call.dtype("output_dtype", scale.dtype)
    whole = unsigned.signed(value)
    zero = None if zero is None else unsigned.signed(zero).to(torch.int32)
    block, axis = call.integer("block_size"), axis % max(value.dim(), 1)
    if block and scale.dim() and value.shape[axis] == block * scale.shape[axis]:  # blocks are an axis of their own
        apart = whole.unflatten(axis, (-1, block)).to(torch.int32)
        apart = apart if zero is None else apart - zero.unsqueeze(axis + 1)
        return (apart.to(torch.float32) * scale.unsqueeze(axis + 1).to(torch.float32)).flatten(axis, axis + 1).to(dtype)
    whole = whole.to(torch.int32)
    if zero is not None:
        whole = whole - along(call, zero, value, axis)
    factor = along(call, scale, value, axis)
    return (whole.to(torch.float32) * factor.to(torch.float32)).to(dtype)


@operator("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(call: Call) -> tuple[Tensor, Tensor, Tensor]:
    """By the range of a tensor, zero included."""
    value = call.tensor(0)
    low = torch.clamp(value.amin(), max=0.0)
    high = torch.clamp(value.amax(), min=0.0)
    scale = (high - low) / 255.0
    safe = torch.where(scale == 0, torch.ones_like(scale), scale)
    zero = torch.clamp(torch.round((0.0 - low) / safe), 0, 255)
    result = torch.clamp(torch.round(value / safe) + zero, 0, 255)
    return result.to(torch.int32).to(torch.uint8), scale, zero.to(torch.int32).to(torch.uint8)


def _centred(call: Call, index: int, zero: int, rows: bool = False) -> Tensor:
    """An operand of an integer product, less its zero point; one zero point for each row or column perhaps."""
    value = call.tensor(index).to(torch.int32)
    point = call.optional(zero)
    if point is None:
        return value
    point = point.to(torch.int32)
    if point.numel() == 1 and point.dim() <= 1:
        return value - point.reshape(())
    if point.dim() == 1:
        point = point.unsqueeze(-1) if rows else point
    return value - point


@operator("MatMulInteger", since=10)
def matmul_integer(call: Call) -> Tensor:
    """A product in 32 bits of 8-bit integers less their zero points."""
    return torch.matmul(_centred(call, 0, 2, rows=True), _centred(call, 1, 3))


@operator("ConvInteger", since=10)
def conv_integer(call: Call) -> Tensor:
    """A convolution in 32 bits of 8-bit integers less their zero points."""
    weight = call.tensor(1).to(torch.int32)
    if call.has(3):
        zero = call.tensor(3).to(torch.int32)
        weight = weight - (zero.reshape(()) if zero.numel() == 1 else zero.reshape([-1] + [1] * (weight.dim() - 1)))
    return _integer_convolution(call, _centred(call, 0, 2), weight, None)


def _integer_convolution(call: Call, value: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Exactly: products of 9-bit numbers, of which f64 holds sums of 2^35."""
    result = convolved(
        call,
        value.to(torch.float64),
        weight.to(torch.float64),
        None if bias is None else bias.to(torch.float64),
    )
    return result.to(torch.int64).to(torch.int32)


def _requantised(total: Tensor, factor: Tensor, zero: Tensor, dtype: torch.dtype) -> Tensor:
    limits = torch.iinfo(dtype)
    rounded = torch.round(total.to(torch.float32) * factor) + zero.to(torch.float32)
    return torch.clamp(rounded, limits.min, limits.max).to(torch.int32).to(dtype)


def _columns(tensor: Tensor) -> Tensor:
    return tensor.reshape(()) if tensor.numel() == 1 else tensor


def _rows(tensor: Tensor) -> Tensor:
    return tensor.reshape(()) if tensor.numel() == 1 else tensor.unsqueeze(-1) if tensor.dim() == 1 else tensor


@operator("QLinearMatMul", since=10)
def qlinear_matmul(call: Call) -> Tensor:
    """A product of quantised matrices, quantised again."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = call.tensors()
    left = a.to(torch.int32) - _rows(a_zero).to(torch.int32)
    right = b.to(torch.int32) - _columns(b_zero).to(torch.int32)
    factor = (
        _rows(a_scale.to(torch.float32)) * _columns(b_scale.to(torch.float32)) / _columns(y_scale.to(torch.float32))
    )
    return _requantised(torch.matmul(left, right), factor, _columns(y_zero), y_zero.dtype)


@operator("QLinearConv", since=10)
def qlinear_conv(call: Call) -> Tensor:
    """A convolution of quantised tensors, quantised again; scales of weights may be one for each output channel."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = call.tensors()[:8]
    rank = w.dim()
    channel = [-1] + [1] * (rank - 1)
    value = x.to(torch.int32) - x_zero.reshape(()).to(torch.int32)
    point = w_zero.to(torch.int32)
    weight = w.to(torch.int32) - (point.reshape(()) if point.numel() == 1 else point.reshape(channel))
    total = _integer_convolution(call, value, weight, call.optional(8))
    factor = x_scale.reshape(()) * _columns(w_scale) / y_scale.reshape(())
    if factor.dim():
        factor = factor.reshape([1, -1] + [1] * (rank - 2))
    return _requantised(total, factor, y_zero.reshape(()), y_zero.dtype)


def _real(call: Call, index: int) -> Tensor:
    """A quantised operand of a contributed operator, with scale and zero point behind it, as real numbers."""
    value, scale, zero = call.tensor(index), call.tensor(index + 1), call.optional(index + 2)
    whole = value.to(torch.int32)
    whole = whole if zero is None else whole - zero.reshape(()).to(torch.int32)
    return whole.to(torch.float32) * scale.reshape(())


def _again(call: Call, value: Tensor, index: int, dtype: torch.dtype) -> Tensor:
    """Real numbers as the result of a contributed operator, whose scale and zero point are operands from one on."""
    scale, zero = call.tensor(index), call.optional(index + 1)
    return quantised(value, scale.reshape(()), None if zero is None else zero.reshape(()), dtype)


@operator("QLinearAdd", "QLinearMul", domain=MICROSOFT, since=1)
def qlinear_binary(call: Call) -> Tensor:
    """Of two quantised tensors, quantised again."""
    first, second = _real(call, 0), _real(call, 3)
    result = first + second if call.node.op_type == "QLinearAdd" else first * second
    return _again(call, result, 6, call.value(0).dtype)


@operator("QLinearSigmoid", "QLinearLeakyRelu", domain=MICROSOFT, since=1)
def qlinear_unary(call: Call) -> Tensor:
    """Of a quantised tensor, quantised again."""
    value = _real(call, 0)
    if call.node.op_type == "QLinearSigmoid":
        result: Any = torch.sigmoid(value)
    else:
        result = torch.nn.functional.leaky_relu(value, call.real("alpha", 0.01))
    return _again(call, result, 3, call.value(0).dtype)


@operator("QLinearGlobalAveragePool", domain=MICROSOFT, since=1)
def qlinear_global_average_pool(call: Call) -> Tensor:
    """The mean over all places of a quantised tensor, quantised again."""
    if call.integer("channels_last"):
        raise Refused("its channels come last")
    value = _real(call, 0)
    return _again(call, value.mean(list(range(2, value.dim())), keepdim=True), 3, call.value(0).dtype)


@operator("QLinearConcat", domain=MICROSOFT, since=1)
def qlinear_concat(call: Call) -> Tensor:
    """Of quantised tensors, quantised again."""
    parts = [_real(call, index) for index in range(2, call.count, 3)]
    return _again(call, torch.cat(parts, call.integer("axis")), 0, call.value(2).dtype)


@operator("MatMulIntegerToFloat", domain=MICROSOFT, since=1)
def matmul_integer_to_float(call: Call) -> Tensor:
    """A product of 8-bit integers as real numbers, with a bias."""
    left = call.tensor(0).to(torch.int32)
    right = call.tensor(1).to(torch.int32)
    if call.has(4):
        left = left - _rows(call.tensor(4)).to(torch.int32)
    if call.has(5):
        right = right - _columns(call.tensor(5)).to(torch.int32)
    result = torch.matmul(left, right).to(torch.float32) * (_rows(call.tensor(2)) * _columns(call.tensor(3)))
    bias = call.optional(6)
    return result if bias is None else result + bias


@operator("DynamicQuantizeMatMul", domain=MICROSOFT, since=1)
def dynamic_quantize_matmul(call: Call) -> Tensor:
    """A product with a quantised matrix of what is quantised by its own range."""
    quantity, scale, zero = dynamic_quantize_linear(call)
    right = call.tensor(1).to(torch.int32)
    if call.has(3):
        right = right - _columns(call.tensor(3)).to(torch.int32)
    product = torch.matmul(quantity.to(torch.int32) - zero.to(torch.int32), right)
    result = product.to(torch.float32) * (scale * _columns(call.tensor(2)))
    bias = call.optional(4)
    return result if bias is None else result + bias
