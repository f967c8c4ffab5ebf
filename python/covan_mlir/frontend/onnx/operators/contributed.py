"""Attention and positions, as exporters of ONNX Runtime and opset 23 write them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from covan_mlir.frontend.onnx.call import Call
from covan_mlir.frontend.onnx.registry import MICROSOFT, operator
from covan_mlir.frontend.translation.refused import Refused


def _heads(value: Tensor, heads: int) -> Tensor:
    """[batch, length, heads * width] as [batch, heads, length, width]."""
    if value.dim() == 4:
        return value
    batch, length, width = value.shape
    return value.reshape(batch, length, heads, width // heads).transpose(1, 2)


def _joined(value: Tensor) -> Tensor:
    batch, heads, length, width = value.shape
    return value.transpose(1, 2).reshape(batch, length, heads * width)


@operator("Attention", domain=MICROSOFT, since=1)
def contributed_attention(call: Call) -> Any:
    """Self-attention of one product for queries, keys and values; its mask is of ones and zeros, or of lengths."""
    value, weight, bias = call.tensor(0), call.tensor(1), call.optional(2)
    heads = call.integer("num_heads")
    if call.has(4):
        raise Refused("it has keys and values of before")
    product = torch.matmul(value, weight)
    product = product if bias is None else product + bias
    sizes = call.integers("qkv_hidden_sizes") or [weight.shape[1] // 3] * 3
    q, k, v = (_heads(part, heads) for part in product.split(sizes, -1))
    mask = _mask(call, 3, q, k)
    if call.has(5):
        mask = call.tensor(5) if mask is None else mask + call.tensor(5)
    scale = call.real("scale") or None
    result = F.scaled_dot_product_attention(q, k, v, mask, 0.0, bool(call.integer("unidirectional")), scale=scale)
    return _joined(result)


def _mask(call: Call, index: int, q: Tensor, k: Tensor) -> Tensor | None:
    """A mask of ones and zeros as what is added to scores."""
    given = call.optional(index)
    if given is None:
        return None
    low = call.real("mask_filter_value", -10000.0)
    if given.dim() == 1:
        at = torch.arange(k.shape[2])
        if given.shape[0] != q.shape[0]:
            raise Refused("its mask has starts and ends of sequences")
        given = (at.unsqueeze(0) < given.unsqueeze(1)).to(torch.int32)
    if given.dim() == 2:
        given = given[:, None, None, :]
    elif given.dim() == 3:
        given = given[:, None]
    return torch.where(given != 0, torch.zeros((), dtype=q.dtype), torch.full((), low, dtype=q.dtype))


@operator("MultiHeadAttention", domain=MICROSOFT, since=1)
def multi_head_attention(call: Call) -> Any:
    """Attention of queries, keys and values that are computed before."""
    heads = call.integer("num_heads")
    q, k, v = call.tensor(0), call.optional(1), call.optional(2)
    if call.has(6) or call.has(7):
        raise Refused("it has keys and values of before")
    if k is None or v is None:
        raise Refused("its queries, keys and values are packed")
    bias = call.optional(3)
    if bias is not None:
        qb, kb, vb = bias.split([q.shape[-1], q.shape[-1], bias.shape[0] - 2 * q.shape[-1]])
        q, k, v = q + qb, k + kb, v + vb
    q, k, v = (_heads(part, heads) for part in (q, k, v))
    mask = _mask(call, 4, q, k)
    if call.has(5):
        mask = call.tensor(5) if mask is None else mask + call.tensor(5)
    result = F.scaled_dot_product_attention(
        q, k, v, mask, 0.0, bool(call.integer("unidirectional")), scale=call.real("scale") or None
    )
    return _joined(result)


@operator("RotaryEmbedding", domain=MICROSOFT, since=1)
def contributed_rotary(call: Call) -> Tensor:
    """Rotated pairs, by angles of positions."""
    value, places, cos, sin = call.tensor(0), call.tensor(1), call.tensor(2), call.tensor(3)
    heads, three = call.integer("num_heads"), value.dim() == 3
    width = call.integer("rotary_embedding_dim") or cos.shape[-1] * 2
    if three:
        heads = heads or value.shape[-1] // (cos.shape[-1] * 2)
        value = _heads(value, heads)
    length = value.shape[2]
    if places.numel() == 1:
        places = places.reshape(1, 1) + torch.arange(length).unsqueeze(0)
    angles = [F.embedding(places.to(torch.int64), table).unsqueeze(1) for table in (cos, sin)]
    turned, rest = value[..., :width], value[..., width:]
    result = torch.cat([_rotated(turned, angles[0], angles[1], bool(call.integer("interleaved"))), rest], -1)
    return _joined(result) if three else result


def _rotated(value: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    if interleaved:
        first, second = value[..., 0::2], value[..., 1::2]
    else:
        first, second = value.chunk(2, -1)
    pair = first * cos - second * sin, second * cos + first * sin
    return torch.stack(pair, -1).flatten(-2) if interleaved else torch.cat(pair, -1)


@operator("FusedConv", domain=MICROSOFT, since=1)
def fused_conv(call: Call) -> Tensor:
    """A convolution, with a summand and an activation behind it."""
    from covan_mlir.frontend.onnx.operators.convolutions import convolved

    result = convolved(call, call.tensor(0), call.tensor(1), call.optional(2))
    if call.has(3):
        result = result + call.tensor(3)
    kind = call.text("activation")
    given = call.reals("activation_params") or []
    functions: dict[str, Any] = {
        "": lambda v: v,
        "Relu": torch.relu,
        "Sigmoid": torch.sigmoid,
        "Tanh": torch.tanh,
        "LeakyRelu": lambda v: F.leaky_relu(v, given[0] if given else 0.01),
        "Clip": lambda v: torch.clamp(v, *given[:2]),
        "HardSigmoid": lambda v: torch.clamp(given[0] * v + given[1], 0.0, 1.0),
    }
    if kind not in functions:
        raise Refused(f"its activation {kind!r} is not known")
    return functions[kind](result)


@operator("Inverse", domain=MICROSOFT, since=1)
def inverse(call: Call) -> Tensor:
    """Of matrices."""
    return torch.linalg.inv(call.tensor(0))


@operator("ArrayFeatureExtractor", domain="ai.onnx.ml", since=1)
def array_feature_extractor(call: Call) -> Tensor:
    """Columns by index."""
    value = call.tensor(0)
    value = value.unsqueeze(0) if value.dim() == 1 else value
    return value[..., call.tensor(1).reshape(-1)]


@operator("Binarizer", domain="ai.onnx.ml", since=1)
def binarizer(call: Call) -> Tensor:
    """One where a value is above a threshold, else zero."""
    value = call.tensor(0)
    return (value > call.real("threshold")).to(value.dtype)
