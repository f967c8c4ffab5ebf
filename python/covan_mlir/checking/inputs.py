"""What bodies are given, in the shapes in which they read it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from covan_mlir.checking.sizes import regrouped
from covan_mlir.checking.tensors import Everywhere, Reshaped, Tensor, splat, wide
from covan_mlir.fred.scalars import Array
from covan_mlir.provenance.bodies import shape_of


def _fits(kind: Sequence[int], sizes: Sequence[int]) -> bool:
    return len(kind) == len(sizes) and all(one in (-1, size) for one, size in zip(kind, sizes, strict=True))


def everywhere(value: Any, kind: str) -> Tensor:
    """A tensor of one number; of no size yet, if it is known at run time only."""
    sizes, element = shape_of(kind)[1] or (), wide(shape_of(kind)[0])
    return Everywhere(value, element) if -1 in sizes else splat(value, sizes, element)


def passed(tensor: Tensor, kind: str) -> Tensor | Array:
    """As a body reads it: in its shape; a number that is no tensor by itself.

    Args:
        kind: the type that the body has for it.

    Raises:
        UnevaluatedError: which sizes it has there does not follow.
    """
    if "[" in kind or kind.startswith("!"):
        return _shaped(tensor, kind)
    return tensor.all().reshape(())


def _shaped(tensor: Tensor, kind: str) -> Tensor:
    """In the shape in which a body reads it."""
    shape = shape_of(kind)[1]
    if shape is None or shape == tensor.shape or isinstance(tensor, Everywhere):
        return tensor
    if -1 in shape:
        if len(shape) == len(tensor.shape):
            return tensor
        kept = [size for size in tensor.shape if size != 1]
        if len(kept) == sum(size != 1 for size in shape):  # unit dimensions were added or dropped
            return Reshaped(tensor, [1 if size == 1 else kept.pop(0) for size in shape])
        tail = kept[len(kept) - len(shape) + 1 :]
        if 1 not in shape and 1 < len(shape) < len(kept) and _fits(shape[1:], tail):  # leading dimensions are one
            return Reshaped(tensor, [prod(kept) // max(1, prod(tail)), *tail])
        known = prod(size for size in shape if size >= 0)
        if shape.count(-1) == 1 and known:
            return Reshaped(tensor, tuple(tensor.size // known if size < 0 else size for size in shape))
        ways = set(regrouped(shape, tensor.shape))
        if len(ways) != 1:
            return tensor  # the body says its sizes, or fails
        (shape,) = ways
    return Reshaped(tensor, shape)
