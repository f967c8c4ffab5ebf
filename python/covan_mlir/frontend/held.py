"""What weights hold that compilers take apart: those of one number become scalars, short ones of integers literals."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

from covan_mlir.provenance.bodies import Held

_SHORT = 4096
_FIRST = 64


def held_by(weights: Iterable[tuple[str, torch.Tensor]]) -> dict[str, Held]:
    """By name, the number that all elements of a weight are, or all elements of a short one of integers."""
    known: dict[str, Held] = {}
    for name, weight in weights:
        value = _held(weight)
        if value is not None:
            known[name] = value
    return known


def _held(weight: torch.Tensor) -> Held | None:
    if weight.numel() == 0 or weight.is_complex() or weight.is_quantized or weight.is_meta:
        return None
    flat = weight.detach().reshape(-1)
    first = flat[0]
    if bool((flat[:_FIRST] == first).all()) and bool((flat == first).all()):
        number: int | float | bool = first.item()
        return str(number) if isinstance(number, float) and not math.isfinite(number) else number
    if not weight.is_floating_point() and weight.numel() <= _SHORT:
        elements: list[int | bool] = flat.tolist()
        return elements
    return None
