"""Branches and loops."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch._higher_order_ops.cond import cond_op
from torch._higher_order_ops.while_loop import while_loop_op

from covan_mlir.frontend.stablehlo.call import Call
from covan_mlir.frontend.stablehlo.program import Operation, Region
from covan_mlir.frontend.stablehlo.registry import operation
from covan_mlir.frontend.translation.value import Item, Value, computed, passed, tensors_of

UNROLLED, TURNS = 20_000, 64
"""Operations, and turns, that a loop of known length is written out to, at most: layers of a model are few, and large.
Longer ones are loops of the program."""


_COMPARED: dict[str, Callable[[Any, Any], bool]] = {
    direction: getattr(operator, direction.lower()) for direction in ("NE", "LT", "LE", "GT", "GE")
}


def _copied(items: Sequence[Item]) -> tuple[Tensor, ...]:
    """Results of functions that operators take, which have to be tensors of their own."""
    return tuple(tensor.clone() for tensor in tensors_of(items))


@operation("stablehlo.if")
def if_(call: Call) -> Any:
    """One of two regions."""
    condition = call.value(0)
    first, second = call.operation.regions
    if condition.known is not None:
        return tuple(call.run(first if condition.only() else second, []))
    return _chosen(call, [first, second], lambda decides, place: decides, condition.tensor.reshape(()))


@operation("stablehlo.case")
def case(call: Call) -> Any:
    """One of several regions, by a number; the last one by any other."""
    index = call.value(0)
    regions = list(call.operation.regions)
    if index.known is not None:
        number = int(index.only() or 0)
        return tuple(call.run(regions[number if 0 <= number < len(regions) else -1], []))
    return _chosen(call, regions, lambda decides, place: decides == place, index.tensor.reshape(()))


def _chosen(call: Call, regions: Sequence[Region], chosen: Callable[[Tensor, int], Tensor], decides: Tensor) -> Any:
    """Each region is a branch beside that of all behind it."""
    outside: dict[int, Value] = {}
    for region in regions:
        outside |= call.captured(region)
        if call.first:
            call.run(region, [])

    def choose(place: int, at: Tensor, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        def first(_: Tensor, *inner: Tensor) -> tuple[Tensor, ...]:
            results = call.rebound(passed(outside, inner))(regions[place], [])
            return _copied(results)

        def rest(again: Tensor, *inner: Tensor) -> tuple[Tensor, ...]:
            return choose(place + 1, again, inner)

        if place == len(regions) - 1:
            return first(at, *tensors)
        return tuple(cond_op(chosen(at, place), first, rest, (at, *tensors)))

    return choose(0, decides, tuple(value.tensor for value in outside.values()))


@operation("stablehlo.while")
def while_(call: Call) -> Any:
    """As long as a region says so."""
    condition, body = call.region(0), call.region(1)
    turns = _turns(call, condition, body)
    if turns is not None and turns <= TURNS and turns * call.weight(body) <= UNROLLED:
        items = list(call.items)
        for turn in range(turns):
            items = call.turned(body, items, turn)
        return tuple(items)
    return _looped(call, condition, body)


def _turns(call: Call, condition: Region, body: Region) -> int | None:
    """How often a loop turns that counts by equal steps to a number that is known; None: it is no such loop."""
    if len(condition.operations) == 0 or len(condition.returned) != 1:
        return None
    last = condition.operations[-1]
    if last.name != "stablehlo.compare" or last.results != condition.returned:
        return None
    compared = _COMPARED.get(last.attributes["comparison_direction"])
    numbers = [_number(call, condition, body, operand) for operand in last.operands]
    counter = last.operands[0]
    if compared is None or None in numbers or counter not in condition.arguments:
        return None
    place = condition.arguments.index(counter)
    step = _step(call, body, place)
    value, limit = numbers
    if step is None or step == 0 or _number(call, condition, body, last.operands[1], fixed=True) is None:
        return None
    turns = 0
    while compared(value, limit):
        value += step
        turns += 1
        if turns > TURNS:
            return None
    return turns


def _number(call: Call, condition: Region, body: Region, number: int, fixed: bool = False) -> Any:
    """The number that a value of the condition is at first; ``fixed``: in all turns."""
    if number in condition.arguments:
        place = condition.arguments.index(number)
        if fixed and body.returned[place] != body.arguments[place]:
            return None
        item = call.items[place]
        return item.only() if isinstance(item, Value) else None
    return _constant(call, condition, number)


def _constant(call: Call, region: Region, number: int) -> Any:
    for inner in region.operations:
        if number in inner.results:
            return call.constant(inner.attributes["value"]).only() if inner.name == "stablehlo.constant" else None
    return call.outside(number)


def _step(call: Call, body: Region, place: int) -> Any:
    """What a body adds to the value of a place; None: it does something else with it."""
    writer: Operation | None = next((op for op in body.operations if body.returned[place] in op.results), None)
    if writer is None or writer.name not in ("stablehlo.add", "stablehlo.subtract"):
        return None
    first, second = writer.operands
    if writer.name == "stablehlo.add" and second == body.arguments[place]:
        first, second = second, first
    if first != body.arguments[place]:
        return None
    step = _constant(call, body, second)
    return step if step is None or writer.name == "stablehlo.add" else -step


def _looped(call: Call, condition: Region, body: Region) -> Any:
    """A loop of the program: what changes goes round, what stays as it is is read from outside."""
    changing = [p for p, given in enumerate(body.arguments) if body.returned[p] != given]
    staying = [p for p in range(len(body.arguments)) if p not in changing]
    outside = {**call.captured(condition), **call.captured(body)}
    start = tensors_of([call.items[p] for p in changing])
    kept = tensors_of([call.items[p] for p in staying])
    given = [value.tensor for value in outside.values()]
    if call.first:
        begun = dict(zip(changing, map(computed, start), strict=True))
        call.run(body, [begun.get(p, item) for p, item in enumerate(call.items)])

    def arguments(tensors: Sequence[Tensor]) -> tuple[list[Item], dict[int, Value]]:
        items: list[Item] = [None] * len(body.arguments)
        for place, tensor in zip(changing, tensors, strict=False):
            items[place] = computed(tensor)
        for place, tensor in zip(staying, tensors[len(changing) :], strict=False):
            own = call.items[place]
            items[place] = own if isinstance(own, Value) and own.is_known and not own.held else computed(tensor)
        return items, passed(outside, tensors[len(changing) + len(staying) :])

    def unfinished(*tensors: Tensor) -> Tensor:
        items, bound = arguments(tensors)
        return _copied(call.rebound(bound)(condition, items))[0].reshape(())

    def onwards(*tensors: Tensor) -> tuple[Tensor, ...]:
        items, bound = arguments(tensors)
        results = call.rebound(bound)(body, items)
        return _copied([results[p] for p in changing])

    loop: Any = while_loop_op
    last = loop(unfinished, onwards, tuple(t.clone() for t in start), (*kept, *given))
    results: list[Any] = list(call.items)
    for place, tensor in zip(changing, last, strict=True):
        results[place] = tensor
    return tuple(results)
