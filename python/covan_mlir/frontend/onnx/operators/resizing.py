"""Resizing and sampling of images."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from covan_mlir.frontend.onnx.call import Call
from covan_mlir.frontend.onnx.registry import operator
from covan_mlir.frontend.translation.refused import Refused

_NEAREST = {
    "round_prefer_floor": lambda x: torch.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: torch.floor(x + 0.5),
    "floor": torch.floor,
    "ceil": torch.ceil,
}


@operator("Upsample", until=9)
def upsample(call: Call) -> Tensor:
    """By scales, which are an attribute before opset 9."""
    value = call.tensor(0)
    scales = [float(s) for s in call.sizes(1)] if call.has(1) else call.reals("scales") or []
    sizes = [math.floor(n * s) for n, s in zip(value.shape, scales, strict=True)]
    linear = call.text("mode", "nearest") in ("linear", "bilinear")
    for axis in range(value.dim()):
        if sizes[axis] != value.shape[axis]:
            at = torch.arange(sizes[axis], dtype=torch.float64) / scales[axis]
            if linear:
                value = _weighted(value, axis, at, "linear", 0.0, False)
            else:
                value = value.index_select(axis, torch.floor(at).to(torch.int64))
    return value


@operator("Resize", since=10)
def resize(call: Call) -> Tensor:
    """To sizes, or by scales, along some axes."""
    value = call.tensor(0)
    rank = value.dim()
    if call.opset < 11:
        axes, roi = list(range(rank)), None
        scales: list[Any] | None = [float(s) for s in call.sizes(1)]
        wanted: list[Any] | None = None
        transform = "asymmetric"
    else:
        axes = [a % rank for a in call.integers("axes") or range(rank)]
        transform = call.text("coordinate_transformation_mode", "half_pixel")
        roi = call.sizes(1) if transform == "tf_crop_and_resize" else None
        scales = [float(s) for s in call.sizes(2)] if call.has(2) and call.value(2).tensor.numel() else None
        wanted = call.sizes(3) if call.has(3) and call.value(3).tensor.numel() else None
    mode = call.text("mode", "nearest")
    if wanted is not None:
        scales = [n / value.shape[axis] for n, axis in zip(wanted, axes, strict=True)]
        policy = call.text("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            scale = min(scales) if policy == "not_larger" else max(scales)
            scales = [scale] * len(scales)
            wanted = [math.floor(scale * value.shape[axis] + 0.5) for axis in axes]
    elif scales is not None:
        wanted = [math.floor(value.shape[axis] * s) for axis, s in zip(axes, scales, strict=True)]
    else:
        raise Refused("neither sizes nor scales are given")
    if (same := _torch_resize(call, value, axes, wanted, scales, mode, transform)) is not None:
        return same
    outside: Tensor | None = None
    for k, axis in enumerate(axes):
        length, size, scale = value.shape[axis], wanted[k], scales[k]
        if size == length and scale == 1.0 and roi is None:
            continue
        bounds = None if roi is None else (float(roi[k]), float(roi[len(axes) + k]))
        at = _coordinates(transform, length, size, scale, bounds)
        if bounds is not None:
            out = ((at < 0) | (at > length - 1)).reshape([-1 if a == axis else 1 for a in range(rank)])
            outside = out if outside is None else outside | out
        if mode == "nearest":
            rounded = _NEAREST[call.text("nearest_mode", "round_prefer_floor") if call.opset >= 11 else "floor"](at)
            value = value.index_select(axis, rounded.clamp(0, length - 1).to(torch.int64))
        else:
            stretch = 1.0 / scale if call.integer("antialias") and scale < 1.0 else 1.0
            excluded = bool(call.integer("exclude_outside"))
            value = _weighted(value, axis, at, mode, call.real("cubic_coeff_a", -0.75), excluded, stretch)
    if outside is not None:
        filler = call.real("extrapolation_value")
        value = torch.where(outside, torch.full((), filler, dtype=value.dtype), value)
    return value


def _torch_resize(
    call: Call, value: Tensor, axes: list[int], wanted: list[Any], scales: list[Any], mode: str, transform: str
) -> Tensor | None:
    """torch's own operator, where it does the same: images, whole factors or sizes that are scaled exactly."""
    if value.dim() != 4 or not value.dtype.is_floating_point or call.integer("antialias"):
        return None
    by_axis = dict(zip(axes, zip(wanted, scales, strict=True), strict=True))
    if any(by_axis.get(a, (value.shape[a], 1.0))[0] != value.shape[a] for a in (0, 1)):
        return None
    pairs = [by_axis.get(a, (value.shape[a], 1.0)) for a in (2, 3)]
    size = [pair[0] for pair in pairs]
    if not all(isinstance(n, int) for n in size):
        return None
    exact = all(isinstance(s, float) and n == value.shape[2 + k] * s for k, (n, s) in enumerate(pairs))
    if mode == "nearest":
        whole = exact and all(float(s).is_integer() for _, s in pairs)
        kind = call.text("nearest_mode", "round_prefer_floor")
        same = whole and (
            (transform == "asymmetric" and (kind == "floor" or call.opset < 11))
            or (transform in ("half_pixel", "pytorch_half_pixel") and kind == "round_prefer_floor")
        )
        return F.interpolate(value, size=size, mode="nearest") if same else None
    if mode == "linear" and exact and min(size) > 1:
        if transform in ("half_pixel", "pytorch_half_pixel"):
            return F.interpolate(value, size=size, mode="bilinear", align_corners=False)
        if transform == "align_corners":
            return F.interpolate(value, size=size, mode="bilinear", align_corners=True)
    return None


def _coordinates(transform: str, length: Any, size: Any, scale: Any, bounds: tuple[float, float] | None) -> Tensor:
    """Where each element of a resized axis is read, in elements of the axis as it was."""
    x = torch.arange(size).to(torch.float64)
    if transform == "half_pixel":
        return (x + 0.5) / scale - 0.5
    if transform == "half_pixel_symmetric":
        adjustment = size / (length * scale)
        center = length / 2
        offset = center * (1 - adjustment)
        return offset + (x + 0.5) / scale - 0.5
    if transform == "pytorch_half_pixel":
        return (x + 0.5) / scale - 0.5 if size > 1 else torch.zeros_like(x)
    if transform == "align_corners":
        resized = length * scale  # by scales it need not be whole
        return x * ((length - 1) / (resized - 1)) if size > 1 else torch.zeros_like(x)
    if transform == "asymmetric":
        return x / scale
    if transform == "tf_half_pixel_for_nn":
        return (x + 0.5) / scale
    if transform == "tf_crop_and_resize":
        assert bounds is not None
        start, end = bounds
        if size > 1:
            return start * (length - 1) + x * ((end - start) * (length - 1) / (size - 1))
        return 0.5 * (start + end) * (length - 1) + torch.zeros_like(x)
    raise Refused(f"its coordinate transformation {transform!r} is not known")


def _weighted(
    value: Tensor, axis: int, at: Tensor, mode: str, a: float, excluded: bool, stretch: float = 1.0
) -> Tensor:
    """Weighted sums of neighbours along an axis: a product with a matrix of weights."""
    length = value.shape[axis]
    reach = 1.0 if mode == "linear" else 2.0
    taps = math.ceil(2 * reach * stretch) + (1 if stretch != 1.0 else 0)
    first = torch.floor(at - reach * stretch) + 1 if stretch != 1.0 else torch.floor(at) - (reach - 1)
    places = first.unsqueeze(1) + torch.arange(taps).to(torch.float64).unsqueeze(0)
    distance = (places - at.unsqueeze(1)).abs() / stretch
    if mode == "linear":
        weights = torch.clamp(1.0 - distance, min=0.0)
    elif mode == "cubic":
        near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
        far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
        weights = torch.where(distance <= 1, near, torch.where(distance < 2, far, torch.zeros_like(distance)))
    else:
        raise Refused(f"its mode {mode!r} is not known")
    if excluded:
        weights = torch.where((places < 0) | (places > length - 1), torch.zeros_like(weights), weights)
    if excluded or stretch != 1.0:
        weights = weights / weights.sum(1, keepdim=True)
    columns = torch.arange(length).to(torch.float64)
    hits = (places.clamp(0, length - 1).unsqueeze(2) == columns).to(torch.float64)
    matrix = (weights.unsqueeze(2) * hits).sum(1)
    kind = value.dtype if value.dtype in (torch.float32, torch.float64) else torch.float32
    moved = value.to(kind).movedim(axis, -1)
    result = torch.matmul(moved, matrix.to(kind).T).movedim(-1, axis)
    if not value.dtype.is_floating_point:
        limits = torch.iinfo(value.dtype)
        result = torch.clamp(torch.round(result), limits.min, limits.max)
    return result.to(value.dtype)


@operator("GridSample", since=16)
def grid_sample(call: Call) -> Tensor:
    """An image, read where a grid says."""
    mode = call.text("mode", "linear")
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    value = call.tensor(0)
    return F.grid_sample(
        value,
        call.tensor(1),
        mode=mode,
        padding_mode=call.text("padding_mode", "zeros"),
        align_corners=bool(call.integer("align_corners")),
    )


@operator("RoiAlign", since=10)
def roi_align(call: Call) -> Tensor:
    """Means, or maxima, of samples in the cells of regions of images."""
    value, rois, batch = call.tensor(0), call.tensor(1), call.tensor(2).to(torch.int64)
    default = "half_pixel" if call.opset >= 16 else "output_half_pixel"
    offset = 0.5 if call.text("coordinate_transformation_mode", default) == "half_pixel" else 0.0
    rows, columns = call.integer("output_height", 1), call.integer("output_width", 1)
    ratio = call.integer("sampling_ratio")
    corners = rois * call.real("spatial_scale", 1.0) - offset
    x1, y1, x2, y2 = corners.unbind(1)
    width, height = x2 - x1, y2 - y1
    if not offset:
        width, height = width.clamp(min=1.0), height.clamp(min=1.0)
    if ratio <= 0:
        raise Refused("the number of samples of each cell depends on values: its sampling_ratio is 0")
    at_y = _samples(y1, height / rows, rows, ratio)
    at_x = _samples(x1, width / columns, columns, ratio)
    planes = value[batch]  # [regions, channels, H, W]
    low_y, high_y, part_y, in_y = _neighbours(at_y, value.shape[2])
    low_x, high_x, part_x, in_x = _neighbours(at_x, value.shape[3])
    region = torch.arange(rois.shape[0]).reshape(-1, 1, 1, 1)
    channel = torch.arange(value.shape[1]).reshape(1, -1, 1, 1)

    def read(y: Tensor, x: Tensor) -> Tensor:
        return planes[region, channel, y[:, None, :, None], x[:, None, None, :]]

    py, px = part_y[:, None, :, None], part_x[:, None, None, :]
    inside = (in_y[:, None, :, None] & in_x[:, None, None, :]).to(value.dtype)
    terms = [
        (1 - py) * (1 - px) * read(low_y, low_x),
        (1 - py) * px * read(low_y, high_x),
        py * (1 - px) * read(high_y, low_x),
        py * px * read(high_y, high_x),
    ]
    if call.text("mode", "avg") == "max":
        sampled = torch.stack(terms).amax(0) * inside
        cells = sampled.reshape(*sampled.shape[:2], rows, ratio, columns, ratio)
        return cells.amax((3, 5))
    sampled = (terms[0] + terms[1] + terms[2] + terms[3]) * inside
    return sampled.reshape(*sampled.shape[:2], rows, ratio, columns, ratio).mean((3, 5))


def _samples(start: Tensor, cell: Tensor, cells: int, ratio: int) -> Tensor:
    """Where the samples of all cells of one axis are: [regions, cells * ratio]."""
    steps = (torch.arange(cells * ratio).to(start.dtype) + 0.5) / ratio
    return start.unsqueeze(1) + steps * cell.unsqueeze(1)


def _neighbours(at: Tensor, length: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    inside = (at >= -1.0) & (at <= length)
    at = at.clamp(min=0.0)
    low = torch.floor(at).to(torch.int64).clamp(max=length - 1)
    high = (low + 1).clamp(max=length - 1)
    part = torch.where(low >= length - 1, torch.zeros_like(at), at - low.to(at.dtype))
    return low, high, part, inside


@operator("DeformConv", since=19)
def deform_conv(call: Call) -> Tensor:
    """A convolution that reads where offsets say, weighted by a mask."""
    value, weight, offset = call.tensor(0), call.tensor(1), call.tensor(2)
    bias, mask = call.optional(3), call.optional(4)
    if value.dim() != 4:
        raise Refused("only images are convolved so")
    n, c, h, w = value.shape
    outputs, _, kh, kw = weight.shape
    strides = call.integers("strides") or [1, 1]
    dilations = call.integers("dilations") or [1, 1]
    pads = call.integers("pads") or [0, 0, 0, 0]
    groups, offsets = call.integer("group", 1), call.integer("offset_group", 1)
    oh, ow = offset.shape[2:]
    shifts = offset.reshape(n, offsets, kh * kw, 2, oh, ow)
    at_y = (torch.arange(kh) * dilations[0] - pads[0]).reshape(-1, 1).expand(kh, kw).reshape(-1, 1, 1)
    at_x = (torch.arange(kw) * dilations[1] - pads[1]).reshape(1, -1).expand(kh, kw).reshape(-1, 1, 1)
    y = at_y + (torch.arange(oh) * strides[0]).reshape(1, -1, 1) + shifts[:, :, :, 0]
    x = at_x + (torch.arange(ow) * strides[1]).reshape(1, 1, -1) + shifts[:, :, :, 1]
    # Read as an image of one row for each element of the kernel.
    grid = torch.stack([2 * x / (w - 1) - 1 if w > 1 else x, 2 * y / (h - 1) - 1 if h > 1 else y], -1)
    image = value.reshape(n * offsets, c // offsets, h, w)
    grid = grid.reshape(n * offsets, kh * kw * oh, ow, 2)
    read = F.grid_sample(image, grid, mode="bilinear", padding_mode="zeros", align_corners=True)
    read = read.reshape(n, offsets, c // offsets, kh * kw, oh, ow)
    if mask is not None:
        read = read * mask.reshape(n, offsets, 1, kh * kw, oh, ow)
    columns = read.reshape(n, groups, c // groups * kh * kw, oh * ow)
    matrix = weight.reshape(groups, outputs // groups, c // groups * kh * kw)
    result = torch.matmul(matrix, columns).reshape(n, outputs, oh, ow)
    return result if bias is None else result + bias.reshape(1, -1, 1, 1)
