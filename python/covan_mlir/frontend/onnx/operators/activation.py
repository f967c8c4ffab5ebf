"""Activation functions, and normalised exponentials."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from covan_mlir.frontend.onnx.call import Call
from covan_mlir.frontend.onnx.registry import MICROSOFT, operator, table
from covan_mlir.frontend.translation import unsigned

table(
    [
        ("Relu", lambda call: unsigned.computed(torch.relu, call.tensor(0))),
        ("Sigmoid", lambda call: torch.sigmoid(call.tensor(0))),
        ("Softsign", lambda call: F.softsign(call.tensor(0))),
        ("Softplus", lambda call: F.softplus(call.tensor(0))),
        ("Elu", lambda call: F.elu(call.tensor(0), call.real("alpha", 1.0))),
        ("LeakyRelu", lambda call: F.leaky_relu(call.tensor(0), call.real("alpha", 0.01))),
    ]
)
table([("Mish", lambda call: F.mish(call.tensor(0)))], since=18)


@operator("Selu")
def selu(call: Call) -> Tensor:
    """Scaled, exponential where negative."""
    value = call.tensor(0)
    alpha, gamma = call.real("alpha", 1.67326319217681884765625), call.real("gamma", 1.05070102214813232421875)
    return gamma * torch.where(value > 0, value, alpha * torch.expm1(value))


@operator("Celu", since=12)
def celu(call: Call) -> Tensor:
    """Continuously differentiable, exponential where negative."""
    return F.celu(call.tensor(0), call.real("alpha", 1.0))


@operator("PRelu")
def prelu(call: Call) -> Tensor:
    """Slopes of the negative part, which are broadcast to the value."""
    value, slope = call.tensor(0), call.tensor(1)
    if call.opset < 7 and slope.numel() > 1:  # one for each channel
        slope = slope.reshape(-1, *[1] * (value.dim() - 2))
    return torch.where(value < 0, value * slope, value)


@operator("ThresholdedRelu", since=10)
def thresholded_relu(call: Call) -> Tensor:
    """The value where it is above the threshold, else zero."""
    value = call.tensor(0)
    return torch.where(value > call.real("alpha", 1.0), value, torch.zeros_like(value))


@operator("HardSigmoid")
def hard_sigmoid(call: Call) -> Tensor:
    """A line, cut at zero and one."""
    return torch.clamp(call.tensor(0) * call.real("alpha", 0.2) + call.real("beta", 0.5), 0.0, 1.0)


@operator("HardSwish", since=14)
def hard_swish(call: Call) -> Tensor:
    """The value times a line that is cut at zero and one."""
    return F.hardswish(call.tensor(0))


@operator("Swish", since=24)
def swish(call: Call) -> Tensor:
    """The value times the sigmoid of a multiple of it."""
    value, alpha = call.tensor(0), call.real("alpha", 1.0)
    return F.silu(value) if alpha == 1.0 else value * torch.sigmoid(alpha * value)


@operator("Gelu", since=20)
def gelu(call: Call) -> Tensor:
    """The value times the normal distribution's, or its approximation by tanh."""
    return F.gelu(call.tensor(0), approximate=call.text("approximate", "none"))


@operator("Gelu", domain=MICROSOFT, since=1)
def contributed_gelu(call: Call) -> Tensor:
    """The value times the normal distribution's."""
    return F.gelu(call.tensor(0))


@operator("BiasGelu", domain=MICROSOFT, since=1)
def bias_gelu(call: Call) -> Tensor:
    """Of a sum with a bias."""
    return F.gelu(call.tensor(0) + call.tensor(1))


@operator("FastGelu", domain=MICROSOFT, since=1)
def fast_gelu(call: Call) -> Tensor:
    """By tanh, of a sum with a bias that may be left out."""
    bias = call.optional(1)
    return F.gelu(call.tensor(0) if bias is None else call.tensor(0) + bias, approximate="tanh")


@operator("QuickGelu", domain=MICROSOFT, since=1)
def quick_gelu(call: Call) -> Tensor:
    """By a sigmoid."""
    value = call.tensor(0)
    return value * torch.sigmoid(call.real("alpha", 1.702) * value)


@operator("Shrink", since=9)
def shrink(call: Call) -> Tensor:
    """Zero near zero, else nearer to it."""
    value, bias, limit = call.tensor(0), call.real("bias"), call.real("lambd", 0.5)
    if not value.dtype.is_floating_point:
        wide = unsigned.signed(value).to(torch.float64)
        return _shrunk(wide, bias, limit).to(value.dtype)
    return _shrunk(value, bias, limit)


def _shrunk(value: Tensor, bias: float, limit: float) -> Tensor:
    low = torch.where(value < -limit, value + bias, torch.zeros_like(value))
    return torch.where(value > limit, value - bias, low)


@operator("Softmax", "LogSoftmax", "Hardmax")
def softmax(call: Call) -> Tensor:
    """Along an axis; before opset 13 over all axes from it on, as one."""
    value = call.tensor(0)
    kind = call.node.op_type
    axis = call.integer("axis", -1 if call.opset >= 13 else 1)
    shape = value.shape
    flattened = call.opset < 13 and axis % max(value.dim(), 1) != value.dim() - 1
    if flattened:
        value, axis = value.flatten(axis), -1
    if kind == "Softmax":
        result = torch.softmax(value, axis)
    elif kind == "LogSoftmax":
        result = torch.log_softmax(value, axis)
    else:
        place = torch.argmax(value, axis, keepdim=True)
        at = torch.arange(value.shape[axis]).reshape([-1 if a == axis % value.dim() else 1 for a in range(value.dim())])
        result = (at == place).to(value.dtype)
    return result.reshape(shape) if flattened else result
