"""Which inputs of a body each of its results depends on: what one dispatch computes for several parts is several
functions."""

from __future__ import annotations

from collections.abc import Iterator

from covan_mlir.checking.payload import inner_values
from covan_mlir.provenance.bodies import Body, Operation

_LOOPS = "linalg.generic"


def inputs_of(body: Body, result: int) -> frozenset[int]:
    """The inputs that a result depends on, and those whose sizes are known at run time only."""
    depends: dict[int, set[int]] = {number: {number} for number in range(len(body.inputs))}
    count = len(body.inputs)
    for operation in body.operations:
        read = {number for one in _within(operation) for number in one.operands}
        behind = set[int]().union(*(depends.get(number, ()) for number in read))
        each = _reads(operation, count) if operation.name == _LOOPS and len(operation.types) > 1 else []
        for one in _within(operation):
            if not one.types and len(one.operands) > 1:  # it writes into what it is given
                depends.setdefault(one.operands[1], set()).update(behind)
        count += inner_values(operation)
        for which in range(len(operation.types)):
            own = (depends.get(number, ()) for number in each[which]) if each else (behind,)
            depends[count] = set[int]().union(*own)
            count += 1
    sized = {number for number, kind in enumerate(body.inputs) if "?" in kind or "[" not in kind}
    return frozenset(depends.get(body.results[result], set()) | sized)


def _reads(operation: Operation, first: int) -> list[set[int]]:
    """What each result of several that loops compute together reads: operands, and values around the loops.

    Args:
        first: number of the first value of the block.
    """
    *steps, last = operation.blocks[0].operations
    inputs = len(operation.operands) - len(operation.types)
    behind = {first + place: {operand} for place, operand in enumerate(operation.operands)}
    accumulators = {first + inputs + which: which for which in range(len(operation.types))}
    number = first + len(operation.operands)
    for step in steps:
        read = {value for one in _within(step) for value in one.operands}
        values = {value for value in read if value in accumulators}.union(
            *(behind.get(value, {value}) for value in read if value not in accumulators)
        )
        number += inner_values(step)
        behind |= {number + which: values for which in range(len(step.types))}
        number += len(step.types)
    reads: list[set[int]] = []
    for which in range(len(operation.types)):
        own, waiting, seen = set[int](), [first + inputs + which], set[int]()
        while waiting:  # what a step makes of an accumulator, it makes of what the steps before left there
            accumulator = waiting.pop()
            if accumulator in seen:
                continue
            seen.add(accumulator)
            given = last.operands[accumulators[accumulator]]
            sources = {given} if given in accumulators else behind.get(given, {given})
            own |= behind[accumulator] | (sources - accumulators.keys())
            waiting += sources & accumulators.keys()
        reads.append(own)
    return reads


def _within(operation: Operation) -> Iterator[Operation]:
    yield operation
    for block in operation.blocks:
        for inner in block.operations:
            yield from _within(inner)
