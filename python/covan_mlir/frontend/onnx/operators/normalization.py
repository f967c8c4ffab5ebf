"""Normalisation."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from covan_mlir.frontend.onnx.call import Call
from covan_mlir.frontend.onnx.registry import MICROSOFT, operator


@operator("BatchNormalization")
def batch_normalization(call: Call) -> Any:
    """By statistics that are given; in training mode by those of the batch, which go into running ones."""
    value, scale, bias, mean, var = call.tensors()[:5]
    epsilon = call.real("epsilon", 1e-5)
    if not call.integer("training_mode"):
        return F.batch_norm(
            value,
            mean.to(value.dtype),
            var.to(value.dtype),
            scale.to(value.dtype),
            bias.to(value.dtype),
            False,
            0.0,
            epsilon,
        )
    momentum = call.real("momentum", 0.9)
    axes = [axis for axis in range(value.dim()) if axis != 1]
    own_mean, own_var = value.mean(axes), value.var(axes, correction=0)
    shape = [1, -1] + [1] * (value.dim() - 2)
    normal = (value - own_mean.reshape(shape)) / torch.sqrt(own_var.reshape(shape) + epsilon)
    result = normal * scale.reshape(shape) + bias.reshape(shape)
    return result, mean * momentum + own_mean * (1 - momentum), var * momentum + own_var * (1 - momentum)


@operator("InstanceNormalization")
def instance_normalization(call: Call) -> Tensor:
    """Each channel of each instance by its own statistics."""
    return F.instance_norm(call.tensor(0), weight=call.tensor(1), bias=call.tensor(2), eps=call.real("epsilon", 1e-5))


@operator("LayerNormalization", since=17)
@operator("LayerNormalization", domain=MICROSOFT, since=1)
def layer_normalization(call: Call) -> Any:
    """Over the axes from one on; with mean and inverse deviation, if they are asked for."""
    value, scale, bias = call.tensor(0), call.optional(1), call.optional(2)
    axis = call.integer("axis", -1) % value.dim()
    epsilon = call.real("epsilon", 1e-5)
    shape = value.shape[axis:]
    plain = scale is None or scale.shape == shape
    plain &= bias is None or bias.shape == shape
    if plain:
        result = F.layer_norm(value, shape, scale, bias, epsilon)
    else:
        result = F.layer_norm(value, shape, None, None, epsilon)
        result = result if scale is None else result * scale
        result = result if bias is None else result + bias
    if not any(call.node.output[1:]):
        return result
    axes = list(range(axis, value.dim()))
    wide = value.to(torch.float32) if value.dtype in (torch.float16, torch.bfloat16) else value
    mean = wide.mean(axes, keepdim=True)
    deviation = torch.rsqrt(((wide - mean) ** 2).mean(axes, keepdim=True) + epsilon)
    return result, mean, deviation


@operator("SimplifiedLayerNormalization")
@operator("SimplifiedLayerNormalization", domain=MICROSOFT, since=1)
@operator("RMSNormalization", since=23)
def rms_normalization(call: Call) -> Tensor:
    """By the root of the mean square over the axes from one on."""
    value, scale = call.tensor(0), call.tensor(1)
    axis = call.integer("axis", -1) % value.dim()
    shape, epsilon = value.shape[axis:], call.real("epsilon", 1e-5)
    wide = value.to(torch.float32) if value.dtype in (torch.float16, torch.bfloat16) else value
    if scale.shape == shape:
        return F.rms_norm(wide, shape, scale.to(wide.dtype), epsilon).to(value.dtype)
    return (F.rms_norm(wide, shape, None, epsilon).to(value.dtype)) * scale


@operator("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=MICROSOFT, since=1)
def skip_layer_normalization(call: Call) -> Any:
    """Of a sum of two, and a bias; the sum is the fourth result."""
    simple = call.node.op_type == "SkipSimplifiedLayerNormalization"
    total = call.tensor(0) + call.tensor(1)
    added = call.optional(3 if simple else 4)
    total = total if added is None else total + added
    epsilon = call.real("epsilon", 1e-12)
    scale = call.tensor(2)
    if simple:
        result = F.rms_norm(total, scale.shape, scale, epsilon)
    else:
        result = F.layer_norm(total, scale.shape, scale, call.optional(3), epsilon)
    return (result, None, None, total) if len(call.node.output) > 3 else result


@operator("EmbedLayerNormalization", domain=MICROSOFT, since=1)
def embed_layer_normalization(call: Call) -> Any:
    """Of a sum of embeddings: of words, of places, of segments."""
    ids, segments = call.tensor(0), call.optional(1)
    words, places = call.tensor(2), call.tensor(3)
    at = call.tensor(8) if call.has(8) else torch.arange(ids.shape[1]).unsqueeze(0)
    total = F.embedding(ids.to(torch.int64), words) + F.embedding(at.to(torch.int64), places)
    if segments is not None and call.has(4):
        total = total + F.embedding(segments.to(torch.int64), call.tensor(4))
    scale = call.tensor(5)
    result = F.layer_norm(total, scale.shape, scale, call.tensor(6), call.real("epsilon", 1e-12))
    mask = call.optional(7)
    lengths = torch.zeros(ids.shape[0], dtype=torch.int32) if mask is None else mask.sum(1, dtype=torch.int32)
    return (result, lengths, total)[: max(len(call.node.output), 1)]


@operator("GroupNormalization", since=21)
def group_normalization(call: Call) -> Tensor:
    """Groups of channels by their statistics."""
    value = call.tensor(0)
    return F.group_norm(value, call.integer("num_groups"), call.tensor(1), call.tensor(2), call.real("epsilon", 1e-5))


@operator("LRN")
def local_response_normalization(call: Call) -> Tensor:
    """By sums of squares of neighbouring channels."""
    value, size = call.tensor(0), call.integer("size")
    squares = value * value
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    padded = F.pad(squares, [0, 0] * (value.dim() - 2) + [before, after])
    channels = value.shape[1]
    total = padded.narrow(1, 0, channels)
    for shift in range(1, size):
        total = total + padded.narrow(1, shift, channels)
    alpha, beta, bias = call.real("alpha", 1e-4), call.real("beta", 0.75), call.real("bias", 1.0)
    return value / (bias + alpha / size * total) ** beta


@operator("LpNormalization")
def lp_normalization(call: Call) -> Tensor:
    """By a norm along an axis; zeros stay zeros."""
    value, axis = call.tensor(0), call.integer("axis", -1)
    norm = (
        value.abs().sum(axis, keepdim=True)
        if call.integer("p", 2) == 1
        else (value * value).sum(axis, keepdim=True).sqrt()
    )
    return torch.where(norm == 0, torch.zeros_like(value), value / torch.where(norm == 0, torch.ones_like(norm), norm))


@operator("MeanVarianceNormalization", since=9)
def mean_variance_normalization(call: Call) -> Tensor:
    """By mean and deviation over axes."""
    value = call.tensor(0)
    axes = call.integers("axes")
    axes = [0, 2, 3] if axes is None else axes
    mean = value.mean(axes, keepdim=True)
    square = (value * value).mean(axes, keepdim=True)
    return (value - mean) / (torch.sqrt(square - mean * mean) + 1e-9)
