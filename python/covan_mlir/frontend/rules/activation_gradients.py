"""What differentiates activations."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from covan_mlir.frontend.rules.registry import rule, wide

aten = torch.ops.aten


@rule(aten.mish_backward.default)
def mish_gradient(gradient: Tensor, x: Tensor) -> Tensor:
    """Of ``x tanh(softplus(x))``."""
    y = wide(x)
    bent = torch.tanh(F.softplus(y))
    return (wide(gradient) * (bent + y * torch.sigmoid(y) * (1 - bent * bent))).to(x.dtype)


@rule(aten.hardshrink_backward.default, aten.softshrink_backward.default)
def shrink_gradient(gradient: Tensor, x: Tensor, lambd: float) -> Tensor:
    return torch.where((x >= -lambd) & (x <= lambd), 0.0, gradient).to(gradient.dtype)


@rule(aten.rrelu_with_noise_functional.default)
def rrelu(
    x: Tensor, noise: Tensor, lower: Any = 0.125, upper: Any = 1 / 3, training: bool = False, generator: Any = None
) -> Any:
    """Outside training it draws nothing, and gives the noise as it was."""
    return NotImplemented if training else (F.leaky_relu(x, (lower + upper) / 2), noise.clone())


@rule(aten.rrelu_with_noise_backward.default)
def rrelu_gradient(
    gradient: Tensor, x: Tensor, noise: Tensor, lower: Any, upper: Any, training: bool, self_is_result: bool
) -> Tensor:
    """The noise is the slope that each element had; outside training all have the middle one."""
    if training and upper - lower > 1e-6:
        return gradient * noise
    return torch.where(x > 0, gradient, gradient * ((lower + upper) / 2))


@rule(aten._masked_softmax_backward.default)
def masked_softmax_gradient(gradient: Tensor, y: Tensor, mask: Tensor, dim: int | None = None) -> Tensor:
    """Of rows in which what the mask hides is 0."""
    axis = y.dim() - 1 if dim is None else dim
    shares = torch.where(mask.reshape(y.shape), 0.0, wide(y))
    products = wide(gradient) * shares
    return (products - shares * products.sum(axis, keepdim=True)).to(y.dtype)


@rule(aten._weight_norm_interface_backward.default)
def weight_norm_gradient(gradient: Tensor, v: Tensor, g: Tensor, norms: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """Of direction and length: ``g v / |v|``, where norms are of all axes but one."""
    others = [axis for axis in range(v.dim()) if axis != dim % v.dim()]
    w, direction, size = wide(gradient), wide(v), wide(norms).reshape(g.shape)
    along = (w * direction).sum(others, keepdim=True)
    of_v = wide(g) / size * (w - direction * (along / (size * size)))
    return of_v.to(v.dtype), (along / size).reshape(g.shape).to(g.dtype)
