"""Reshapes of several open dimensions, written as what they merge.

torch-mlir lowers a view by matching sizes from left to right. Of two sizes that are known at run time only it cannot
tell whether they are the same, and pairs them: ``[b, s, 32] -> [b * s, 32]``, which every matrix product with a batch
makes, becomes a cast of ``s`` to 1. torch knows these sizes as expressions. Here each view of several such sizes is cut
into groups of dimensions with equal products, and what a group merges is flattened by its own operation, which leaves
nothing to guess. Splits stay views, whose sizes are given one by one.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.fx import Graph, Node
from torch.fx.experimental.symbolic_shapes import statically_known_true

_aten = torch.ops.aten
_VIEWS = (_aten.view.default, _aten.reshape.default, _aten._unsafe_view.default)
Size = int | torch.SymInt


def explain_reshapes(graph: Graph) -> None:
    """Rewrite the views of ``graph`` between shapes of which one has two open sizes or more."""
    for node in list(graph.nodes):
        if node.op != "call_function" or node.target not in _VIEWS:
            continue
        before, after = (tuple(n.meta["val"].shape) for n in (node.args[0], node))
        if max(sum(isinstance(size, torch.SymInt) for size in shape) for shape in (before, after)) < 2:
            continue
        groups = _groups(before, after)
        if groups is not None and any(len(merged) > 1 for merged, _ in groups):
            _rewrite(graph, node, groups)


def _rewrite(graph: Graph, node: Node, groups: Sequence[tuple[range, range]]) -> None:
    value = node.args[0]
    assert isinstance(value, Node)
    flat = [merged for merged, _ in reversed(groups) if len(merged) > 1]  # the last first: numbers before it stay
    splits = any(len(split) > 1 for _, split in groups)
    with graph.inserting_before(node):
        for merged in flat if splits else flat[:-1]:
            step = graph.call_function(_aten.flatten.using_ints, (value, merged.start, merged.stop - 1))
            step.meta = {name: what for name, what in node.meta.items() if name != "tensor_meta"}
            step.meta["val"] = value.meta["val"].flatten(merged.start, merged.stop - 1)
            value = step
    if splits:  # by the sizes as they were given
        node.args = (value, *node.args[1:])
    else:
        node.target, node.args, node.kwargs = _aten.flatten.using_ints, (value, flat[-1].start, flat[-1].stop - 1), {}


def _groups(before: Sequence[Size], after: Sequence[Size]) -> list[tuple[range, range]] | None:
    """The finest cut of both shapes into runs of dimensions with equal products; None if torch cannot tell one."""
    groups: list[tuple[range, range]] = []
    i = j = 0
    while i < len(before) and j < len(after):
        ends = [
            (a, b)
            for a in range(i + 1, len(before) + 1)
            for b in range(j + 1, len(after) + 1)
            if statically_known_true(_product(before[i:a]) == _product(after[j:b]))
        ]
        if not ends:
            return None
        a, b = min(ends, key=sum)
        groups.append((range(i, a), range(j, b)))
        i, j = a, b
    rest = (*before[i:], *after[j:])
    if not groups or any(not isinstance(size, int) or size != 1 for size in rest):
        return None
    merged, split = groups[-1]  # dimensions of one at the end
    groups[-1] = (range(merged.start, len(before)), range(split.start, len(after)))
    return groups


def _product(sizes: Sequence[Size]) -> Size:
    product: Size = 1
    for size in sizes:
        product = product * size
    return product
