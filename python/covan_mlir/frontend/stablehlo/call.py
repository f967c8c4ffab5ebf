"""One operation as its translation sees it: operands, attributes, regions, types of results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from covan_mlir.frontend.stablehlo.dtypes import torch_type
from covan_mlir.frontend.stablehlo.program import Operation, Region
from covan_mlir.frontend.translation.refused import Refused
from covan_mlir.frontend.translation.value import LARGEST, Item, Number, Value, constant


@dataclass
class Call:
    """One operation.

    Attributes:
        operation: as the module has it.
        items: what its operands stand for.
        run: translates a region, in the scope of the operation: (region, values of its arguments) -> what it returns.
        turned: the same of a turn of a loop that is written out: (region, values of its arguments, which turn).
        captured: what a region reads from outside, by the numbers of values, of what the program computes or holds.
        rebound: `run` where values from outside are others.
        constant: the tensor of a constant, by its number.
        outside: the number that a value from outside of the operation's regions is, where that is known.
        source: the operation that computes an operand, if it is one of the same block.
        weight: how many operations a region has, those of functions that it calls included.
        first: whether operations are met for the first time: those of regions in the order in which they run.
    """

    operation: Operation
    items: Sequence[Item]
    run: Callable[[Region, Sequence[Item]], list[Item]]
    turned: Callable[[Region, Sequence[Item], int], list[Item]]
    captured: Callable[[Region], Mapping[int, Value]]
    rebound: Callable[[Mapping[int, Value]], Callable[[Region, Sequence[Item]], list[Item]]]
    constant: Callable[[int], Value]
    outside: Callable[[int], Number | None]
    source: Callable[[int], Operation | None]
    weight: Callable[[Region], int]
    first: bool

    def value(self, index: int) -> Value:
        """An operand."""
        item = self.items[index]
        if not isinstance(item, Value):
            raise Refused(f"operand {index} is no tensor")
        return item

    def tensor(self, index: int) -> torch.Tensor:
        """An operand, as the program computes with it."""
        return self.value(index).tensor

    def tensors(self, start: int = 0, stop: int | None = None) -> list[torch.Tensor]:
        """Several."""
        return [self.tensor(index) for index in range(start, len(self.items) if stop is None else stop)]

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute as a number, a word, a list or a map; ``default`` where it is not there."""
        return self.operation.attributes.get(name, default)

    def numbers(self, name: str) -> list[int]:
        """A list of integers; empty where it is not there."""
        return list(self.attribute(name, ()))

    def region(self, index: int = 0) -> Region:
        """A region."""
        return self.operation.regions[index]

    def dtype(self, index: int = 0) -> torch.dtype:
        """The element type of a result."""
        return torch_type(self.operation.types[index].dtype)

    def shape(self, index: int = 0) -> list[int]:
        """The shape of a result, all of whose sizes are known."""
        sizes = [size for size in self.operation.types[index].shape if size is not None]
        if len(sizes) < len(self.operation.types[index].shape):
            raise Refused("the size of its result is open")
        return sizes

    def sizes(self, index: int) -> list[Number]:
        """The elements of an operand, which have to be known or open sizes; flat."""
        value = self.value(index)
        if not value.is_known:
            raise Refused(f"operand {index} decides about shapes, and is computed from values")
        return list(value.objects().flat)

    def only(self, index: int) -> Number | None:
        """The number that all elements of an operand are, where that is known."""
        return uniform(self.value(index))


def uniform(value: Value) -> Number | None:
    """The number that all elements of a value are, where that is known; None: it is not."""
    known = value.known
    if known is None or not known.numel() or known.dtype.is_complex or not _same_place(known):
        return None
    with _disable_current_modes():
        return known[(0,) * known.dim()].item()


def _same_place(tensor: torch.Tensor) -> bool:
    """Whether all elements are one number in memory: that is how such tensors are held."""
    return all(size == 1 or not stride for stride, size in zip(tensor.stride(), tensor.shape, strict=True))


def known_tensor(tensor: torch.Tensor) -> Value:
    """A tensor whose elements are known; one whose elements are all the same is no table of the program."""
    with _disable_current_modes():
        if not _same_place(tensor):
            first = tensor[(slice(0, 1),) * tensor.dim()]
            if 1 < tensor.numel() <= LARGEST and bool((tensor == first).all()):
                tensor = first.reshape(()).expand(tensor.shape)
        if not tensor.numel() or not _same_place(tensor):
            return constant(tensor.contiguous())
        number, shape, dtype = tensor[(0,) * tensor.dim()].item(), tuple(tensor.shape), tensor.dtype
    if dtype in (torch.uint16, torch.uint64) or number != number:
        return constant(tensor)
    return Value(dtype, lambda: torch.full(shape, number, dtype=dtype), known=tensor)
