"""What the parts of a source compute, by torch, on numbers drawn at random: floats are float64 throughout.

Numbers are drawn, and parts computed, where elements are asked for (`covan_mlir.checking.applied`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from typing import Any, Literal
from zlib import crc32

import numpy as np
import torch

from covan_mlir.checking.applied import Value, applied, array_of, dtype_of
from covan_mlir.checking.bits import read_as
from covan_mlir.checking.field import PAIR, drawn, mixed, paired
from covan_mlir.checking.sizes import Measure, Sizes, has_read_numbers, read_numbers
from covan_mlir.checking.tensors import (
    Direct,
    Held,
    Reshaped,
    Tensor,
    UnevaluatedError,
    cast,
    limited,
    spend,
    splat,
    wide,
)
from covan_mlir.fred.scalars import Array
from covan_mlir.frontend.dtypes import DTYPES
from covan_mlir.provenance import arguments
from covan_mlir.provenance.arguments import Operand
from covan_mlir.provenance.bodies import Held as HeldNumbers
from covan_mlir.provenance.bodies import Runs
from covan_mlir.provenance.control import ELEMENT, JOINS, STACKED
from covan_mlir.provenance.model import Part
from covan_mlir.provenance.unchecked import is_unchecked

Trial = Literal["normal", "positive", "small", "whole", "unit"]
"""How numbers are drawn: of both signs around 1, only positive ones, ones beside which small summands count, and
integers, on which sums and products are exact."""

_LIBRARIES = frozenset({"aten", "prims"})
"""Whose operators are run."""
_SCALARS = {"int": "i64", "float": "f64", "bool": "i1"}
"""Types of numbers that are read from tensors, and as what they are drawn."""
FLOAT = ("f", "bf")
"""How types of floats begin."""
_BITS = "aten.view.dtype"
_OWN = "covan."
"""Operators of the user's own that are code in MLIR."""
_DEEP, _FEW = 16, 1 << 12
"""Operators behind one another before results of so few elements are computed, and not left for those who ask."""
_NEAR = 1 << 20
"""Elements that are computed for that at most: few may stand on a convolution of millions."""


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(base, int) and isinstance(exponent, int) and max(abs(base).bit_length(), 1) * exponent > 64:
        raise ValueError("a number of more than 64 bits")
    return operator.pow(base, exponent)


_FUNCTIONS: Mapping[str, Callable[..., Any]] = (
    {
        # As torch's own prims are, but for what those import.
        "prims.convert_element_type.default": lambda value, dtype: value.to(dtype),
        "prims.squeeze.default": lambda value, dims: value.squeeze(tuple(dims)),
    }
    | {
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
            *(operator.ge, operator.gt, operator.le, operator.lt, operator.eq, operator.ne),
        )
    }
    | {"operator.pow": _power}
)


def _element(iteration: int) -> Callable[..., torch.Tensor]:
    return lambda loop, position, whole: whole.select(0, iteration)


def _stacked(iteration: int) -> Callable[..., torch.Tensor]:
    return lambda loop, position, element, memory: memory.select_scatter(element, 0, iteration)


_LOOPED: Mapping[str, Callable[[int], Callable[..., torch.Tensor]]] = {ELEMENT: _element, STACKED: _stacked}
"""Operators of the bodies of loops, given the number of the iteration."""


class RandomError(UnevaluatedError):
    """An operator draws numbers at random, or is the user's own in MLIR: there is nothing to compare with."""


ROUNDING = frozenset({"aten.pow.Scalar"})
"""Operators of halves that round a number to their type first; compilers write it into code so, or not."""


class SourceValues:
    """Values of operands, each computed once.

    Args:
        types: of the program's arguments and weights.
        sizes: that are known at run time only.
        held: what some weights hold.
        integers: of which those are drawn that nothing is known of.
        shapes: of results, as far as they are known (`covan_mlir.checking.applied`).
        iteration: the number of the iteration that loops over elements are in.
        ascending: operands that hold 0 and then ascending numbers, as the beginnings of bags do.
        undrawn: values of the same draw with nothing given by `draw`, and which operands have others there.
        rounded: whether operators of `ROUNDING` round their numbers.
        known: parts whose elements are known numbers, and what gives them.

    Attributes:
        values: as far as they are known.
        given: operands that were drawn with `draw`.
        measured: of numbers that are read from tensors and decide sizes, a part that has such a size, on which
            dimension, and how it tells the number.
    """

    def __init__(
        self,
        parts: Mapping[int, Part],
        types: Mapping[Operand, str],
        sizes: Sizes,
        held: Mapping[str, HeldNumbers],
        trial: Trial,
        seed: int,
        integers: range,
        shapes: dict[Hashable, Any],
        iteration: int = 0,
        ascending: Set[Operand] = frozenset(),
        undrawn: tuple[SourceValues, Set[Operand]] | None = None,
        rounded: bool = False,
        known: tuple[Set[int], Callable[[int], Array]] | None = None,
    ) -> None:
        self._parts = parts
        self._ascending = ascending
        self._undrawn: SourceValues | None = undrawn[0] if undrawn else None
        self._other: Set[Operand] = undrawn[1] if undrawn else frozenset()
        self._known = known
        self._rounded = rounded
        self._shapes = shapes
        self._types = types
        self._sizes = sizes
        self._held = held
        self._trial = trial
        self._integers = integers
        self._seed = seed
        self._iteration = iteration
        self.values: dict[Operand, Value] = {}
        self.given: set[Operand] = set()
        self.measured: Mapping[str, tuple[int, int, Measure]] = {}
        self._depths: dict[Operand, int] = {}

    def twin(self, operand: Operand) -> Operand:
        """The first operand with the same value."""
        kind, name = operand
        return (kind, self._parts[int(name)].twin) if kind == "p" and name in self._parts else operand

    def draw(self, operand: Operand, kind: str) -> None:
        """Gives an operand random numbers, as if it were given from outside. One whose sizes depend on what others hold
        is drawn behind those."""
        operand = self.twin(operand)
        if operand not in self.values:
            if has_read_numbers(kind):
                kind = self._sized(operand, kind)
            drawn = self._drawn(operand, f"{_SCALARS[kind]}[]" if kind in _SCALARS else kind)
            self.values[operand] = drawn.all().item() if kind in _SCALARS else drawn
            self.given.add(operand)

    def take(self, operand: Operand, same: Operand, kind: str) -> None:
        """Gives an operand the elements of another one that was drawn, in their order, in its own shape."""
        operand = self.twin(operand)
        if operand not in self.values:
            self.values[operand] = Reshaped(self.tensor(same), self._parsed(kind)[1])
            self.given.add(operand)

    def _sized(self, operand: Operand, kind: str) -> str:
        """The type of an operand with the sizes that it has on what was drawn before."""
        with suppress(UnevaluatedError):  # in those that have numbers of their own
            value = self.value(operand)
            del self.values[operand]
            if isinstance(value, Tensor):
                return f"{kind.partition('[')[0]}[{', '.join(map(str, value.shape))}]"
        return kind

    def tensor(self, operand: Operand) -> Tensor:
        """The value of an operand that is a tensor or a number.

        Raises:
            UnevaluatedError: as `value`, and of values of another kind.
        """
        value = self.value(operand)
        if isinstance(value, Tensor):
            return value
        return Held(_number(value))

    def value(self, operand: Operand) -> Value:
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
            if self._undrawn is not None and current not in self._other:
                self.values[current] = self._undrawn.value(current)
                self._depths[current] = self._undrawn._depths.get(current, 0)
                continue
            if kind != "p":
                self.values[current] = self._outside(current)
                continue
            part = self._parts[int(name)]
            if part.op in JOINS:  # where control goes decides what it is
                self.values[current] = self._drawn(current, part.types[0])
                continue
            if self._known is not None and part.id in self._known[0]:
                self.values[current] = Held(cast(self._known[1](part.id), wide("f64")))
                continue
            waiting = [self.twin(o) for o in arguments.operands(part.args) if self.twin(o) not in self.values]
            if waiting:
                stack += waiting
                continue
            self.values[current] = self._near(current, self._run(part), arguments.operands(part.args))
            stack.pop()
        return self.values[self.twin(operand)]

    def _near(self, operand: Operand, value: Value, read: Sequence[Operand]) -> Value:
        """The same value, computed now where it stands on many others: elements ask for elements, in calls of calls."""
        depth = 1 + max((self._depths.get(self.twin(before), 0) for before in read), default=0)
        if depth > _DEEP and isinstance(value, Tensor) and value.size <= _FEW:
            depth = 0
            with limited(_NEAR) as budget, suppress(UnevaluatedError):  # of all; not, perhaps, of those asked for
                value = Held(value.all())
            spend(budget.spent, "what many others stand on")
        self._depths[operand] = depth
        return value

    def _outside(self, operand: Operand) -> Tensor:
        if operand not in self._types:
            raise UnevaluatedError(f"nothing is known of {'argument' if operand[0] == 'a' else 'weight'} {operand[1]}")
        kind = self._types[operand]
        if operand[0] == "w" and (held := self._held.get(str(operand[1]))) is not None:
            element, sizes = self._parsed(kind)
            if isinstance(held, list):
                return Held(_number(torch.tensor(held).to(element).reshape(sizes)))
            if isinstance(held, Runs):
                return _with_runs(self._drawn(operand, kind), held)
            number = float(held) if isinstance(held, str) else held
            return splat(number, sizes, wide("f64") if element.is_floating_point else dtype_of(element))
        return self._drawn(operand, kind)

    def _drawn(self, operand: Operand, kind: str) -> Tensor:
        element, sizes = self._parsed(kind)
        first = np.uint64(crc32(repr((operand, self._seed)).encode())) << np.uint64(32)

        def bits(flat: Array) -> Array:
            return mixed(flat.astype(np.uint64) + first)

        if element.is_complex:
            real, imaginary = (
                self._drawn((operand[0], f"{operand[1]}.{half}"), f"f64{kind[kind.index('[') :]}") for half in "ri"
            )
            return Direct(sizes, np.dtype(np.complex128), lambda flat: real.at(flat) + 1j * imaginary.at(flat))
        if element is torch.bool:
            return Direct(sizes, np.dtype(np.bool_), lambda flat: bits(flat) & np.uint64(1) == 1)
        if not element.is_floating_point:
            least, bound = np.uint64(self._integers.start), np.uint64(len(self._integers))
            if operand in self._ascending:
                count = np.uint64(math.prod(sizes))

                def steps(flat: Array) -> Array:  # one of each of as many equal pieces of what is below the bound
                    place = flat.astype(np.uint64)
                    first, end = place * bound // count, (place + np.uint64(1)) * bound // count
                    number = first + (bits(flat) >> np.uint64(8)) % np.maximum(end - first, np.uint64(1))
                    return np.where(flat == 0, np.uint64(0), number)

                return Direct(sizes, dtype_of(element), steps)
            return Direct(sizes, dtype_of(element), lambda flat: least + (bits(flat) >> np.uint64(8)) % bound)
        numbers = _NUMBERS[self._trial]
        if wide("f64") == PAIR:  # a point of the field that does not depend on the value
            return Direct(sizes, PAIR, lambda flat: paired(numbers(bits(flat)), drawn(bits(flat))))
        return Direct(sizes, np.dtype(np.float64), lambda flat: numbers(bits(flat)))

    def _run(self, part: Part) -> Value:
        function = _LOOPED[part.op](self._iteration) if part.op in _LOOPED else function_of(part.op)
        if function is None:
            raise RandomError(part.op) if is_believed(part.op) else UnevaluatedError(part.op)
        operands = arguments.operands(part.args)
        if part.op == _BITS and len(operands) == 1:
            return self._bits(operands[0], part.types[0])
        values = {operand: self.values[self.twin(operand)] for operand in operands}
        sizes, shapes = self._sizes, self._shapes
        if numbers := self._measures(part):
            sizes, shapes = sizes.bound(dict(numbers)), shapes.setdefault(numbers, {})
        return applied(part, function, partial(_bound, part, sizes, self._rounded), values, shapes)

    def _measures(self, part: Part) -> tuple[tuple[str, int], ...]:
        """The numbers that are read from tensors in types of what a part only reads the sizes of."""
        numbers: list[tuple[str, int]] = []
        for name in read_numbers(part.args) if self.measured else ():
            if name in self.measured:
                other, dim, measure = self.measured[name]
                if (number := measure.number(self.tensor(("p", other)).shape[dim])) is not None:
                    numbers.append((name, number))
        return tuple(numbers)

    def _bits(self, operand: Operand, kind: str) -> Tensor:
        """An operand as elements of another type of its width."""
        value = self.tensor(operand)
        _, sizes = self._parsed(kind)
        if tuple(sizes) != value.shape:
            raise UnevaluatedError(f"{_BITS} of another width")
        return read_as(value, kind)

    def _parsed(self, kind: str) -> tuple[torch.dtype, list[int]]:
        return _parsed(kind, self._sizes)


def _with_runs(drawn: Tensor, runs: Runs) -> Tensor:
    """A weight of which some elements are known."""
    starts, ends = np.array(runs.starts), np.array(runs.starts) + np.array(runs.lengths)
    numbers = cast(np.array([float(n) if isinstance(n, str) else n for n in runs.numbers]), drawn.dtype)

    def elements(flat: Array) -> Array:
        values = np.array(drawn.at(flat))
        which = np.searchsorted(starts, flat, side="right") - 1
        known = (which >= 0) & (flat < ends[which])
        values[known] = numbers[which[known]]
        return values

    return Direct(drawn.shape, drawn.dtype, elements)


def _bound(part: Part, sizes: Sizes, rounded: bool, values: Mapping[Operand, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a part's call, given what its operands are. No values are held here: they hold what computes
    them."""

    def of_type(kind: str) -> torch.Tensor:
        """A tensor of which only the type matters."""
        element, shape = _parsed(kind, sizes)
        return torch.zeros((), dtype=element).expand(shape)

    narrow = torch.float32 if any(kind.startswith("f32") for kind in part.types) else None
    if rounded and part.op in ROUNDING and part.types[0].partition("[")[0] in ("bf16", "f16"):
        narrow = DTYPES[part.types[0].partition("[")[0]]
    args, kwargs = arguments.decode(part.args, values, of_type)
    if is_pointwise(part.op) and part.types[0].startswith(FLOAT):  # of integers torch computes it in float32
        args, kwargs = tuple(map(_real, args)), {name: _real(item) for name, item in kwargs.items()}
    return [_wide(item, narrow) for item in args], {name: _wide(item, narrow) for name, item in kwargs.items()}


def _real(value: Any) -> Any:
    """An operand of integers as floats."""
    if isinstance(value, torch.Tensor) and not (value.is_floating_point() or value.is_complex()):
        return value.double() if value.dtype is not torch.bool else value
    return value


def _parsed(kind: str, sizes: Sizes) -> tuple[torch.dtype, list[int]]:
    name, bracket, _ = kind.partition("[")
    if not bracket or name not in DTYPES:
        raise UnevaluatedError(f"a value of type {kind or 'unknown'}")
    element = DTYPES[name]
    computed = torch.complex128 if element.is_complex else torch.float64 if element.is_floating_point else element
    return computed, sizes.of(kind)


def _number(value: Any) -> Array:
    """A number of the program, or several."""
    array = array_of(value)
    return cast(array, wide("f64")) if array.dtype.kind == "f" else array


def _normal(bits: Array) -> Array:
    """By Box and Muller."""
    radius = np.sqrt(-2.0 * np.log(((bits >> np.uint64(32)).astype(np.float64) + 0.5) * 2.0**-32))
    return np.asarray(radius * np.cos((bits & np.uint64(0xFFFFFFFF)).astype(np.float64) * (2.0 * math.pi * 2.0**-32)))


def _positive(bits: Array) -> Array:
    return np.abs(_normal(bits)) * 1.5 + 0.05


def _small(bits: Array) -> Array:
    return _normal(bits) * 0.003


def _whole(bits: Array) -> Array:
    return (bits >> np.uint64(8)).astype(np.float64) % 19.0 - 9.0


def _unit(bits: Array) -> Array:
    """Between 0 and 1, as probabilities are."""
    return ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


_NUMBERS: Mapping[Trial, Callable[[Array], Array]] = {
    "normal": _normal,
    "positive": _positive,
    "small": _small,
    "whole": _whole,
    "unit": _unit,
}


def function_of(name: str) -> Any:
    """``aten.mul.Tensor`` as a function that gives a result and does nothing else; None of others: names may come from
    files."""
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    library, *words = name.split(".")
    if library not in _LIBRARIES or words[:1] == ["from_file"] or is_unchecked(name):
        return None
    resolved: Any = getattr(torch.ops, library)
    for word in words:
        resolved = getattr(resolved, word, None)
    if not isinstance(resolved, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded in resolved.tags:
        return None
    return None if resolved._schema.is_mutable else resolved


def is_believed(name: str) -> bool:
    """Whether an operator draws numbers at random, or is the user's own in MLIR."""
    if name.startswith(_OWN):
        return True
    resolved: Any = torch.ops
    for word in name.split("."):
        resolved = getattr(resolved, word, None)
    return isinstance(resolved, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in resolved.tags


def is_pointwise(name: str) -> bool:
    """Whether an operator works element by element."""
    function = function_of(name)
    return isinstance(function, torch._ops.OpOverload) and torch.Tag.pointwise in function.tags


def is_sized_by_values(name: str) -> bool:
    """Whether the sizes of an operator's result depend on what its operands hold."""
    function = function_of(name)
    return isinstance(function, torch._ops.OpOverload) and torch.Tag.dynamic_output_shape in function.tags


def is_view(name: str) -> bool:
    """Whether an operator's result is memory of its operand, by its schema."""
    function = function_of(name)
    if not isinstance(function, torch._ops.OpOverload):
        return False
    returns = function._schema.returns
    return bool(returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in returns)


def _wide(item: Any, narrow: torch.dtype | None) -> Any:
    """An argument as it is with wide floats; numbers as those of a ``narrow`` type hold them."""
    if isinstance(item, list | tuple):
        return [_wide(inner, narrow) for inner in item]
    if isinstance(item, torch.dtype) and item.is_floating_point:
        return torch.float64
    whole = isinstance(item, int) and not isinstance(item, bool) and narrow in (torch.float16, torch.bfloat16)
    if narrow is not None and (whole or (isinstance(item, float) and math.isfinite(item))):
        return torch.tensor(item, dtype=narrow).double().item()
    return item
