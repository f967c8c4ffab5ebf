"""Convolutions, with the axes of all three tensors in any order."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from covan_mlir.frontend.stablehlo.call import Call
from covan_mlir.frontend.stablehlo.operators.shapes import padded
from covan_mlir.frontend.stablehlo.registry import operation
from covan_mlir.frontend.translation import unsigned
from covan_mlir.frontend.translation.value import Value, known_number


@operation("stablehlo.convolution")
def convolution(call: Call) -> Tensor:
    """Strides, dilations of either operand, groups of channels or of the batch, windows forwards or backwards."""
    return _convolved(call, call.attribute("padding"))


@operation("stablehlo.dynamic_conv")
def dynamic_convolution(call: Call) -> Tensor:
    """With the padding as an operand."""
    flat = [int(size) for size in call.sizes(2)]
    return _convolved(call, [flat[k : k + 2] for k in range(0, len(flat), 2)])


def _convolved(call: Call, padding: Sequence[Sequence[int]] | None) -> Tensor:
    numbers, dtype = call.attribute("dimension_numbers"), call.dtype()
    image = unsigned.converted(call.tensor(0), dtype).permute(
        [numbers["input_batch_dimension"], numbers["input_feature_dimension"], *numbers["input_spatial_dimensions"]]
    )
    kernel = unsigned.converted(call.tensor(1), dtype).permute(
        [
            numbers["kernel_output_feature_dimension"],
            numbers["kernel_input_feature_dimension"],
            *numbers["kernel_spatial_dimensions"],
        ]
    )
    rank = image.dim() - 2
    strides = call.numbers("window_strides") or [1] * rank
    spread = call.numbers("lhs_dilation") or [1] * rank
    dilation = call.numbers("rhs_dilation") or [1] * rank
    amounts = [(low, high) for low, high in padding] if padding else [(0, 0)] * rank
    backwards = [axis for axis, back in enumerate(call.attribute("window_reversal", ())) if back]
    if backwards:
        kernel = kernel.flip([axis + 2 for axis in backwards])
    groups, batches = call.attribute("feature_group_count", 1), call.attribute("batch_group_count", 1)
    if batches > 1:  # each group of images is read by its own share of the filters
        split = image.reshape([batches, image.shape[0] // batches, *image.shape[1:]])
        image = split.transpose(0, 1).reshape([split.shape[1], -1, *image.shape[2:]])
        groups *= batches
    result = _plain(image, kernel, strides, amounts, spread, dilation, groups)
    places = [
        numbers["output_batch_dimension"],
        numbers["output_feature_dimension"],
        *numbers["output_spatial_dimensions"],
    ]
    return result.permute([places.index(axis) for axis in range(len(places))])


def _plain(
    image: Tensor,
    kernel: Tensor,
    strides: Sequence[int],
    amounts: Sequence[tuple[int, int]],
    spread: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor:
    """Of an image (batch, channels, positions) by filters (out, in of a group, positions)."""
    rank = image.dim() - 2
    if not rank:  # no positions: one of them
        return _plain(image.unsqueeze(-1), kernel.unsqueeze(-1), [1], [(0, 0)], [1], [1], groups).squeeze(-1)
    if any(step > 1 for step in spread):
        transposed = _transposed(image, kernel, strides, amounts, spread, dilation, groups)
        if transposed is not None:
            return transposed
        inside = [0, 0, *(step - 1 for step in spread)]
        filler = known_number(0, image.dtype)
        image = padded(Value(image.dtype, lambda: image), filler, [0] * (rank + 2), [0] * (rank + 2), inside)
    if any(low != high or low < 0 for low, high in amounts):
        image = torch.nn.functional.pad(image, [amount for pair in amounts[::-1] for amount in pair])
        amounts = [(0, 0)] * rank
    around = [low for low, _ in amounts]
    return torch.ops.aten.convolution(
        image, kernel, None, list(strides), around, list(dilation), False, [0] * rank, groups
    )


def _transposed(
    image: Tensor,
    kernel: Tensor,
    strides: Sequence[int],
    amounts: Sequence[tuple[int, int]],
    spread: Sequence[int],
    dilation: Sequence[int],
    groups: int,
) -> Tensor | None:
    """A convolution of elements set apart as what it is, a transposed one; None: its padding is none of such."""
    reach = [step * (size - 1) for step, size in zip(dilation, kernel.shape[2:], strict=True)]
    around = [far - low for far, (low, _) in zip(reach, amounts, strict=True)]
    behind = [high - low for low, high in amounts]
    limits = [max(pair) for pair in zip(spread, dilation, strict=True)]
    if any(step > 1 for step in strides) or min(around) < 0 or min(behind) < 0:
        return None
    if any(more >= limit for more, limit in zip(behind, limits, strict=True)):
        return None
    rank = len(reach)
    out, inner = kernel.shape[:2]
    by_input = kernel.reshape([groups, out // groups, inner, *kernel.shape[2:]]).transpose(1, 2)
    turned = by_input.reshape([groups * inner, out // groups, *kernel.shape[2:]]).flip(list(range(2, rank + 2)))
    return torch.ops.aten.convolution(image, turned, None, list(spread), around, list(dilation), True, behind, groups)
