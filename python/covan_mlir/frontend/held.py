"""What weights hold that compilers take apart: those of one number become scalars, short ones of integers literals, and
short ones that single numbers are computed of become these. Short ones that conditions are computed of decide what is
left of the program: a mask that is true everywhere is gone. A piece of one number becomes a scalar, too: the row of an
embedding that pads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from covan_mlir.provenance.bodies import Held, Runs

_SHORT = 4096
_FIRST = 64
_RUN, _RUNS = 8, 1024
"""Elements of a run that is noted, at least, and runs of a weight, at most: the longest."""


def held_by(graph: fx.Graph, weights: Mapping[fx.Node, tuple[str, torch.Tensor]]) -> dict[str, Held]:
    """By name, the number that all elements of a weight are, or all elements of a short one: of integers, or of which a
    number or a condition is computed; runs of one number in those of which pieces are read.

    Args:
        weights: names and values of placeholders that are the same at every call.
    """
    known: dict[str, Held] = {}
    behind, cut = _read_apart(graph, weights.keys())
    for node, (name, weight) in weights.items():
        value = _held(weight, short=node in behind or not weight.is_floating_point(), cut=node in cut)
        if value is not None:
            known[name] = value
    return known


def _read_apart(graph: fx.Graph, weights: Set[fx.Node]) -> tuple[set[fx.Node], set[fx.Node]]:
    """Those that tensors of one element, or of other types than floats, are computed of, and of nothing else; those
    that smaller tensors are."""
    constant: dict[fx.Node, frozenset[fx.Node]] = {node: frozenset([node]) for node in weights}
    behind: set[fx.Node] = set()
    cut: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op == "call_function" and all(read in constant for read in node.all_input_nodes):
            constant[node] = frozenset().union(*(constant[read] for read in node.all_input_nodes))
            value = node.meta.get("val")
            if not isinstance(value, torch.Tensor):
                continue
            if not value.is_floating_point() or statically_known_true(value.numel() == 1):
                behind |= constant[node]
            cut |= {read for read in constant[node] if statically_known_true(value.numel() < _elements(read))}
    return behind, cut


def _elements(node: fx.Node) -> int:
    value = node.meta.get("val")
    return value.numel() if isinstance(value, torch.Tensor) else 0


def _held(weight: torch.Tensor, *, short: bool, cut: bool) -> Held | None:
    if weight.numel() == 0 or weight.is_complex() or weight.is_quantized or weight.is_meta:
        return None
    flat = weight.detach().reshape(-1)
    first = flat[0]
    if bool((flat[:_FIRST] == first).all()) and bool((flat == first).all()):
        return _told(first.item())
    if short and weight.numel() <= _SHORT:
        elements: list[int | float | bool] = flat.tolist()
        if all(map(math.isfinite, elements)):
            return elements
    return _runs(flat) if cut else None


def _runs(flat: torch.Tensor) -> Runs | None:
    """The longest runs of one number; None if there are none."""
    same = torch.zeros(len(flat) + 1, dtype=torch.bool)
    same[1:-1] = flat[1:] == flat[:-1]
    starts, ends = (same[1:] != same[:-1]).nonzero().reshape(-1, 2).unbind(1)
    lengths = ends - starts + 1
    kept = lengths.argsort(descending=True, stable=True)[:_RUNS]
    kept = kept[lengths[kept] >= _RUN].sort().values
    if not len(kept):
        return None
    return Runs(starts[kept].tolist(), lengths[kept].tolist(), [*map(_told, flat[starts[kept]].tolist())])


def _told(number: int | float | bool) -> int | float | bool | str:
    return str(number) if isinstance(number, float) and not math.isfinite(number) else number
