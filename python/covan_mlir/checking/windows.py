"""Operators on windows of tensors whose elements are computed when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from covan_mlir.checking.field import PAIR, Exact, dot, extreme, lifted, total
from covan_mlir.checking.tensors import Tensor, spend
from covan_mlir.fred.scalars import Array

Given = Mapping[str, Any]
"""Arguments by name; tensors among them are `Tensor`s."""


def convolution(given: Given, name: str) -> Callable[[Array], Array] | None:
    """The elements of a convolution at positions, from windows of its operand; None: it is of another kind.

    Args:
        name: of the operator, for messages.
    """
    source, weight, bias = given["input"], given["weight"], given.get("bias")
    if len(source.shape) != len(weight.shape) or source.dtype.kind not in "fV":
        return None
    dims, turned = len(weight.shape) - 2, bool(given.get("transposed"))
    strides, padding, dilation, added = (
        [*map(int, given[name])] * (dims if len(given[name]) == 1 else 1)
        for name in ("stride", "padding", "dilation", "output_padding")
    )
    groups, kernel = int(given["groups"]), weight.shape[2:]
    per_group = source.shape[1] // groups
    own = weight.shape[1] if turned else weight.shape[0] // groups
    window = np.indices((per_group, *kernel)).reshape(dims + 1, -1)
    reach = [step * (size - 1) for step, size in zip(dilation, kernel, strict=True)]
    if turned:
        spaces = [
            (size - 1) * stride - 2 * pad + far + more + 1
            for size, stride, pad, far, more in zip(source.shape[2:], strides, padding, reach, added, strict=True)
        ]
    else:
        spaces = [
            (size + 2 * pad - far - 1) // stride + 1
            for size, stride, pad, far in zip(source.shape[2:], strides, padding, reach, strict=True)
        ]

    def filters(channels: Array) -> Array:
        """The factors of some channels of the result, one row for each."""
        group, number = np.divmod(channels[:, None], own)
        if turned:
            place = np.ravel_multi_index(window[1:], kernel)
            at = ((group * per_group + window[0]) * own + number) * prod(kernel) + place
        else:
            at = channels[:, None] * window.shape[1] + np.arange(window.shape[1])
        factors: Array = weight.at(at)
        return factors

    def at(flat: Array) -> Array:
        image, channel, *place = np.unravel_index(flat, (source.shape[0], groups * own, *spaces))
        index = [image[:, None], (channel // own)[:, None] * per_group + window[0]]
        inside: Any = np.True_
        for k in range(dims):
            if turned:  # elements of the result lie between those of the operand
                where = place[k][:, None] + padding[k] - window[k + 1] * dilation[k]
                inside = inside & (where % strides[k] == 0)
                where = where // strides[k]
            else:
                where = place[k][:, None] * strides[k] - padding[k] + window[k + 1] * dilation[k]
            inside = inside & (where >= 0) & (where < source.shape[k + 2])
            index.append(where)
        taken = source.at_index([np.broadcast_to(one, inside.shape) for one in index])
        spend(inside.size, name)
        kernels, whose = np.unique(channel, return_inverse=True)
        factors = filters(kernels)[whose]
        taken = np.where(inside, taken, np.zeros(1, taken.dtype))
        if taken.dtype == PAIR:
            total = dot(taken, factors)
            return total if bias is None else (Exact.of(total) + bias.at(channel)).pairs
        total = (taken * factors).sum(1)
        return np.asarray(total if bias is None else total + bias.at(channel))

    return at


def pool(word: str, given: Given, sizes: Sequence[int]) -> Callable[[Array], Array] | None:
    """The pairs that a pooling gives at positions, from windows of its operand; None: it is of another kind.

    Args:
        sizes: of the result.
    """
    source: Tensor = given["self"]
    if given.get("ceil_mode") or given.get("divisor_override") or not given.get("count_include_pad", True):
        return None
    kernel, strides, padding, dilation = (
        [*map(int, values)] * (1 if len(values) == 2 else 2)
        for values in (
            given["kernel_size"],
            given.get("stride") or given["kernel_size"],
            given.get("padding") or [0],
            given.get("dilation") or [1],
        )
    )
    window = np.indices(kernel).reshape(2, -1)

    def at(flat: Array) -> Array:
        *outer, row, column = (place[:, None] for place in np.unravel_index(flat, tuple(sizes)))
        places = [one * strides[k] - padding[k] + window[k] * dilation[k] for k, one in enumerate((row, column))]
        inside = np.all([(p >= 0) & (p < size) for p, size in zip(places, source.shape[-2:], strict=True)], axis=0)
        index = [*(np.broadcast_to(one, inside.shape) for one in outer), *places]
        outside = lifted(np.array([-np.inf if word.startswith("max") else 0.0]))
        taken = Exact.of(np.where(inside, source.at_index(index), outside))
        if word.startswith("max"):
            return extreme(taken, 1, largest=True).pairs
        return (total(taken, 1) / window.shape[1]).pairs

    return at
