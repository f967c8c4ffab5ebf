"""A ``fred.chain`` as the data that passes work on, and the data as the operation.

>>> chain = read_chain(op)  # doctest: +SKIP
>>> write_chain(chain, operands)  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from torch_mlir import ir

from covan_mlir.fred.chain import Axis, Chain, ChainError, Combine, Input, Map, Reduce, Step
from covan_mlir.fred.expression import Expr, Extent, Index, Read

from .fred_scalars import UnreadableError, attribute_of, constant, read_op, write
from .prov_locations import TRACE, TraceReader

COMBINES: frozenset[str] = frozenset(get_args(Combine))
_DYNAMIC = -1


class MalformedChain(ValueError):
    """What is wrong with a ``fred.chain``; ``op`` is where."""

    def __init__(self, message: str, op: Any) -> None:
        super().__init__(message)
        self.op = op


def tensor_type(dtype: str, sizes: Sequence[int | None], context: ir.Context) -> ir.Type:
    """The type of a tensor with these sizes, None where they are dynamic."""
    shape = "".join("?x" if size is None else f"{size}x" for size in sizes)
    return ir.Type.parse(f"tensor<{shape}{dtype}>", context)


def _strings(attribute: Any, what: str, op: Any) -> tuple[str, ...]:
    if not isinstance(attribute, ir.ArrayAttr) or not all(isinstance(name, ir.StringAttr) for name in attribute):
        raise MalformedChain(f"{what} must be an array of strings, got {attribute}", op)
    return tuple(name.value for name in attribute)


def read_chain(op: ir.Operation) -> Chain:
    """The chain that a ``fred.chain`` is.

    Raises:
        MalformedChain: it is none; a verified module has no such.
    """
    return _Reader(op).chain()


class _Reader:
    def __init__(self, op: ir.Operation) -> None:
        self.op = op
        self.traces = TraceReader()
        self.known: dict[ir.Value, tuple[str, str]] = {}
        """Name and element type of each tensor."""
        self.scalars: dict[ir.Value, Expr] = {}
        self.steps: list[Step] = []
        self.outputs: list[str] = []

    def chain(self) -> Chain:
        op = self.op
        axes = self._axes()
        sizes = {axis.name: axis.size for axis in axes}
        block = self._block(op)
        names = _strings(op.attributes["names"], "names", op)
        rows = op.attributes["inputs"]
        if not len(names) == len(rows) == len(block.arguments) == len(op.operands):
            raise MalformedChain(
                f"has {len(op.operands)} operands, {len(block.arguments)} arguments of its block, {len(names)} names "
                f"and the axes of {len(rows)} inputs: there must be one of each",
                op,
            )
        inputs = []
        for index, (name, row, argument) in enumerate(zip(names, rows, block.arguments, strict=True)):
            if op.operands[index].type != argument.type:
                raise MalformedChain(
                    f"operand {index} is a {op.operands[index].type}, and the block takes a {argument.type}", op
                )
            along = _strings(row, f"the axes of input {index}", op)
            inputs.append(Input(name, along, self._check_type(argument, along, sizes, op)))
            self.known[argument] = (name, inputs[-1].dtype)
        for view in block:
            self._child(view.operation, sizes)
        if len(self.outputs) != len(op.results):
            raise MalformedChain(f"has {len(op.results)} results and {len(self.outputs)} fred.output", op)
        try:
            return Chain(axes, tuple(inputs), tuple(self.steps), tuple(self.outputs))
        except ChainError as error:
            raise MalformedChain(str(error), op) from error

    def _axes(self) -> tuple[Axis, ...]:
        names = _strings(self.op.attributes["axes"], "axes", self.op)
        sizes = [getattr(size, "value", None) for size in self.op.attributes["sizes"]]
        if len(names) != len(sizes):
            raise MalformedChain(f"names {len(names)} axes and says {len(sizes)} sizes", self.op)
        for name, size in zip(names, sizes, strict=True):
            if type(size) is not int or size < _DYNAMIC:
                raise MalformedChain(f"the size of axis {name} is {size}; -1 stands for one known at run time", self.op)
        return tuple(Axis(name, None if size == _DYNAMIC else size) for name, size in zip(names, sizes, strict=True))

    @staticmethod
    def _block(op: ir.Operation) -> ir.Block:
        blocks = list(op.regions[0].blocks)
        if len(blocks) != 1:
            raise MalformedChain(f"must have one block in its region, has {len(blocks)}", op)
        return blocks[0]

    @staticmethod
    def _check_type(value: ir.Value, axes: Sequence[str], sizes: Mapping[str, int | None], op: ir.Operation) -> str:
        kind: Any = value.type
        if not isinstance(kind, ir.RankedTensorType):
            raise MalformedChain(f"works on ranked tensors, not on a {kind}", op)
        dtype = str(kind.element_type)
        missing = [axis for axis in axes if axis not in sizes]
        if missing:
            raise MalformedChain(f"has the axis {missing[0]}, which the chain does not name", op)
        expected = tensor_type(dtype, [sizes[axis] for axis in axes], value.context)
        if kind != expected:
            raise MalformedChain(f"a value over [{', '.join(axes)}] is a {expected}, not a {kind}", op)
        return dtype

    def _child(self, op: ir.Operation, sizes: Mapping[str, int | None]) -> None:
        match op.name:
            case "fred.map" | "fred.reduce":
                self._step(op, sizes)
            case "fred.output":
                found = self.known.get(op.operands[0])
                if found is None:
                    raise MalformedChain("gives a value that is not the chain's", op)
                self.outputs.append(found[0])
                result = self.op.results[len(self.outputs) - 1] if len(self.outputs) <= len(self.op.results) else None
                if result is not None and result.type != op.operands[0].type:
                    raise MalformedChain(
                        f"gives a {op.operands[0].type}, and result {len(self.outputs) - 1} is a {result.type}", op
                    )
            case "arith.constant":  # where canonicalization puts them
                self.scalars[op.results[0]] = self._scalar(op)
            case name:
                raise MalformedChain(f"'{name}' cannot stand in a fred.chain, which holds steps and outputs only", op)

    def _step(self, op: ir.Operation, sizes: Mapping[str, int | None]) -> None:
        attributes = op.attributes
        axes = _strings(attributes["axes"], "axes", op)
        dtype = self._check_type(op.results[0], axes, sizes, op)
        expr = self._expression(op)
        if expr.dtype != dtype:
            raise MalformedChain(f"yields a {expr.dtype} and gives a tensor of {dtype}", op)
        name = attributes["value"].value
        trace = self._trace(op)
        if op.name == "fred.map":
            self.steps.append(Map(name, axes, expr, dtype, trace))
        else:
            combine: Any = attributes["combine"].value
            if combine not in COMBINES:
                raise MalformedChain(f"cannot combine by {combine!r}: one of {', '.join(sorted(COMBINES))}", op)
            initial = constant(attributes["initial"])
            if initial is None or initial.dtype != dtype:
                raise MalformedChain(f"starts from {attributes['initial']}, which is no {dtype}", op)
            over = _strings(attributes["over"], "over", op)
            if not over:
                raise MalformedChain("reduces over no axis", op)
            for axis in over:
                if axis not in sizes:
                    raise MalformedChain(f"reduces over {axis}, which is no axis of the chain", op)
            self.steps.append(Reduce(name, axes, over, combine, expr, initial, dtype, trace))
        self.known[op.results[0]] = (name, dtype)

    def _trace(self, op: ir.Operation) -> frozenset[int]:
        ids: set[int] = set()

        def visit(nested: ir.Operation) -> ir.WalkResult:
            ids.update(self.traces.ids(nested.location))
            return ir.WalkResult.ADVANCE

        op.walk(visit)
        return frozenset(ids)

    def _expression(self, step: ir.Operation) -> Expr:
        block = self._block(step)
        if len(block.arguments):
            raise MalformedChain("has an expression with arguments; it reads by fred.read", step)
        scalars = self.scalars.copy()
        for view in block:
            op = view.operation
            if op.name == "fred.yield":
                if op.operands[0] not in scalars:
                    raise MalformedChain("yields a value from outside of the expression", op)
                return scalars[op.operands[0]]
            scalars[op.results[0]] = self._scalar(op, scalars)
        raise MalformedChain("has an expression without a fred.yield", step)

    def _scalar(self, op: ir.Operation, scalars: Mapping[ir.Value, Expr] | None = None) -> Expr:
        if op.name == "fred.read":
            found = self.known.get(op.operands[0])
            if found is None:
                raise MalformedChain("reads a value that is neither an input nor an earlier step", op)
            if str(op.results[0].type) != found[1]:
                raise MalformedChain(f"reads a tensor of {found[1]} as a {op.results[0].type}", op)
            return Read(*found)
        if op.name == "fred.index":
            return Index(op.attributes["axis"].value)
        if op.name == "fred.extent":
            return Extent(op.attributes["axis"].value)
        args: list[Expr] = []
        for operand in op.operands:
            if scalars is None or operand not in scalars:
                raise MalformedChain(f"'{op.name}' reads a value from outside of the expression", op)
            args.append(scalars[operand])
        try:
            return read_op(op, tuple(args))
        except UnreadableError as error:
            raise MalformedChain(str(error), op) from error


def write_chain(
    chain: Chain, operands: Sequence[ir.Value], locations: Mapping[str, ir.Location] | None = None
) -> ir.Operation:
    """Builds the ``fred.chain`` at the current insertion point and location.

    Args:
        operands: one per input of the chain, each of its type.
        locations: of the steps, by name; by default made of their traces.

    Raises:
        ChainError: it has more inputs or outputs than the operation can have.
    """
    from .fred import MAX_INPUTS, MAX_OUTPUTS

    if len(chain.inputs) > MAX_INPUTS or len(chain.outputs) > MAX_OUTPUTS:
        raise ChainError(f"a fred.chain has at most {MAX_INPUTS} inputs and {MAX_OUTPUTS} outputs")
    context = ir.Context.current
    here = ir.Location.current
    kinds = {
        value.name: tensor_type(value.dtype, [chain.sizes[axis] for axis in value.axes], context)
        for value in chain.values.values()
    }

    def strings(names: Sequence[str]) -> ir.ArrayAttr:
        return ir.ArrayAttr.get([ir.StringAttr.get(name) for name in names])

    def i64(number: int) -> ir.Attribute:
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)

    def segments(number: int, places: int) -> ir.Attribute:
        return ir.DenseI32ArrayAttr.get([1] * number + [0] * (places - number))

    attributes = {
        "axes": strings([axis.name for axis in chain.axes]),
        "sizes": ir.ArrayAttr.get([i64(_DYNAMIC if axis.size is None else axis.size) for axis in chain.axes]),
        "names": strings([value.name for value in chain.inputs]),
        "inputs": ir.ArrayAttr.get([strings(value.axes) for value in chain.inputs]),
        "operandSegmentSizes": segments(len(chain.inputs), MAX_INPUTS),
        "resultSegmentSizes": segments(len(chain.outputs), MAX_OUTPUTS),
    }
    results = [kinds[name] for name in chain.outputs]
    op = ir.Operation.create("fred.chain", results, list(operands), attributes=attributes, regions=1)
    arguments = [kinds[value.name] for value in chain.inputs]
    block = op.regions[0].blocks.append(*arguments, arg_locs=[here] * len(arguments))
    tensors: dict[str, ir.Value] = {
        value.name: argument for value, argument in zip(chain.inputs, block.arguments, strict=True)
    }
    with ir.InsertionPoint(block):
        for step in chain.steps:
            given = locations.get(step.name) if locations is not None else None
            with given or _traced(step.trace, here):
                tensors[step.name] = _write_step(step, kinds[step.name], tensors, strings, context)
        for name in chain.outputs:
            ir.Operation.create("fred.output", [], [tensors[name]])
    return op


def _traced(trace: frozenset[int], here: ir.Location) -> ir.Location:
    if not trace:
        return here
    i64 = ir.IntegerType.get_signless(64)
    ids = ir.ArrayAttr.get([ir.IntegerAttr.get(i64, id_) for id_ in sorted(trace)])
    return ir.Location.fused([], ir.DynamicAttr.get(TRACE, [ids]))


def _write_step(
    step: Step, kind: ir.Type, tensors: Mapping[str, ir.Value], strings: Any, context: ir.Context
) -> ir.Value:
    attributes: dict[str, ir.Attribute] = {"value": ir.StringAttr.get(step.name), "axes": strings(step.axes)}
    if isinstance(step, Reduce):
        attributes["over"] = strings(step.over)
        attributes["combine"] = ir.StringAttr.get(step.combine)
        attributes["initial"] = attribute_of(step.initial, context)
    name = "fred.reduce" if isinstance(step, Reduce) else "fred.map"
    op = ir.Operation.create(name, [kind], [], attributes=attributes, regions=1)

    def leaf(node: Read | Index | Extent) -> ir.Value:
        if isinstance(node, Read):
            element = ir.Type.parse(node.dtype)
            return ir.Operation.create("fred.read", [element], [tensors[node.name]]).results[0]
        axis = {"axis": ir.StringAttr.get(node.axis)}
        name = "fred.index" if isinstance(node, Index) else "fred.extent"
        return ir.Operation.create(name, [ir.IndexType.get()], attributes=axis).results[0]

    with ir.InsertionPoint(op.regions[0].blocks.append()):
        ir.Operation.create("fred.yield", [], [write(step.expr, leaf, context)])
    return op.results[0]
