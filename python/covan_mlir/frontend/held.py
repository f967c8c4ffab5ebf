"""What weights hold that compilers take apart: those of one number become scalars, short ones of integers literals, and
short ones that single numbers are computed of become these. Short ones that conditions are computed of decide what is
left of the program: a mask that is true everywhere is gone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Set

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from covan_mlir.provenance.bodies import Held

_SHORT = 4096
_FIRST = 64


def held_by(graph: fx.Graph, weights: Mapping[fx.Node, tuple[str, torch.Tensor]]) -> dict[str, Held]:
    """By name, the number that all elements of a weight are, or all elements of a short one: of integers, or of which a
    number or a condition is computed.

    Args:
        weights: names and values of placeholders that are the same at every call.
    """
    known: dict[str, Held] = {}
    behind = _deciding(graph, weights.keys())
    for node, (name, weight) in weights.items():
        value = _held(weight, short=node in behind or not weight.is_floating_point())
        if value is not None:
            known[name] = value
    return known


def _deciding(graph: fx.Graph, weights: Set[fx.Node]) -> set[fx.Node]:
    """Those that tensors of one element, or of other types than floats, are computed of, and of nothing else."""
    constant: dict[fx.Node, frozenset[fx.Node]] = {node: frozenset([node]) for node in weights}
    behind: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op == "call_function" and all(read in constant for read in node.all_input_nodes):
            constant[node] = frozenset().union(*(constant[read] for read in node.all_input_nodes))
            value = node.meta.get("val")
            if isinstance(value, torch.Tensor) and (
                not value.is_floating_point() or statically_known_true(value.numel() == 1)
            ):
                behind |= constant[node]
    return behind


def _held(weight: torch.Tensor, *, short: bool) -> Held | None:
    if weight.numel() == 0 or weight.is_complex() or weight.is_quantized or weight.is_meta:
        return None
    flat = weight.detach().reshape(-1)
    first = flat[0]
    if bool((flat[:_FIRST] == first).all()) and bool((flat == first).all()):
        number: int | float | bool = first.item()
        return str(number) if isinstance(number, float) and not math.isfinite(number) else number
    if short and weight.numel() <= _SHORT:
        elements: list[int | float | bool] = flat.tolist()
        return elements if all(map(math.isfinite, elements)) else None
    return None
