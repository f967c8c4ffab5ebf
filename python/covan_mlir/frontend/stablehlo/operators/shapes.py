"""Operations on shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from covan_mlir.frontend.stablehlo.call import Call, known_tensor, uniform
from covan_mlir.frontend.stablehlo.registry import operation, table
from covan_mlir.frontend.translation import unsigned
from covan_mlir.frontend.translation.refused import Refused
from covan_mlir.frontend.translation.value import Value, known_number, of_sizes, open_sizes

table(
    [
        ("stablehlo.transpose", lambda call: call.tensor(0).permute(call.numbers("permutation"))),
        ("stablehlo.reverse", lambda call: call.tensor(0).flip(call.numbers("dimensions"))),
        ("stablehlo.concatenate", lambda call: torch.cat(call.tensors(), call.attribute("dimension"))),
        ("stablehlo.reshape", lambda call: call.tensor(0).reshape(call.shape())),
        ("stablehlo.dynamic_reshape", lambda call: call.tensor(0).reshape(call.sizes(1))),
        ("stablehlo.broadcast_in_dim", lambda call: _broadcast(call, call.shape())),
        ("stablehlo.dynamic_broadcast_in_dim", lambda call: _broadcast(call, call.sizes(1))),
        ("stablehlo.iota", lambda call: _counted(call, call.shape())),
        ("stablehlo.dynamic_iota", lambda call: _counted(call, call.sizes(0))),
        ("stablehlo.custom_call @Sharding", lambda call: tuple(call.items)),
        ("stablehlo.custom_call @annotate_device_placement", lambda call: tuple(call.items)),
        ("stablehlo.custom_call @shape_assertion", lambda call: ()),
        ("sdy.sharding_constraint", lambda call: tuple(call.items)),
    ]
)


def _broadcast(call: Call, sizes: Sequence[Any]) -> Any:
    value, dims = call.value(0), call.numbers("broadcast_dimensions")
    if uniform(value) is not None and all(isinstance(size, int) for size in sizes):
        assert value.known is not None
        with _disable_current_modes():
            wide = value.known[(0,) * value.known.dim()].expand(list(sizes))
        return known_tensor(wide)
    tensor = value.tensor
    if sorted(dims) != dims:
        order = sorted(range(len(dims)), key=dims.__getitem__)
        tensor, dims = tensor.permute(order), sorted(dims)
    own: list[Any] = [1] * len(sizes)
    for axis, place in enumerate(dims):
        own[place] = tensor.shape[axis]
    return tensor.reshape(own).expand(list(sizes))


def _counted(call: Call, sizes: Sequence[Any]) -> Tensor:
    """Numbers along an axis."""
    axis, dtype = call.attribute("iota_dimension"), call.dtype()
    row = unsigned.converted(torch.arange(sizes[axis]), dtype)
    return row.reshape([1] * axis + [sizes[axis]] + [1] * (len(sizes) - axis - 1)).expand(list(sizes))


@operation("stablehlo.get_dimension_size")
def dimension_size(call: Call) -> Value:
    """The size of an axis."""
    size = call.tensor(0).shape[call.attribute("dimension")]
    row = of_sizes([size], call.dtype())
    return open_sizes(row.objects().reshape(()), call.dtype())


@operation("stablehlo.pad")
def pad(call: Call) -> Tensor:
    """A value around, and between, the elements; less than none cuts off."""
    low, high, inside = (
        call.numbers(f"{name}") for name in ("edge_padding_low", "edge_padding_high", "interior_padding")
    )
    return padded(call.value(0), call.value(1), low, high, inside)


@operation("stablehlo.dynamic_pad")
def dynamic_pad(call: Call) -> Tensor:
    """By numbers that are operands."""
    return padded(call.value(0), call.value(1), *(call.sizes(index) for index in (2, 3, 4)))


def padded(value: Value, filler: Value, low: Sequence[Any], high: Sequence[Any], inside: Sequence[Any]) -> Tensor:
    """A tensor with a number around and between its elements."""
    number = uniform(filler)
    tensor, dtype = value.tensor, value.dtype
    if number is None:
        ones = padded(
            Value(torch.bool, lambda: torch.ones_like(tensor, dtype=torch.bool)),
            known_number(False, torch.bool),
            low,
            high,
            inside,
        )
        around = padded(value, known_number(0, dtype), low, high, inside)
        return unsigned.computed(lambda a, b: torch.where(ones, a, b), around, filler.tensor)
    if dtype in unsigned.WIDER:
        tensor = unsigned.signed(tensor)
        if number > torch.iinfo(tensor.dtype).max:
            number -= 2**64
    for axis, gap in enumerate(inside):
        if gap and tensor.shape[axis]:
            tensor = _spread(tensor, axis, gap, number)
    amounts = [amount for pair in zip(low, high, strict=True) for amount in pair]
    if any(amounts):
        pairs = list(zip(low, high, strict=True))[::-1]
        flat = [amount for pair in pairs for amount in pair]
        tensor = torch.nn.functional.pad(tensor, flat, value=number)
    return unsigned.unsigned(tensor, dtype) if dtype in unsigned.WIDER else tensor


def _spread(tensor: Tensor, axis: int, gap: int, number: Any) -> Tensor:
    """With so many numbers between two elements that are neighbours along an axis."""
    size = tensor.shape[axis]
    apart = tensor.unsqueeze(axis + 1)
    behind = [0, 0] * (apart.dim() - axis - 2) + [0, gap]
    wide = torch.nn.functional.pad(apart, behind, value=number)
    shape = [*tensor.shape[:axis], size * (gap + 1), *tensor.shape[axis + 1 :]]
    return wide.reshape(shape).narrow(axis, 0, size * (gap + 1) - gap)


@operation("stablehlo.set_dimension_size")
def set_dimension_size(call: Call) -> Any:
    """Only to what the size is."""
    sizes = call.sizes(1)
    if sizes[0] != call.tensor(0).shape[call.attribute("dimension")]:
        raise Refused("sizes below that of the memory are of no tensor here")
    return call.items[0]
