"""Tensors of a graph as the translation knows them: computed by the program, or known already.

Exporters compute shapes by operators: Shape, Gather, Concat, Reshape. What they compute are integers that the
translation knows, or knows as expressions over open sizes, and no tensors of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from torch.utils._python_dispatch import _disable_current_modes

from covan_mlir.frontend.translation.refused import Refused

Key = TypeVar("Key")
FIXED = 64
"""Elements of an input that can be fixed, at most."""
LARGEST = 4096
"""Elements of a tensor that is computed during translation, at most; larger ones are computed by the program."""
Number: TypeAlias = Any
"""An int, float or bool, or a torch.SymInt."""


@dataclass
class Value:
    """One tensor.

    Attributes:
        dtype: of its elements.
        numbers: its elements, if they are known: an object array with integers, some of which may be open sizes.
        known: the same as a real tensor, if none of them is open.
        make: gives the program's tensor.
        inputs: names of the graph's inputs that it is computed of, if these are few numbers and nothing else is. What
            has to be known of it can be known by fixing them.
        held: it is a weight: functions that operators take have to be given it.
        places: of the operations that compute it, where a frontend keeps account of them.
    """

    dtype: torch.dtype
    make: Callable[[], torch.Tensor] = field(repr=False)
    known: torch.Tensor | None = None
    numbers: np.ndarray[Any, Any] | None = None
    inputs: frozenset[str] = frozenset()
    held: bool = False
    places: frozenset[int] = frozenset()
    _tensor: torch.Tensor | None = field(default=None, repr=False)

    def passed(self, tensor: torch.Tensor) -> Value:
        """The same inside of a function that is given it as an argument."""
        return Value(self.dtype, lambda: tensor, self.known, self.numbers, self.inputs)

    @property
    def tensor(self) -> torch.Tensor:
        """As the program computes with it."""
        if self._tensor is None:
            self._tensor = self.make()
        return self._tensor

    @property
    def is_known(self) -> bool:
        """Whether its elements are numbers, or open sizes, that need not be computed."""
        return self.known is not None or self.numbers is not None

    @property
    def size(self) -> int:
        """Elements of a value that is known."""
        held = self.known if self.known is not None else self.numbers
        assert held is not None
        return held.numel() if isinstance(held, torch.Tensor) else held.size

    def only(self) -> Number | None:
        """The number of a value that is one number, and known."""
        return self.objects().flat[0] if self.known is not None and self.size == 1 else None

    def objects(self) -> np.ndarray[Any, Any]:
        """The elements of a value that is known, as Python's numbers."""
        if self.numbers is None:
            assert self.known is not None
            self.numbers = _objects(self.known)
        return self.numbers


Item: TypeAlias = "Value | list[Item] | None"
"""What a name of a graph stands for: a tensor, a sequence, or an optional that holds nothing."""


def _objects(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    flat = np.empty(tensor.numel(), object)
    with _disable_current_modes():
        flat[:] = tensor.reshape(-1).tolist()
    return flat.reshape(tuple(tensor.shape))


def computed(tensor: torch.Tensor) -> Value:
    """A tensor of the program."""
    return Value(tensor.dtype, lambda: tensor, _tensor=tensor)


def constant(tensor: torch.Tensor) -> Value:
    """A tensor of which the translation knows the elements; the program has it as a constant."""
    return Value(tensor.dtype, lambda: _literal(tensor), known=tensor)


def known_number(number: Any, dtype: torch.dtype) -> Value:
    """A single number."""
    with _disable_current_modes():
        return constant(torch.tensor(number, dtype=dtype))


def open_sizes(numbers: np.ndarray[Any, Any], dtype: torch.dtype) -> Value:
    """Integers, some of which are open sizes; a constant if none is."""
    if all(isinstance(number, int | float | bool) for number in numbers.flat):
        with _disable_current_modes():
            return constant(torch.tensor(numbers.tolist(), dtype=dtype).reshape(numbers.shape))
    return Value(dtype, lambda: _stacked(numbers, dtype), numbers=numbers)


def of_sizes(sizes: Sequence[Number], dtype: torch.dtype = torch.int64) -> Value:
    """A row of integers."""
    row = np.empty(len(sizes), object)
    row[:] = list(sizes)
    return open_sizes(row, dtype)


def tensors_of(items: Sequence[Item]) -> list[torch.Tensor]:
    """What a branch or a loop of the program takes or gives.

    Raises:
        Refused: some of it is no tensor.
    """
    if not all(isinstance(item, Value) for item in items):
        raise Refused("a branch or a loop of the program gives what is no tensor")
    return [item.tensor for item in items if isinstance(item, Value)]


def passed(outside: Mapping[Key, Value], tensors: Sequence[torch.Tensor]) -> dict[Key, Value]:
    """Values from outside of a function that is given them as arguments."""
    return {key: value.passed(tensor) for (key, value), tensor in zip(outside.items(), tensors, strict=True)}


def _literal(tensor: torch.Tensor) -> torch.Tensor:
    """A constant in the program: one number is written out, so that equal ones look equal."""
    with _disable_current_modes():
        if tensor.numel() != 1 or tensor.dtype.is_complex or tensor.dtype in (torch.uint16, torch.uint64):
            number = None
        else:
            number = tensor.reshape(()).item()
            if not torch.equal(torch.full((), number, dtype=tensor.dtype), tensor.reshape(())):
                number = None  # what is no number equals nothing
    return tensor.clone() if number is None else torch.full(tuple(tensor.shape), number, dtype=tensor.dtype)


def _stacked(numbers: np.ndarray[Any, Any], dtype: torch.dtype) -> torch.Tensor:
    scalars = [torch.scalar_tensor(number, dtype=dtype) for number in numbers.flat]
    if not numbers.ndim:
        return scalars[0]
    return torch.stack(scalars).reshape(numbers.shape) if scalars else torch.empty(numbers.shape, dtype=dtype)
