"""Which boxes of detections are kept."""

from __future__ import annotations

import torch
from torch import Tensor

from covan_mlir.frontend.onnx.call import Call
from covan_mlir.frontend.onnx.registry import operator
from covan_mlir.frontend.rules.loops import looped


@operator("NonMaxSuppression", since=10)
def non_max_suppression(call: Call) -> Tensor:
    """The best box of each class, then the best of those that do not overlap it too much, and so on.

    A turn of the loop picks one box of each class of each image: as many turns as boxes are asked for at most, and
    fewer where all classes run out of boxes. Memory is a few values for each box and class, not for each two boxes.

    Returns:
        `[picked, 3]` numbers of image, class and box; boxes of a class in the order in which they were picked.
    """
    boxes, scores = call.tensor(0), call.tensor(1)
    images, classes, count = scores.shape
    most = call.value(2) if call.has(2) else None
    limit = count
    if most is None or most.is_known:
        asked = 0 if most is None else int(call.sizes(2)[0])
        if asked <= 0:
            return torch.zeros((0, 3), dtype=torch.int64)
        limit = min(asked, count) if isinstance(count, int) else asked
    corners = _corners(boxes, centred=bool(call.integer("center_point_box")))
    corners = corners.unsqueeze(2).expand(4, images, classes, count).reshape(4, images * classes, count)
    threshold = _number(call, 3, scores.dtype)
    # Above what boxes are counted as that are not left.
    ranks = scores.reshape(images * classes, count).clamp(min=torch.finfo(scores.dtype).min)
    left = torch.ones_like(ranks, dtype=torch.bool) if not call.has(4) else ranks > _number(call, 4, scores.dtype)
    places = torch.full((images * classes, limit), -1, dtype=torch.int64)
    turns = torch.arange(limit)
    least = torch.full((), -torch.inf, dtype=ranks.dtype)

    def unfinished(turn: Tensor, left: Tensor, _: Tensor, *__: Tensor) -> Tensor:
        return torch.logical_and(torch.lt(turn, limit), left.any().reshape(1)).reshape(())

    def onwards(turn: Tensor, left: Tensor, picked: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        corners, ranks, threshold, turns, least = given
        best = torch.where(left, ranks, least).argmax(1, keepdim=True)
        any_left = left.any(1, keepdim=True)
        chosen = corners.gather(2, best.unsqueeze(0).expand(4, -1, 1))
        here = torch.arange(left.shape[1]).unsqueeze(0) == best
        new = torch.where((turns == turn).unsqueeze(0) & any_left, best, picked)
        return turn + 1, left & ~here & ~(any_left & (_overlap(corners, chosen) > threshold)), new

    start = (torch.zeros(1, dtype=torch.int64), left, places)
    picked = looped(unfinished, onwards, start, (corners, ranks, threshold, turns, least))[2]
    if most is not None and not most.is_known:
        picked = torch.where(turns < most.tensor.reshape(1), picked, torch.full_like(picked, -1))
    image = torch.arange(images).reshape(-1, 1, 1).expand(images, classes, limit)
    kind = torch.arange(classes).reshape(1, -1, 1).expand(images, classes, limit)
    rows = torch.stack([image, kind, picked.reshape(images, classes, limit)], -1).reshape(-1, 3)
    return rows.index_select(0, (picked.reshape(-1) >= 0).nonzero().squeeze(1))


def _number(call: Call, index: int, dtype: torch.dtype) -> Tensor:
    """An operand of one element, which is zero if it is left out."""
    return call.tensor(index).reshape(1, 1) if call.has(index) else torch.zeros((1, 1), dtype=dtype)


def _corners(boxes: Tensor, *, centred: bool) -> Tensor:
    """`[images, boxes, 4]` -> `[4, images, boxes]`: the lesser and the larger number along one axis and the other."""
    first, second, third, fourth = boxes.unbind(-1)
    if centred:
        half = third / 2, fourth / 2
        return torch.stack([first - half[0], first + half[0], second - half[1], second + half[1]])
    return torch.stack(
        [
            torch.minimum(first, third),
            torch.maximum(first, third),
            torch.minimum(second, fourth),
            torch.maximum(second, fourth),
        ]
    )


def _overlap(corners: Tensor, chosen: Tensor) -> Tensor:
    """Intersection over union of one box with each of its class: `[4, rows, boxes]`, `[4, rows, 1]`; zero where one of
    the two has no area."""

    def extents(low: Tensor, high: Tensor) -> Tensor:
        return torch.clamp(high - low, min=0)

    a, b = corners.unbind(0), chosen.unbind(0)
    inside = extents(torch.maximum(a[0], b[0]), torch.minimum(a[1], b[1])) * extents(
        torch.maximum(a[2], b[2]), torch.minimum(a[3], b[3])
    )
    areas = [(box[1] - box[0]) * (box[3] - box[2]) for box in (a, b)]
    union = areas[0] + areas[1] - inside
    real = (areas[0] > 0) & (areas[1] > 0) & (inside > 0)
    return torch.where(real, inside / torch.where(real, union, torch.ones_like(union)), torch.zeros_like(inside))
