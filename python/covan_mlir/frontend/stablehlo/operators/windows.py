"""Reductions over windows: pooling, running sums, and any other function of two."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from covan_mlir.frontend.stablehlo.call import Call
from covan_mlir.frontend.stablehlo.operators.reductions import NEUTRAL, PAIRS, applied, combiner, over_axes
from covan_mlir.frontend.stablehlo.operators.shapes import padded
from covan_mlir.frontend.stablehlo.registry import operation
from covan_mlir.frontend.translation import unsigned
from covan_mlir.frontend.translation.refused import Refused
from covan_mlir.frontend.translation.value import Value, known_number


@dataclass(frozen=True)
class _Window:
    """For each axis: size, stride, distance of elements in the image and in the window, padding."""

    sizes: list[int]
    strides: list[int]
    spread: list[int]
    dilation: list[int]
    padding: list[tuple[int, int]]

    @staticmethod
    def of(call: Call) -> _Window:
        sizes = call.numbers("window_dimensions")
        rank = len(sizes)
        padding = call.attribute("padding") or [[0, 0]] * rank
        names = ("window_strides", "base_dilations", "window_dilations")
        strides, spread, dilation = (call.numbers(name) or [1] * rank for name in names)
        return _Window(sizes, strides, spread, dilation, [(low, high) for low, high in padding])

    @property
    def axes(self) -> list[int]:
        """Those along which there is something to do."""
        plain = (1, 1, 1, 1, (0, 0))
        rows = zip(self.sizes, self.strides, self.spread, self.dilation, self.padding, strict=True)
        return [axis for axis, row in enumerate(rows) if row != plain]


@operation("stablehlo.reduce_window")
def reduce_window(call: Call) -> tuple[Tensor, ...]:
    """Of each window, by a function of two, from a value on."""
    count, window = len(call.items) // 2, _Window.of(call)
    name = combiner(call.region())
    if count == 1 and name in PAIRS:
        return (_known(call, name, window),)
    operands = [_spread(call.value(k), call.value(count + k), window) for k in range(count)]
    rows = [_windows(operand, window) for operand in operands]
    return _folded(call, rows, call.tensors(count))


def _known(call: Call, name: str, window: _Window) -> Tensor:
    """By a function that torch knows; what is around the elements is what it begins with."""
    value, start = call.value(0), call.value(1)
    number = call.only(1)
    begins = number is not None and number == NEUTRAL[name](value.dtype)
    result = _running(name, value.tensor, window) if begins else None
    if result is None and begins:
        result = _pooled(name, value.tensor, window)
    if result is None:
        rows = _windows(_spread(value, start, window), window)
        result = over_axes(name, rows, [rows.dim() - 1])
        if result is None:
            raise Refused(f"windows are not reduced by {name}")
    return result if begins else PAIRS[name](result, start.tensor)


def _running(name: str, tensor: Tensor, window: _Window) -> Tensor | None:
    """Windows that reach from the first element to each, or from each to the last."""
    functions: dict[str, Callable[[Tensor, int], Tensor]] = {
        "add": lambda v, axis: torch.cumsum(v, axis, dtype=v.dtype),
        "multiply": lambda v, axis: torch.cumprod(v, axis, dtype=v.dtype),
        "maximum": lambda v, axis: torch.cummax(v, axis).values,
        "minimum": lambda v, axis: torch.cummin(v, axis).values,
    }
    function, axes = functions.get(name), window.axes
    if function is None or len(axes) != 1 or tensor.dtype is torch.bool or tensor.dtype in unsigned.WIDER:
        return None
    (axis,) = axes
    size = tensor.shape[axis]
    if window.sizes[axis] != size or (window.strides[axis], window.spread[axis], window.dilation[axis]) != (1, 1, 1):
        return None
    if window.padding[axis] == (size - 1, 0):
        return function(tensor, axis)
    if window.padding[axis] == (0, size - 1):
        return function(tensor.flip([axis]), axis).flip([axis])
    return None


def _pooled(name: str, tensor: Tensor, window: _Window) -> Tensor | None:
    """By torch's pooling, of up to three axes."""
    axes = window.axes
    if name not in ("add", "maximum", "minimum") or not tensor.is_floating_point() or not 1 <= len(axes) <= 3:
        return None
    if any(window.spread[axis] > 1 for axis in axes) or (name == "add" and any(window.dilation[a] > 1 for a in axes)):
        return None
    if name == "minimum":
        pooled = _pooled("maximum", -tensor, window)
        return None if pooled is None else -pooled
    rest = [axis for axis in range(tensor.dim()) if axis not in axes]
    order = [*rest, *axes]
    image = tensor.permute(order)
    outer = image.shape[: len(rest)]
    image = (
        image.reshape([1] * (2 - len(rest)) + list(image.shape))
        if len(rest) <= 2
        else image.reshape([1, math.prod(outer), *image.shape[len(rest) :]])
    )
    sizes, strides, dilation = ([row[axis] for axis in axes] for row in (window.sizes, window.strides, window.dilation))
    amounts = [window.padding[axis] for axis in axes]
    if len(axes) == 1:  # an axis of one element beside it
        image = image.unsqueeze(-2)
        sizes, strides, dilation, amounts = [1, *sizes], [1, *strides], [1, *dilation], [(0, 0), *amounts]
    around = [low for low, _ in amounts]
    fits = all(low == high and 0 <= low <= size // 2 for (low, high), size in zip(amounts, sizes, strict=True))
    if not fits:
        filler = -math.inf if name == "maximum" else 0.0
        flat = [amount for pair in amounts[::-1] for amount in pair]
        image, around = torch.nn.functional.pad(image, flat, value=filler), [0] * len(sizes)
    if name == "maximum":
        pool = torch.nn.functional.max_pool2d if len(sizes) == 2 else torch.nn.functional.max_pool3d
        result = pool(image, sizes, strides, around, dilation)
    else:
        mean = torch.nn.functional.avg_pool2d if len(sizes) == 2 else torch.nn.functional.avg_pool3d
        result = mean(image, sizes, strides, around, divisor_override=1)
    result = result.squeeze(-2) if len(axes) == 1 else result
    result = result.reshape([*outer, *result.shape[2:]])
    return result.permute([order.index(axis) for axis in range(len(order))])


def _spread(value: Value, filler: Value, window: _Window) -> Tensor:
    low, high = ([pair[side] for pair in window.padding] for side in (0, 1))
    if not any((*low, *high)) and all(step == 1 for step in window.spread):
        return value.tensor
    return padded(value, filler, low, high, [step - 1 for step in window.spread])


def _windows(tensor: Tensor, window: _Window) -> Tensor:
    """Windows of a tensor that has its padding: one more axis, of the elements of each."""
    rank = tensor.dim()
    for axis in range(rank):
        size, stride, dilation = window.sizes[axis], window.strides[axis], window.dilation[axis]
        count = max((tensor.shape[axis] - dilation * (size - 1) - 1) // stride + 1, 0)
        places = torch.arange(count).reshape(-1, 1) * stride + torch.arange(size) * dilation
        rows = tensor.index_select(axis, places.reshape(-1))
        rows = rows.reshape([*tensor.shape[:axis], count, size, *tensor.shape[axis + 1 :]])
        tensor = rows.movedim(axis + 1, -1)
    return tensor.reshape([*tensor.shape[:rank], math.prod(window.sizes)])


def _folded(call: Call, rows: Sequence[Tensor], start: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Elements of windows one after the other, as functions that are no one operation need."""
    values = [begin.expand(row.shape[:-1]) for begin, row in zip(start, rows, strict=True)]
    for index in range(rows[0].shape[-1]):
        values = applied(call.run, call.region(), [*values, *(row[..., index] for row in rows)])
    return tuple(values)


@operation("stablehlo.select_and_scatter")
def select_and_scatter(call: Call) -> Tensor:
    """What the gradient of pooling is: each number goes to that element of its window that a comparison chose."""
    operand, source, start = call.tensor(0), call.tensor(1), call.value(2)
    window = _Window.of(call)
    chosen = [
        op.attributes.get("comparison_direction") for op in call.region(0).operations if op.name == "stablehlo.compare"
    ]
    if len(call.region(0).operations) != 1 or chosen[0] not in ("GE", "GT") or combiner(call.region(1)) != "add":
        raise Refused("windows are chosen from, or added up, in another way than those of a largest element")
    if call.only(2) != 0:
        raise Refused("it begins with another number than zero")
    sizes = torch.arange(math.prod(operand.shape)).reshape(operand.shape)
    far = known_number(-1, torch.int64)
    places = _windows(_spread(Value(torch.int64, lambda: sizes), far, window), window)
    least = known_number(-math.inf if operand.is_floating_point() else torch.iinfo(operand.dtype).min, operand.dtype)
    rows = _windows(_spread(call.value(0), least, window), window)
    best = rows.argmax(-1, keepdim=True)
    at = places.gather(-1, best).reshape(-1)
    flat = torch.zeros(math.prod(operand.shape), dtype=source.dtype).index_add(0, at, source.reshape(-1))
    assert start.dtype is source.dtype
    return flat.reshape(operand.shape)
