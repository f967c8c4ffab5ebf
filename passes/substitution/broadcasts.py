"""Broadcasting as rules have it: one new axis after the other, the first one first."""

from __future__ import annotations

from collections.abc import Sequence

from covan_mlir.subst.program import Store
from covan_mlir.subst.shaping import NoShapesError


def base_of(store: Store, number: int) -> tuple[int, list[int]]:
    """What is broadcast, and which axes of the node are its axes, in order."""
    axes = list(range(len(store[number].shape)))
    while store[number].known and store[number].op == "broadcast":
        (axis,) = store[number].attribute("axis")
        del axes[axis]
        number = store[number].args[0]
    return number, axes


def broadcast_to(store: Store, number: int, shape: Sequence[int], axes: Sequence[int] | None = None) -> int:
    """A tensor as it is read in the place of one of a shape, by the rules of PyTorch.

    Args:
        axes: that its own axes become; the last ones, where nothing else is said.

    Raises:
        NoShapesError: an axis of one element, which is not a new one, would be repeated.
    """
    rank = len(store[number].shape)
    if axes is None:
        axes = range(len(shape) - rank, len(shape))
    if tuple(store[number].shape) == tuple(shape) and list(axes) == list(range(len(shape))):
        return number
    base, kept = base_of(store, number)
    places = [axes[axis] for axis in kept]
    if any(store[base].shape[at] != shape[place] for at, place in enumerate(places)):
        raise NoShapesError("an axis of one element is repeated")
    result = base
    for axis in range(len(shape)):
        if axis not in places:
            result = store.apply("broadcast", (result,), (("axis", (axis,)), ("size", (int(shape[axis]),))))
    return result
