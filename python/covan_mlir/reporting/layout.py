"""A layered layout of a directed graph, after Sugiyama, Tagawa and Toda (1981).

Nodes go to layers so that edges point downwards, neighbours in a layer are ordered by the barycentres of what they are
joined to, and places along a layer are least squares under a minimum distance. Edges over several layers get a lane of
their own, one per value, so that a residual connection runs beside what it skips. All steps are linear in nodes and
edges but for sorting: the width of a layer and the number of lanes are bounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_SWEEPS = 4
_LONGEST_LANE = 32  # layers; longer edges are drawn as one curve
_LANES_PER_NODE = 2
_NARROWEST = 8  # nodes that a layer may always have
_NODE, _LANE = 1.0, 0.25  # distances between centres, in widths of a node


@dataclass(frozen=True)
class GraphLayout:
    """Where nodes are.

    Attributes:
        x: of each node, its centre, in widths of a node; the leftmost is at 0.
        layer: of each node, from 0.
        lanes: of each node, where its edges pass the layers below its own; may end before the last of its readers,
            whose edges then are curves.
    """

    x: tuple[float, ...]
    layer: tuple[int, ...]
    lanes: tuple[tuple[float, ...], ...]


def layered(inputs: Sequence[Iterable[int]]) -> GraphLayout:
    """The layout of a graph.

    Args:
        inputs: of each node, the nodes whose edges point to it. Edges that close a cycle bound no layer.
    """
    before = [sorted({i for i in sources if i != node}) for node, sources in enumerate(inputs)]
    layer = _layers(before)
    depth = max(layer, default=-1) + 1
    lanes = _lanes(before, layer)
    # Of nodes, then of lanes' points, which are numbered after them.
    layers: list[list[int]] = [[] for _ in range(depth)]
    points: list[range] = []
    size = len(before)
    for node in range(size):
        layers[layer[node]].append(node)
    for node, length in enumerate(lanes):
        points.append(range(size, size + length))
        for step in range(length):
            layers[layer[node] + 1 + step].append(size + step)
        size += length
    above: list[list[int]] = [[] for _ in range(size)]
    below: list[list[int]] = [[] for _ in range(size)]

    def join(upper: int, lower: int) -> None:
        above[lower].append(upper)
        below[upper].append(lower)

    for node, lane in enumerate(points):
        for upper, lower in zip((node, *lane), lane, strict=False):
            join(upper, lower)
    for node, sources in enumerate(before):
        for source in sources:
            span = layer[node] - layer[source]
            if 1 <= span <= len(points[source]) + 1:
                join(points[source][span - 2] if span > 1 else source, node)
    _order(layers, above, below)
    x = _places(layers, above, below, len(before))
    left = min(x, default=0.0)
    x = [round(value - left, 3) for value in x]
    return GraphLayout(
        tuple(x[: len(before)]), tuple(layer), tuple(tuple(x[lane.start : lane.stop]) for lane in points)
    )


def _layers(before: Sequence[Sequence[int]]) -> list[int]:
    """A layer per node below those of its inputs, none of them wider than some roots of the number of nodes."""
    widest = max(_NARROWEST, math.isqrt(2 * len(before)))
    layer = [0] * len(before)
    filled = [0] * (len(before) + 1)
    free = list(range(len(before) + 1))  # for a full layer, one below it that may have room

    def first_free(start: int) -> int:
        root = start
        while free[root] != root:
            root = free[root]
        while free[start] != root:
            free[start], start = root, free[start]
        return root

    done = [False] * len(before)
    for node in _topological(before):
        least = max((layer[i] + 1 for i in before[node] if done[i]), default=0)
        layer[node] = at = first_free(least)
        done[node] = True
        filled[at] += 1
        if filled[at] == widest:
            free[at] = at + 1
    # What reads nothing stands right above its first reader.
    first = [len(before)] * len(before)
    for node, sources in enumerate(before):
        for i in sources:
            first[i] = min(first[i], layer[node])
    for node, sources in enumerate(before):
        at = first[node] - 1
        if not sources and layer[node] < at < len(before) and filled[at] < widest:
            layer[node] = at
            filled[at] += 1
    used = {value: index for index, value in enumerate(sorted(set(layer)))}
    return [used[value] for value in layer]


def _topological(before: Sequence[Sequence[int]]) -> list[int]:
    """Every node after those that it reads, in their own order as far as that goes; cycles are cut where met."""
    order: list[int] = []
    state = [0] * len(before)  # 1: being looked at, 2: done
    for start in range(len(before)):
        stack = [start]
        while stack:
            node = stack[-1]
            if state[node] == 0:
                state[node] = 1
                stack.extend(i for i in reversed(before[node]) if state[i] == 0)
                continue
            stack.pop()
            if state[node] == 1:
                state[node] = 2
                order.append(node)
    return order


def _lanes(before: Sequence[Sequence[int]], layer: Sequence[int]) -> list[int]:
    """How many layers the lane of each node passes: to its farthest reader that is near enough, short ones first."""
    longest = [0] * len(before)
    for node, sources in enumerate(before):
        for source in sources:
            passed = layer[node] - layer[source] - 1
            if longest[source] < passed <= _LONGEST_LANE:
                longest[source] = passed
    budget = _LANES_PER_NODE * len(before)
    for source in sorted(range(len(before)), key=longest.__getitem__):
        if longest[source] > budget:
            longest[source] = 0
        budget -= longest[source]
    return longest


def _order(layers: list[list[int]], above: list[list[int]], below: list[list[int]]) -> None:
    """Order each layer by the barycentres of the one above, then of the one below, some times."""
    place = [0] * len(above)

    def put(layer: list[int]) -> None:
        for index, node in enumerate(layer):
            place[node] = index

    for layer in layers:
        put(layer)
    for sweep in range(2 * _SWEEPS):
        joined = below if sweep % 2 else above
        for layer in reversed(layers) if sweep % 2 else layers:
            centre = {n: sum(place[i] for i in joined[n]) / len(joined[n]) if joined[n] else place[n] for n in layer}
            layer.sort(key=lambda node: (centre[node], place[node]))
            put(layer)


def _places(layers: list[list[int]], above: list[list[int]], below: list[list[int]], nodes: int) -> list[float]:
    """Places along each layer: as near to the neighbours' as minimum distances let them."""
    x = [0.0] * len(above)
    for layer in layers:
        for index, offset in enumerate(_offsets(layer, nodes)):
            x[layer[index]] = offset
        middle = (x[layer[0]] + x[layer[-1]]) / 2
        for node in layer:
            x[node] -= middle
    for sweep in range(2 * _SWEEPS + 1):
        last = sweep == 2 * _SWEEPS
        for layer in reversed(layers) if sweep % 2 else layers:
            wanted, weights = [], []
            for node in layer:
                joined = above[node] + below[node] if last else below[node] if sweep % 2 else above[node]
                ends = [i for i in joined if i < nodes]
                joined = ends or joined  # where lanes end they give way: a chain of nodes stays straight
                wanted.append(sum(x[i] for i in joined) / len(joined) if joined else x[node])
                weights.append(1.0 if not joined or node < nodes else 0.05 if ends else 4.0)
            for node, place in zip(layer, _apart(wanted, weights, _offsets(layer, nodes)), strict=True):
                x[node] = place
    return x


def _offsets(layer: Sequence[int], nodes: int) -> list[float]:
    """The narrowest places of a layer's nodes and lanes."""
    centres: list[float] = []
    at, half = 0.0, 0.0
    for node in layer:
        mine = (_NODE if node < nodes else _LANE) / 2
        at += half + mine if centres else 0.0
        centres.append(at)
        half = mine
    return centres


def _apart(wanted: Sequence[float], weights: Sequence[float], offsets: Sequence[float]) -> list[float]:
    """Weighted least squares from ``wanted``, with distances of at least those of ``offsets``.

    Less their offsets the places are an isotonic regression: adjacent violators are pooled.
    """
    blocks: list[tuple[float, float, int]] = []  # mean, weight, how many
    for want, weight, offset in zip(wanted, weights, offsets, strict=True):
        mean, total, count = want - offset, weight, 1
        while blocks and blocks[-1][0] > mean:
            other, more, many = blocks.pop()
            mean = (mean * total + other * more) / (total + more)
            total, count = total + more, count + many
        blocks.append((mean, total, count))
    means = [mean for mean, _, count in blocks for _ in range(count)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=True)]
