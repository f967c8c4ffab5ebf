"""What the parts of a source compute, by torch, on numbers drawn at random: floats are float64 throughout."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from math import prod
from typing import Any, Literal

import torch

from covan_mlir.checking.sizes import Sizes
from covan_mlir.checking.tensors import UnevaluatedError
from covan_mlir.frontend.dtypes import DTYPES
from covan_mlir.provenance import arguments
from covan_mlir.provenance.arguments import Operand
from covan_mlir.provenance.bodies import Held
from covan_mlir.provenance.model import Part

Trial = Literal["normal", "positive", "small", "whole"]
"""How numbers are drawn: of both signs around 1, only positive ones, ones beside which small summands count, and
integers, on which sums and products are exact."""
_PERIOD = 1_000_003
"""Of random numbers, where many are drawn: a prime, which no size of a tensor is a multiple of."""
_ERRORS = (RuntimeError, ValueError, TypeError, IndexError, AttributeError, NotImplementedError, ZeroDivisionError)


_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    # As torch's own prims are, but for what those import.
    "prims.convert_element_type.default": lambda value, dtype: value.to(dtype),
    "prims.squeeze.default": lambda value, dims: value.squeeze(tuple(dims)),
} | {
    f"operator.{function.__name__}": function
    for function in (
        operator.getitem,
        operator.add,
        operator.sub,
        operator.mul,
        operator.floordiv,
        operator.truediv,
        operator.mod,
        operator.neg,
        operator.pow,
    )
}


class RandomError(UnevaluatedError):
    """An operator draws numbers at random: there is nothing to compare with."""


class SourceValues:
    """Values of operands, each computed once.

    Args:
        types: of the program's arguments and weights.
        sizes: that are known at run time only.
        held: what some weights hold.
        bound: integers that nothing is known of are drawn below it.
    """

    def __init__(
        self,
        parts: Mapping[int, Part],
        types: Mapping[Operand, str],
        sizes: Sizes,
        held: Mapping[str, Held],
        trial: Trial,
        seed: int,
        bound: int = 2,
    ) -> None:
        self._parts = parts
        self._types = types
        self._sizes = sizes
        self._held = held
        self._trial = trial
        self._bound = bound
        self._generator = torch.Generator().manual_seed(seed)
        self.values: dict[Operand, Any] = {}

    def twin(self, operand: Operand) -> Operand:
        """The first operand with the same value."""
        kind, name = operand
        return (kind, self._parts[int(name)].twin) if kind == "p" and name in self._parts else operand

    def draw(self, operand: Operand, kind: str) -> torch.Tensor:
        """Gives an operand random numbers, as if it were given from outside."""
        operand = self.twin(operand)
        if operand not in self.values:
            self.values[operand] = self._drawn(kind)
        value: torch.Tensor = self.values[operand]
        return value

    def value(self, operand: Operand) -> Any:
        """The value of an operand, of what is known by then; arguments and weights are drawn.

        Raises:
            UnevaluatedError: torch does not say; the message names the operator.
        """
        stack = [self.twin(operand)]
        while stack:
            current = stack[-1]
            if current in self.values:
                stack.pop()
                continue
            kind, name = current
            if kind != "p":
                self.values[current] = self._outside(current)
                continue
            part = self._parts[int(name)]
            waiting = [self.twin(o) for o in arguments.operands(part.args) if self.twin(o) not in self.values]
            if waiting:
                stack += waiting
                continue
            self.values[current] = self._run(part)
            stack.pop()
        return self.values[self.twin(operand)]

    def _outside(self, operand: Operand) -> torch.Tensor:
        if operand not in self._types:
            raise UnevaluatedError(f"nothing is known of {'argument' if operand[0] == 'a' else 'weight'} {operand[1]}")
        kind = self._types[operand]
        if operand[0] == "w" and (held := self._held.get(str(operand[1]))) is not None:
            element, sizes = self._parsed(kind)
            if isinstance(held, list):
                return torch.tensor(held).to(element).reshape(sizes)
            return torch.full(sizes, float(held) if isinstance(held, str) else held, dtype=element)
        return self._drawn(kind)

    def _drawn(self, kind: str) -> torch.Tensor:
        element, sizes = self._parsed(kind)
        if element is torch.bool:
            return torch.rand(sizes, generator=self._generator) < 0.5
        if not element.is_floating_point:
            return torch.randint(0, self._bound, sizes, generator=self._generator).to(element)
        if self._trial == "whole":
            return torch.randint(-9, 10, sizes, generator=self._generator).to(element)
        numbers = self._normal(prod(sizes)).reshape(sizes)
        if self._trial == "positive":
            return numbers.abs() * 1.5 + 0.05
        return numbers * 0.003 if self._trial == "small" else numbers

    def _normal(self, count: int) -> torch.Tensor:
        """Normal numbers; where they are many, some of them over and over."""
        drawn = min(count, _PERIOD)
        numbers = torch.randn(drawn, generator=self._generator, dtype=torch.float64)
        return numbers if drawn == count else numbers.repeat(-(-count // drawn))[:count]

    def _run(self, part: Part) -> Any:
        operands = arguments.operands(part.args)
        values = {operand: self.values[self.twin(operand)] for operand in operands}
        try:
            args, kwargs = arguments.decode(part.args, values, self._of_type)
            function = function_of(part.op)
            if function is None and is_random(part.op):
                raise RandomError(part.op)
            if function is None:
                raise UnevaluatedError(part.op)
            narrow = any(kind.startswith("f32") for kind in part.types)
            with torch.no_grad():
                result: Any = function(
                    *(_wide(item, narrow=narrow) for item in args),
                    **{name: _wide(item, narrow=narrow) for name, item in kwargs.items()},
                )
        except _ERRORS as error:
            raise UnevaluatedError(f"{part.op}: {str(error).splitlines()[0] if str(error) else error!r}") from error
        return result

    def _of_type(self, kind: str) -> torch.Tensor:
        """A tensor of which only the type matters."""
        element, sizes = self._parsed(kind)
        return torch.zeros(sizes, dtype=element)

    def _parsed(self, kind: str) -> tuple[torch.dtype, list[int]]:
        name, bracket, _ = kind.partition("[")
        if not bracket or name not in DTYPES:
            raise UnevaluatedError(f"a value of type {kind or 'unknown'}")
        element = DTYPES[name]
        return torch.float64 if element.is_floating_point else element, self._sizes.of(kind)


def function_of(name: str) -> Any:
    """``aten.mul.Tensor`` as a function, or None."""
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    resolved: Any = torch.ops
    for word in name.split("."):
        resolved = getattr(resolved, word, None)
    if not isinstance(resolved, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded in resolved.tags:
        return None
    return resolved


def is_random(name: str) -> bool:
    """Whether an operator draws numbers at random."""
    resolved: Any = torch.ops
    for word in name.split("."):
        resolved = getattr(resolved, word, None)
    return isinstance(resolved, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in resolved.tags


def is_view(name: str) -> bool:
    """Whether an operator's result is memory of its operand, by its schema."""
    function = function_of(name)
    if not isinstance(function, torch._ops.OpOverload):
        return False
    returns = function._schema.returns
    return bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def _wide(item: Any, *, narrow: bool) -> Any:
    """An argument as it is with wide floats; numbers as ``narrow`` ones hold them."""
    if isinstance(item, list | tuple):
        return [_wide(inner, narrow=narrow) for inner in item]
    if isinstance(item, torch.dtype) and item.is_floating_point:
        return torch.float64
    if isinstance(item, float) and narrow and math.isfinite(item):
        return torch.tensor(item, dtype=torch.float32).double().item()
    return item
