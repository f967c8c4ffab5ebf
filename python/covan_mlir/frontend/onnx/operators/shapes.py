"""Shapes: what asks for them, and what only arranges elements anew."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from covan_mlir.frontend.onnx.call import Call
from covan_mlir.frontend.onnx.dtypes import torch_type
from covan_mlir.frontend.onnx.registry import MICROSOFT, operator
from covan_mlir.frontend.translation import unsigned
from covan_mlir.frontend.translation.arrays import to_torch
from covan_mlir.frontend.translation.refused import Refused
from covan_mlir.frontend.translation.value import Value, constant, of_sizes, open_sizes


@operator("Constant")
def constant_node(call: Call) -> Value:
    """A tensor that the file holds."""
    for name in ("value_float", "value_int"):
        if call.given(name):
            dtype = torch.float32 if name == "value_float" else torch.int64
            return constant(torch.tensor(call.attribute(name), dtype=dtype))
    for name in ("value_floats", "value_ints"):
        if call.given(name):
            dtype = torch.float32 if name == "value_floats" else torch.int64
            return constant(torch.tensor(list(call.attribute(name)), dtype=dtype))
    if not call.given("value"):
        raise Refused("strings and sparse tensors are no tensors of programs")
    return constant(to_torch(call.array("value")))


@operator("Identity", "Dropout")
def identity(call: Call) -> Any:
    """What it is given; dropout drops nothing in inference, and its mask is true."""
    item = call.items[0]
    if call.node.op_type == "Identity" or len(call.node.output) < 2:
        if call.node.op_type == "Dropout":
            _check_inference(call)
        return (item,) if isinstance(item, list) else item
    _check_inference(call)
    value = call.tensor(0)
    return value, torch.ones_like(value, dtype=torch.bool)


def _check_inference(call: Call) -> None:
    training = call.has(2) and bool(call.number(2, 0))
    if training and float(call.number(1, 0.5)) != 0.0:
        raise Refused("it drops at random, in training mode")


@operator("Shape")
def shape(call: Call) -> Value:
    """Sizes, or some of them."""
    value = call.value(0)
    sizes: list[Any] = list(value.numbers.shape if value.numbers is not None else value.tensor.shape)
    end = call.integer("end", len(sizes)) if call.given("end") else len(sizes)
    return of_sizes(sizes[slice(call.integer("start"), end)])


@operator("Size")
def size(call: Call) -> Value:
    """Number of elements."""
    number = np.empty((), object)
    number[()] = math.prod(call.tensor(0).shape)
    return open_sizes(number, torch.int64)


@operator("Reshape")
def reshape(call: Call) -> Tensor:
    """To sizes, of which 0 stands for that of the operand, and -1 for what is left."""
    value, sizes = call.tensor(0), call.sizes(1)
    if not call.integer("allowzero"):
        sizes = [value.shape[axis] if isinstance(n, int) and n == 0 else n for axis, n in enumerate(sizes)]
    left = [axis for axis, n in enumerate(sizes) if isinstance(n, int) and n == -1]
    if len(left) == 1 and (others := math.prod(n for axis, n in enumerate(sizes) if axis != left[0])):
        rest = math.prod(value.shape) // others
        if isinstance(rest, int) or rest.node.expr.is_number:  # known, though others are open
            sizes[left[0]] = int(rest)
    return value.reshape(sizes)


@operator("Flatten")
def flatten(call: Call) -> Tensor:
    """To two axes."""
    value, axis = call.tensor(0), call.integer("axis", 1)
    axis = axis + value.dim() if axis < 0 else axis
    if axis == 1 and value.dim() > 1:
        return torch.flatten(value, 1)
    return value.reshape(math.prod(value.shape[:axis]), math.prod(value.shape[axis:]))


@operator("Transpose")
def transpose(call: Call) -> Tensor:
    """Another order of axes; without one, the reverse."""
    value = call.tensor(0)
    order = call.integers("perm")
    return value.permute(order if order is not None else list(range(value.dim()))[::-1])


@operator("Squeeze")
def squeeze(call: Call) -> Tensor:
    """Without axes of one element."""
    value, axes = call.tensor(0), call.axes(1)
    if axes is None:
        axes = [axis for axis, n in enumerate(value.shape) if n == 1]
    return torch.squeeze(value, [axis % max(value.dim(), 1) for axis in axes])


@operator("Unsqueeze")
def unsqueeze(call: Call) -> Tensor:
    """With axes of one element; places are those in the result."""
    value, axes = call.tensor(0), call.axes(1)
    assert axes is not None
    rank = value.dim() + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        value = value.unsqueeze(axis)
    return value


@operator("Expand", since=8)
def expand(call: Call) -> Tensor:
    """Broadcast with sizes."""
    value, sizes = call.tensor(0), call.sizes(1)
    rank = max(value.dim(), len(sizes))
    own = [1] * (rank - value.dim()) + list(value.shape)
    sizes = [1] * (rank - len(sizes)) + sizes
    return value.expand([mine if isinstance(n, int) and n == 1 else n for mine, n in zip(own, sizes, strict=True)])


@operator("Tile")
def tile(call: Call) -> Tensor:
    """Repeated along each axis."""
    return call.tensor(0).repeat(call.sizes(1))


@operator("Concat")
def concat(call: Call) -> Tensor:
    """Along an axis."""
    return torch.cat(call.tensors(), call.integer("axis", 1))


@operator("Split")
def split(call: Call) -> tuple[Tensor, ...]:
    """In pieces along an axis: of given sizes, or equal ones, the last perhaps smaller."""
    value, axis = call.tensor(0), call.integer("axis")
    sizes = call.sizes(1) if call.has(1) else call.integers("split")
    if sizes is None:
        pieces = call.integer("num_outputs", len(call.node.output))
        length = value.shape[axis]
        each = -(-length // pieces)
        sizes = [each] * (pieces - 1) + [length - each * (pieces - 1)]
    return torch.split(value, sizes, axis)


@operator("ConstantOfShape", since=9)
def constant_of_shape(call: Call) -> Tensor:
    """One number everywhere."""
    sizes = call.sizes(0)
    if not call.given("value"):
        return torch.zeros(sizes)
    held = call.array("value")
    return torch.full(sizes, held.reshape(-1)[0].item(), dtype=torch_type(call.attribute("value").data_type))


@operator("Range", since=11)
def range_(call: Call) -> Tensor:
    """Numbers at equal distances."""
    start, limit, delta = (call.number(index, 0) for index in range(3))
    dtype = call.value(0).dtype
    if dtype.is_floating_point:
        count = max(math.ceil((limit - start) / delta), 0)
        return torch.arange(count).to(dtype) * delta + start
    return torch.arange(start, limit, delta, dtype=dtype)


@operator("EyeLike", since=9)
def eye_like(call: Call) -> Tensor:
    """Ones on a diagonal."""
    value = call.tensor(0)
    dtype = call.dtype("dtype", value.dtype)
    rows, columns = value.shape
    at = torch.arange(columns).unsqueeze(0) - torch.arange(rows).unsqueeze(1)
    return (at == call.integer("k")).to(dtype)


@operator("Trilu", since=14)
def trilu(call: Call) -> Tensor:
    """One side of a diagonal, with zeros on the other."""
    k = int(call.number(1, 0))
    function = torch.triu if call.integer("upper", 1) else torch.tril
    return unsigned.computed(lambda value: function(value, k), call.tensor(0))


@operator("DepthToSpace")
def depth_to_space(call: Call) -> Tensor:
    """Channels become places."""
    value, b = call.tensor(0), call.integer("blocksize")
    n, c, h, w = value.shape
    if call.text("mode", "DCR") == "CRD":
        return torch.pixel_shuffle(value, b)
    return value.reshape(n, b, b, c // (b * b), h, w).permute(0, 3, 4, 1, 5, 2).reshape(n, c // (b * b), h * b, w * b)


@operator("SpaceToDepth")
def space_to_depth(call: Call) -> Tensor:
    """Places become channels."""
    value, b = call.tensor(0), call.integer("blocksize")
    n, c, h, w = value.shape
    if call.text("mode", "DCR") == "CRD":
        return torch.pixel_unshuffle(value, b)
    return value.reshape(n, c, h // b, b, w // b, b).permute(0, 3, 5, 1, 2, 4).reshape(n, c * b * b, h // b, w // b)


@operator("CenterCropPad", since=18)
def center_crop_pad(call: Call) -> Tensor:
    """To sizes, cut or filled with zeros alike on both sides."""
    value, sizes = call.tensor(0), call.sizes(1)
    axes = call.integers("axes")
    for axis, wanted in zip(axes if axes is not None else range(value.dim()), sizes, strict=True):
        axis %= value.dim()
        own = value.shape[axis]
        if own >= wanted:
            value = value.narrow(axis, (own - wanted) // 2, wanted)
        else:
            before = (wanted - own) // 2
            value = padded(value, axis, before, wanted - own - before)
    return value


def padded(value: Tensor, axis: int, before: int, after: int) -> Tensor:
    """With zeros around along one axis."""
    pads = [0, 0] * (value.dim() - 1 - axis) + [before, after]
    return torch.nn.functional.pad(value, pads)


@operator("Pad")
def pad(call: Call) -> Tensor:
    """With numbers, or with what stands near, around."""
    value = call.tensor(0)
    pads = call.sizes(1) if call.has(1) else call.integers("pads")
    assert pads is not None
    axes = [int(axis) % value.dim() for axis in call.sizes(3)] if call.has(3) else list(range(value.dim()))
    amounts = {axis: (pads[k], pads[k + len(axes)]) for k, axis in enumerate(axes)}
    for axis, (before, after) in amounts.items():  # negative ones cut
        cut = (max(-before, 0) if isinstance(before, int) else 0, max(-after, 0) if isinstance(after, int) else 0)
        if any(cut):
            value = value.narrow(axis, cut[0], value.shape[axis] - cut[0] - cut[1])
    amounts = {
        axis: (
            max(before, 0) if isinstance(before, int) else before,
            max(after, 0) if isinstance(after, int) else after,
        )
        for axis, (before, after) in amounts.items()
    }
    mode = call.text("mode", "constant")
    if mode == "constant":
        number = call.number(2, 0) if call.has(2) else call.real("value")
        flat: list[Any] = []
        for axis in reversed(range(value.dim())):
            flat += amounts.get(axis, (0, 0))
        number = bool(number) if value.dtype is torch.bool else number
        return (
            unsigned.computed(lambda v: torch.nn.functional.pad(v, flat, value=number), value) if any(flat) else value
        )
    for axis, (before, after) in amounts.items():
        length = value.shape[axis]
        at = torch.arange(-before, length + after)
        if mode == "edge":
            at = at.clamp(0, length - 1)
        elif mode == "wrap":
            at = at % length
        elif mode == "reflect":
            period = max(2 * (length - 1), 1)
            at = at % period
            at = torch.where(at >= length, period - at, at)
        else:
            raise Refused(f"its mode {mode!r} is not known")
        value = value.index_select(axis, at)
    return value


@operator("Transpose", domain=MICROSOFT, since=1)
def contributed_transpose(call: Call) -> Tensor:
    """Another order of axes."""
    return transpose(call)
