"""A ``fred.chain`` as the data that passes work on, and the data as the operation.

>>> chain = read_chain(op)  # doctest: +SKIP
>>> write_chain(chain, operands)  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from torch_mlir import ir

from covan_mlir.dialects.fred_limits import MAX_INPUTS, MAX_OUTPUTS
from covan_mlir.dialects.fred_steps import (
    MalformedChain,
    StepReader,
    StepWriter,
    only_block,
    segments,
    strings,
    strings_of,
    traced,
)
from covan_mlir.fred.chain import Axis, Chain, ChainError, Input, Step

WEIGHTS = "weights"
"""Attribute of a chain: the names of the inputs that are the same at every call; absent where there is none."""

_DYNAMIC = -1


def chains(op: ir.Operation, *names: str) -> Iterator[ir.Operation]:
    """The ops of these names in ``op``, which are never nested: ``fred.chain``, ``fred.fused``."""
    ops: list[ir.Operation] = []

    def visit(nested: ir.Operation) -> ir.WalkResult:
        if nested.name in names:
            ops.append(nested)
            return ir.WalkResult.SKIP
        return ir.WalkResult.ADVANCE

    op.walk(visit, ir.WalkOrder.PRE_ORDER)
    return iter(ops)


def read_chain(op: ir.Operation) -> Chain:
    """The chain that a ``fred.chain`` is, or that a ``fred.fused`` computes.

    Raises:
        MalformedChain: it is none; a verified module has no such.
    """
    axes = read_axes(op)
    reader = StepReader({axis.name: axis.size for axis in axes})
    inputs = read_inputs(op, 0, reader)
    steps: list[Step] = []
    outputs = OutputReader(op, reader)
    for view in only_block(op):
        child = view.operation
        match child.name:
            case "fred.map" | "fred.reduce":
                steps.append(reader.step(child))
            case "fred.output":
                outputs.add(child)
            case "arith.constant":
                reader.constant(child)
            case name:
                raise MalformedChain(f"'{name}' cannot stand in a {op.name}, which holds steps and outputs only", child)
    try:
        return Chain(axes, inputs, tuple(steps), outputs.names())
    except ChainError as error:
        raise MalformedChain(str(error), op) from error


def read_axes(op: ir.Operation) -> tuple[Axis, ...]:
    """The axes that an op names.

    Raises:
        MalformedChain: there is not one size for each.
    """
    names = strings_of(op.attributes["axes"], "axes", op)
    sizes = [getattr(size, "value", None) for size in op.attributes["sizes"]]
    if len(names) != len(sizes):
        raise MalformedChain(f"names {len(names)} axes and says {len(sizes)} sizes", op)
    for name, size in zip(names, sizes, strict=True):
        if type(size) is not int or size < _DYNAMIC:
            raise MalformedChain(f"the size of axis {name} is {size}; -1 stands for one known at run time", op)
    return tuple(Axis(name, None if size == _DYNAMIC else size) for name, size in zip(names, sizes, strict=True))


def read_inputs(op: ir.Operation, region: int, reader: StepReader) -> tuple[Input, ...]:
    """The inputs, as the arguments of a region's block.

    Raises:
        MalformedChain: there is not one argument, of the same type, for each operand.
    """
    block = only_block(op, region)
    names = strings_of(op.attributes["names"], "names", op)
    axes_attributes = op.attributes["inputs"]
    if not len(names) == len(axes_attributes) == len(block.arguments) == len(op.operands):
        raise MalformedChain(
            f"has {len(op.operands)} operands, {len(block.arguments)} arguments of its block, {len(names)} names "
            f"and the axes of {len(axes_attributes)} inputs: there must be one of each",
            op,
        )
    weights = strings_of(op.attributes[WEIGHTS], "weights", op) if WEIGHTS in op.attributes else ()
    if unknown := [name for name in weights if name not in names]:
        raise MalformedChain(f"says that {unknown[0]} is a weight, which is no input of it", op)
    inputs = []
    for index, (name, axes_attribute, argument) in enumerate(zip(names, axes_attributes, block.arguments, strict=True)):
        if op.operands[index].type != argument.type:
            raise MalformedChain(
                f"operand {index} is a {op.operands[index].type}, and the block takes a {argument.type}", op
            )
        along = strings_of(axes_attribute, f"the axes of input {index}", op)
        inputs.append(Input(name, along, reader.define(argument, name, along, op), name in weights))
    return tuple(inputs)


class OutputReader:
    """The names of the values that the ``fred.output`` ops of a region give."""

    def __init__(self, op: ir.Operation, reader: StepReader) -> None:
        self._op = op
        self._reader = reader
        self._names: list[str] = []

    def add(self, output: ir.Operation) -> None:
        """The next one."""
        definition = self._reader.known.get(output.operands[0])
        if definition is None:
            raise MalformedChain("gives a value that is not the chain's", output)
        number, kind = len(self._names), output.operands[0].type
        if number < len(self._op.results) and self._op.results[number].type != kind:
            raise MalformedChain(f"gives a {kind}, and result {number} is a {self._op.results[number].type}", output)
        self._names.append(definition[0])

    def names(self) -> tuple[str, ...]:
        """All of them, once the region is read."""
        if len(self._names) != len(self._op.results):
            raise MalformedChain(f"has {len(self._op.results)} results and {len(self._names)} fred.output", self._op)
        return tuple(self._names)


class StepLocation(NamedTuple):
    """Where a step says what it is.

    Attributes:
        value: of the operation: the parts whose value its result may be.
        work: of what it yields: all that it performs.
    """

    value: ir.Location
    work: ir.Location

    @staticmethod
    def of(location: ir.Location) -> StepLocation:
        """That of a step whose result may be the value of all that it performs."""
        return StepLocation(location, location)


def write_chain(
    chain: Chain, operands: Sequence[ir.Value], locations: Mapping[str, StepLocation] | None = None
) -> ir.Operation:
    """Builds the ``fred.chain`` at the current insertion point and location.

    Args:
        operands: one per input of the chain, each of its type.
        locations: of the steps, by name; by default made of their traces.

    Raises:
        ChainError: it has more inputs or outputs than the operation can have.
    """
    op = create("fred.chain", chain, operands, regions=1)
    write_body(op, 0, chain, locations or {})
    return op


def create(name: str, chain: Chain, operands: Sequence[ir.Value], regions: int) -> ir.Operation:
    """An op with the inputs, results and axes of a chain, its regions still empty.

    Raises:
        ChainError: it has more inputs or outputs than the operation can have.
    """
    if len(chain.inputs) > MAX_INPUTS or len(chain.outputs) > MAX_OUTPUTS:
        raise ChainError(f"a {name} has at most {MAX_INPUTS} inputs and {MAX_OUTPUTS} outputs")
    writer = StepWriter(chain.sizes, {}, ir.Context.current)
    i64 = ir.IntegerType.get_signless(64)
    sizes = [_DYNAMIC if axis.size is None else axis.size for axis in chain.axes]
    attributes = {
        "axes": strings([axis.name for axis in chain.axes]),
        "sizes": ir.ArrayAttr.get([ir.IntegerAttr.get(i64, size) for size in sizes]),
        "names": strings([value.name for value in chain.inputs]),
        "inputs": ir.ArrayAttr.get([strings(value.axes) for value in chain.inputs]),
        "operandSegmentSizes": segments(len(chain.inputs), MAX_INPUTS),
        "resultSegmentSizes": segments(len(chain.outputs), MAX_OUTPUTS),
    }
    if weights := [value.name for value in chain.inputs if value.weight]:
        attributes[WEIGHTS] = strings(weights)
    results = [writer.kind(chain.values[name].axes, chain.values[name].dtype) for name in chain.outputs]
    return ir.Operation.create(name, results, list(operands), attributes=attributes, regions=regions)


def input_block(op: ir.Operation, region: int, chain: Chain) -> StepWriter:
    """The block of a region, with an argument per input; a writer that knows them."""
    here = ir.Location.current
    writer = StepWriter(chain.sizes, {}, ir.Context.current)
    kinds = [writer.kind(value.axes, value.dtype) for value in chain.inputs]
    block = op.regions[region].blocks.append(*kinds, arg_locs=[here] * len(kinds))
    for value, argument in zip(chain.inputs, block.arguments, strict=True):
        writer.tensors[value.name] = argument
    return writer


def write_body(op: ir.Operation, region: int, chain: Chain, locations: Mapping[str, StepLocation]) -> None:
    """The steps and outputs of a chain, as a region."""
    here = ir.Location.current
    writer = input_block(op, region, chain)
    with ir.InsertionPoint(op.regions[region].blocks[0]):
        for step in chain.steps:
            where = locations.get(step.name) or StepLocation.of(traced(step.trace, here))
            with where.value:
                written = writer.step(step)
            only_block(written).operations[-1].location = where.work
        for name in chain.outputs:
            ir.Operation.create("fred.output", [], [writer.tensors[name]])
