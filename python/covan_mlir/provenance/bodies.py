"""What each node of the final program computes, as its own IR says it: no location is read.

A body is straight-line code over tensors, in operations of MLIR (linalg, tensor, arith, math, scf) with their names, as
they stood when dispatches were formed; that of a kernel of our own is the chain that it was written for. Values are
numbered in the order of the text: inputs first, then, operation by operation, the arguments and values of its blocks,
and its results. As JSON each type is an array.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any

from msgspec import Struct

from covan_mlir.provenance.program_graph import Argument, NodeResult, Unknown


class Operation(Struct, frozen=True, array_like=True, omit_defaults=True):
    """One operation.

    Attributes:
        name: such as ``arith.addf``; of a comparison with its predicate, ``arith.cmpf:ogt``.
        operands: numbers of values before it, also of such around the block that it stands in.
        types: of its results: ``f32[6, 9]``, ``i64``; a size that is known at run time only is ``?``.
        attributes: as JSON; affine maps and other attributes without such a form as MLIR prints them.
        blocks: one per region.
    """

    name: str
    operands: tuple[int, ...] = ()
    types: tuple[str, ...] = ()
    attributes: dict[str, Any] = {}
    blocks: tuple[Block, ...] = ()

    def renumbered(self, number: Callable[[int], int]) -> Operation:
        """The same, in code whose values have other numbers."""
        blocks = tuple(
            Block(block.arguments, tuple(inner.renumbered(number) for inner in block.operations))
            for block in self.blocks
        )
        return Operation(self.name, tuple(map(number, self.operands)), self.types, self.attributes, blocks)


class Block(Struct, frozen=True, array_like=True):
    """The only block of a region: types of its arguments, and operations up to the terminator."""

    arguments: tuple[str, ...]
    operations: tuple[Operation, ...]


class Body(Struct, frozen=True, array_like=True):
    """What a node computes.

    Attributes:
        inputs: types of what it reads.
        results: numbers of the values that it gives; of one that is written in place, of the target.
    """

    inputs: tuple[str, ...]
    operations: tuple[Operation, ...]
    results: tuple[int, ...]


_RESOURCE = "weight_"
_SPECIAL = re.compile(r"\W")


def resource_name(name: str) -> str:
    """What the resource of a weight, or of a constant part, is called in IR."""
    return _RESOURCE + _SPECIAL.sub("_", name)


class Weight(Struct, frozen=True, array_like=True, tag="weight"):
    """A weight as it is, by name; one that the program holds, or a constant part, by its `resource_name`."""

    name: str


class Number(Struct, frozen=True, array_like=True, tag="number"):
    """A constant of which each element is the same: a number, or ``inf``, ``-inf``, ``nan``."""

    value: int | float | bool | str


class Opaque(Struct, frozen=True, array_like=True, tag="opaque"):
    """A constant of the program: a weight, or what was computed of weights, or of nothing.

    Attributes:
        elements: in row-major order, of a short one; none of others.
    """

    elements: tuple[int | float | bool, ...] = ()


class Memory(Struct, frozen=True, array_like=True, tag="memory"):
    """Memory that nothing was written to."""


class Iteration(Struct, frozen=True, array_like=True, tag="iteration"):
    """How many iterations of the loop around were done before."""


Operand = Argument | NodeResult | Weight | Number | Opaque | Memory | Iteration | Unknown


class NodeBody(Struct, frozen=True, array_like=True):
    """What one node computes.

    Attributes:
        body: its position in `Bodies.bodies`; None: nothing can be read of it, as of the first of two dispatches that
            are one kernel.
        operands: what the inputs of the body are. Elements are those of the value in their order, in another shape
            perhaps.
        missing: why there is no body, in words; empty if it is a share of what another node gives in full.
    """

    body: int | None
    operands: tuple[Operand, ...] = ()
    missing: str = ""


_NOT_FINITE = ("inf", "-inf", "nan")


class Runs(Struct, frozen=True):
    """Elements of a weight that are one number and follow one another, in row-major order.

    Attributes:
        starts: position of the first one of each run.
        lengths: of each run.
        numbers: what its elements are; text if that is not finite.
    """

    starts: list[int]
    lengths: list[int]
    numbers: list[int | float | bool | str]

    @property
    def ordered(self) -> bool:
        """Whether each run has a length and a number, and ends before the next one."""
        ends = [start + length for start, length in zip(self.starts, self.lengths, strict=False)]
        return (
            len(self.starts) == len(self.lengths) == len(self.numbers) > 0
            and min(self.lengths) > 0
            and all(end <= start for end, start in zip([0, *ends], self.starts, strict=False))
            and all(not isinstance(number, str) or number in _NOT_FINITE for number in self.numbers)
        )


Held = int | float | bool | str | list[int | float | bool] | Runs
"""What a weight holds: the number that all its elements are, or all elements, in row-major order, or some."""


class Bodies(Struct, frozen=True, array_like=True):
    """The bodies of a program, equal ones once, and what each node of its graph computes.

    Attributes:
        weights: by name, what those weights of the model hold that compilers take apart: all of whose elements are one
            number, and short ones: of integers, and such that numbers are computed of; of those that pieces are read
            of, the runs of one number.
    """

    bodies: tuple[Body, ...] = ()
    nodes: tuple[NodeBody, ...] = ()
    weights: dict[str, Held] = {}


@lru_cache(maxsize=1 << 14)
def shape_of(kind: str) -> tuple[str, tuple[int, ...] | None]:
    """-> (element type, sizes) of a type as text: None for a scalar; -1 for a size known at run time only."""
    element, bracket, rest = kind.partition("[")
    if not bracket:
        return element, None
    return element, tuple(-1 if size == "?" else int(size) for size in rest.rstrip("]").split(", ") if size)


def result_types(body: Body) -> list[str]:
    """The types of what a body gives."""
    types = [*body.inputs]
    _collect(body.operations, types)
    return [types[number] for number in body.results]


def _collect(operations: Iterable[Operation], types: list[str]) -> None:
    """The types of the values of some operations, by their numbers."""
    for operation in operations:
        for block in operation.blocks:
            types += block.arguments
            _collect(block.operations, types)
        types += operation.types


def malformed(bodies: Bodies, nodes: int) -> str:
    """What is wrong with the numbers in bodies of a graph of some nodes, in words; empty if nothing is."""
    if bodies.nodes and len(bodies.nodes) != nodes:
        return f"there are bodies of {len(bodies.nodes)} nodes for {nodes}"
    for body in bodies.bodies:
        count = _count(body.operations, len(body.inputs))
        if count is None or any(not 0 <= number < count for number in body.results):
            return "an operation reads a value that is not before it"
    for node in bodies.nodes:
        if node.body is None:
            continue
        if not 0 <= node.body < len(bodies.bodies):
            return f"there is no body {node.body}"
        if len(bodies.bodies[node.body].inputs) != len(node.operands):
            return f"body {node.body} has another number of inputs"
        for operand in node.operands:
            if isinstance(operand, NodeResult) and not 0 <= operand.node < nodes:
                return f"there is no node {operand.node}"
    for name, held in bodies.weights.items():
        if isinstance(held, Runs) and not held.ordered:
            return f"the runs of {name} are not in order"
    return ""


def _count(operations: Iterable[Operation], count: int) -> int | None:
    """The number of values behind some operations; None if one of them reads what is not before it."""
    for operation in operations:
        if any(not 0 <= number < count for number in operation.operands):
            return None
        for block in operation.blocks:
            inner = _count(block.operations, count + len(block.arguments))
            if inner is None:
                return None
            count = inner
        count += len(operation.types)
    return count


def walk(operations: Iterable[Operation]) -> Iterator[Operation]:
    """All operations, those in blocks behind the one that holds them."""
    for operation in operations:
        yield operation
        for block in operation.blocks:
            yield from walk(block.operations)
