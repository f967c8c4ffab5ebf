"""Which inputs of a body each of its results depends on: what one dispatch computes for several parts is several
functions."""

from __future__ import annotations

from collections.abc import Iterator

from covan_mlir.checking.payload import inner_values
from covan_mlir.provenance.bodies import Body, Operation


def inputs_of(body: Body, result: int) -> frozenset[int]:
    """The inputs that a result depends on, and those whose sizes are known at run time only."""
    depends: dict[int, set[int]] = {number: {number} for number in range(len(body.inputs))}
    count = len(body.inputs)
    for operation in body.operations:
        read = {number for one in _within(operation) for number in one.operands}
        behind = set[int]().union(*(depends.get(number, ()) for number in read))
        for one in _within(operation):
            if not one.types and len(one.operands) > 1:  # it writes into what it is given
                depends.setdefault(one.operands[1], set()).update(behind)
        count += inner_values(operation)
        for _ in operation.types:
            depends[count] = set(behind)
            count += 1
    sized = {number for number, kind in enumerate(body.inputs) if "?" in kind or "[" not in kind}
    return frozenset(depends.get(body.results[result], set()) | sized)


def _within(operation: Operation) -> Iterator[Operation]:
    yield operation
    for block in operation.blocks:
        for inner in block.operations:
            yield from _within(inner)
