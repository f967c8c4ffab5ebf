"""Reductions along axes: sums, extremes, their places, and any other function of two."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from covan_mlir.frontend.stablehlo.call import Call
from covan_mlir.frontend.stablehlo.operators.elementwise import added, limits, multiplied
from covan_mlir.frontend.stablehlo.program import Region
from covan_mlir.frontend.stablehlo.registry import operation
from covan_mlir.frontend.translation import unsigned
from covan_mlir.frontend.translation.refused import Refused
from covan_mlir.frontend.translation.value import Item, Value, computed

_DECIDING = frozenset(f"stablehlo.{name}" for name in ("compare", "select", "and", "or", "not"))
"""Operations of functions that depend on nothing but which of their arguments is the larger."""


def combiner(region: Region) -> str:
    """What a function of two does, if it is one operation of both: ``add``, ``maximum``, ...; or an empty string."""
    if len(region.operations) != 1 or len(region.arguments) != 2:
        return ""
    (only,) = region.operations
    if set(only.operands) != set(region.arguments) or tuple(region.returned) != only.results:
        return ""
    return only.name.removeprefix("stablehlo.")


PAIRS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": partial(unsigned.computed, added),
    "multiply": partial(unsigned.computed, multiplied),
    "maximum": partial(unsigned.ordered, torch.maximum),
    "minimum": partial(unsigned.ordered, torch.minimum),
    "and": partial(unsigned.computed, torch.bitwise_and),
    "or": partial(unsigned.computed, torch.bitwise_or),
    "xor": partial(unsigned.computed, torch.bitwise_xor),
}


def over_axes(name: str, value: Tensor, axes: list[int]) -> Tensor | None:
    """A reduction that torch has; None: it has none such."""
    if not axes:
        return value
    truth = value.dtype is torch.bool
    if name in ("or", "add", "maximum") and truth:
        return torch.any(value, axes)
    if name in ("and", "multiply", "minimum") and truth:
        return ~torch.any(~value, axes)
    if name == "xor" and truth:
        return torch.sum(value, axes) % 2 != 0
    if name == "add":
        return unsigned.computed(lambda v: torch.sum(v, axes, dtype=v.dtype), value)
    if name == "maximum":
        return unsigned.ordered(lambda v: torch.amax(v, axes), value)
    if name == "minimum":
        return unsigned.ordered(lambda v: torch.amin(v, axes), value)
    if name == "multiply":
        for axis in sorted(axes, reverse=True):
            value = unsigned.computed(lambda v, axis=axis: torch.prod(v, axis, dtype=v.dtype), value)
        return value
    return None


NEUTRAL: dict[str, Callable[[torch.dtype], float]] = {
    "add": lambda dtype: 0,
    "or": lambda dtype: 0,
    "xor": lambda dtype: 0,
    "multiply": lambda dtype: 1,
    "and": lambda dtype: 1 if dtype is torch.bool else -1,
    "maximum": lambda dtype: limits(dtype)[0],
    "minimum": lambda dtype: limits(dtype)[1],
}


def begins_neutral(call: Call, index: int, name: str, dtype: torch.dtype) -> bool:
    """Whether what a reduction begins with changes nothing."""
    number = call.only(index)
    return number is not None and number == NEUTRAL[name](dtype)


@operation("stablehlo.reduce")
def reduce(call: Call) -> tuple[Tensor, ...]:
    """Along axes, by a function of two, from a value on."""
    count = len(call.items) // 2
    axes, region = call.numbers("dimensions"), call.region()
    operands = call.tensors(0, count)
    name = combiner(region)
    if count == 1 and name in PAIRS:
        result = over_axes(name, operands[0], axes)
        if result is not None and all(operands[0].shape[axis] != 0 for axis in axes):
            if begins_neutral(call, 1, name, operands[0].dtype):
                return (result,)
            return (PAIRS[name](result, call.tensor(1)),)
    if count == 2 and len(axes) == 1 and (place := _placed(call, axes[0])) is not None:
        return place
    return _paired(call, operands, axes)


def _paired(call: Call, operands: Sequence[Tensor], axes: list[int]) -> tuple[Tensor, ...]:
    """By pairs of neighbours, as often as it takes: the function is associative."""
    count, region = len(operands), call.region()
    kept = [axis for axis in range(operands[0].dim()) if axis not in axes]
    values = [value.permute([*axes, *kept]).reshape([-1, *(value.shape[axis] for axis in kept)]) for value in operands]
    start = call.tensors(count)

    def combined(first: Sequence[Tensor], second: Sequence[Tensor]) -> list[Tensor]:
        return applied(call.run, region, [*first, *second])

    length = values[0].shape[0]
    if not length:
        return tuple(begin.expand(value.shape[1:]) for begin, value in zip(start, values, strict=True))
    while length > 1:
        half = length // 2
        evens, odds = ([value[first : 2 * half : 2] for value in values] for first in (0, 1))
        results = combined(evens, odds)
        rest = [value[2 * half :] for value in values]
        values = [torch.cat(pair) if length % 2 else pair[0] for pair in zip(results, rest, strict=True)]
        length = half + length % 2
    return tuple(combined(start, [value[0] for value in values]))


def applied(
    run: Callable[[Region, Sequence[Item]], list[Item]], region: Region, tensors: Sequence[Tensor]
) -> list[Tensor]:
    """A function of numbers, element by element."""
    shape = torch.broadcast_shapes(*(tensor.shape for tensor in tensors))
    results = run(region, [computed(tensor) for tensor in tensors])
    given = [item.tensor for item in results if isinstance(item, Value)]
    return [result if result.shape == shape else result.expand(shape) for result in given]


def _placed(call: Call, axis: int) -> tuple[Tensor, Tensor] | None:
    """The largest or smallest element and its place, if that is what it is."""
    counting = call.source(1)
    if counting is None or counting.name != "stablehlo.iota" or counting.attributes["iota_dimension"] != axis:
        return None
    value = call.tensor(0)
    if not value.is_floating_point() and value.dtype in unsigned.WIDER:
        return None
    which = _extreme(call)
    if which is None or call.only(3) != 0 or not begins_neutral(call, 2, which, value.dtype):
        return None
    place = (torch.argmax if which == "maximum" else torch.argmin)(value, axis)
    best = over_axes(which, value, [axis])
    assert best is not None
    return best, unsigned.converted(place, call.dtype(1))


def _extreme(call: Call) -> str | None:
    """Whether a function of two pairs (element, place) gives that of the larger or smaller element.

    Of equal ones it is the first; what is no number is above, and below, all.

    It only compares and chooses: what it gives depends on nothing but order, and all orders are tried.
    """
    region = call.region()
    if not all(op.name in _DECIDING for op in region.operations) or not call.tensor(0).dim():
        return None
    floats = call.tensor(0).is_floating_point()
    values = [-1.0, 1.0, *([math.nan] if floats else [])]
    cases = list(itertools.product(values, (0, 1), values, (0, 1)))
    cases = [case for case in cases if case[1] != case[3]]  # two elements are in two places
    with _disable_current_modes():
        columns = [torch.tensor(column) for column in zip(*cases, strict=True)]
        kinds = (call.tensor(0).dtype, call.tensor(1).dtype) * 2
        given = [column.to(kind) for column, kind in zip(columns, kinds, strict=True)]
        try:
            element, place = applied(call.run, region, given)
        except (RuntimeError, Refused):
            return None
        for which, better in (("maximum", float.__gt__), ("minimum", float.__lt__)):
            expected = [_first_best(case, better) for case in cases]
            same = torch.tensor([value for value, _ in expected]).to(element)
            agree = ((element == same) | (element.isnan() & same.isnan())).all()
            if agree and place.tolist() == [where for _, where in expected]:
                return which
    return None


def _first_best(case: tuple[float, int, float, int], better: Callable[[float, float], bool]) -> tuple[float, int]:
    x, i, y, j = case
    missing = [(value, place) for value, place in ((x, i), (y, j)) if math.isnan(value)]
    if missing:
        return min(missing, key=lambda pair: pair[1])
    if x == y:
        return x, min(i, j)
    return (x, i) if better(x, y) else (y, j)


@operation("stablehlo.map")
def map_(call: Call) -> tuple[Tensor, ...]:
    """A function of numbers, element by element."""
    return tuple(applied(call.run, call.region(), call.tensors()))
