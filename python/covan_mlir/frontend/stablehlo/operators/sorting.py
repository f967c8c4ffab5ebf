"""Sorting by a function that compares."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from covan_mlir.frontend.stablehlo.call import Call
from covan_mlir.frontend.stablehlo.operators.reductions import applied
from covan_mlir.frontend.stablehlo.program import operations
from covan_mlir.frontend.stablehlo.registry import operation
from covan_mlir.frontend.translation import unsigned
from covan_mlir.frontend.translation.refused import Refused

_DECIDING = frozenset(
    f"stablehlo.{n}" for n in ("compare", "select", "and", "or", "not", "constant", "broadcast_in_dim")
)


@operation("stablehlo.sort")
def sort(call: Call) -> tuple[Tensor, ...]:
    """Several tensors alike, along an axis."""
    tensors, axis = call.tensors(), call.attribute("dimension", -1) % call.tensor(0).dim()
    order = _order(call)
    if order is None:
        raise Refused("it compares in another way than by the order of keys, one after the other")
    keys, descending = order
    if len(tensors) == 1 and tensors[0].dtype not in unsigned.WIDER:
        return (torch.sort(tensors[0], dim=axis, descending=descending, stable=True).values,)
    places: Tensor | None = None
    for key in reversed(range(keys)):
        value = _comparable(tensors[key])
        value = value if places is None else value.gather(axis, places)
        own = torch.sort(value, dim=axis, descending=descending, stable=True).indices
        places = own if places is None else places.gather(axis, own)
    assert places is not None
    at = places
    return tuple(unsigned.computed(lambda value: value.gather(axis, at), tensor) for tensor in tensors)


def _comparable(value: Tensor) -> Tensor:
    """Signed integers in the order of unsigned ones."""
    if value.dtype is torch.uint64:
        return unsigned.signed(value) ^ -(2**63)
    return value.to(torch.uint8) if value.dtype is torch.bool else unsigned.signed(value)


def _order(call: Call) -> tuple[int, bool] | None:
    """-> (how many of the tensors are keys, first one first; whether large ones come first); None: neither.

    A function that only compares and chooses depends on nothing but the order of its arguments and of its constants:
    all orders of these are tried.
    """
    region, count = call.region(), len(call.items)
    inside = list(operations(region))
    if not all(op.name in _DECIDING for op in inside):
        return None
    constants = {
        number
        for op in inside
        if op.name == "stablehlo.constant" and (number := call.constant(op.attributes["value"]).only()) is not None
    }
    kinds = [call.value(index).dtype for index in range(count)]
    read = {operand for op in inside for operand in op.operands}
    keys = 1 + max((index // 2 for index, given in enumerate(region.arguments) if given in read), default=-1)
    if not 1 <= keys <= 4:
        return None
    samples = [_samples(kind, constants)[: _MOST[keys]] for kind in kinds[:keys]]
    cases = list(itertools.product(*(itertools.product(sample, sample) for sample in samples)))
    with _disable_current_modes():
        given = []
        for index, kind in enumerate(kinds):
            for side in (0, 1):
                column = [case[index][side] if index < keys else 0 for case in cases]
                given.append(torch.tensor(column).to(kind))
        try:
            (before,) = applied(call.run, region, given)
        except (RuntimeError, Refused):
            return None
    answers = list(zip(cases, before.tolist(), strict=True))
    plain = [(case, answer) for case, answer in answers if not any(map(math.isnan, itertools.chain(*case)))]
    # A comparison that holds for nothing that is no number leaves open where this goes.
    for asked in (answers, plain):
        for descending in (False, True):
            if all(answer == _comes_first(case, descending) for case, answer in asked):
                return keys, descending
    return None


_MOST = {1: 16, 2: 12, 3: 5, 4: 4}
"""Samples of each key, by how many keys there are."""


def _samples(kind: torch.dtype, constants: set[float]) -> list[float]:
    if kind is torch.bool:
        return [0, 1]
    own = [c for c in constants if not math.isnan(c) and not math.isinf(c)]
    if kind.is_floating_point:
        return [-1.0, math.nan, *dict.fromkeys((-0.0, *own)), 0.5, -math.inf, math.inf]
    info = torch.iinfo(kind)
    return list(dict.fromkeys((1, 0, *(int(c) for c in own if info.min <= c <= info.max), max(info.min, -1))))


def _comes_first(case: Sequence[tuple[float, float]], descending: bool) -> bool:
    for first, second in case:
        one, other = ((math.isnan(v), 0.0 if math.isnan(v) else v) for v in (first, second))
        if one != other:
            return one > other if descending else one < other
    return False
