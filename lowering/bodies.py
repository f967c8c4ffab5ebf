"""Reads what each node of the program computes (`covan_mlir.provenance.bodies`) from IREE's module after dispatch
creation. Nodes are known by their marks; nothing else is read of locations.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import iree.compiler.ir as ir
import msgspec
import numpy as np
from iree.compiler.passmanager import PassManager

from covan_mlir.lowering import marks
from covan_mlir.lowering.dispatch_graph import EMPTY, VIEWS, is_filling
from covan_mlir.lowering.kernels.chain_body import KernelBody
from covan_mlir.provenance.bodies import (
    Block,
    Bodies,
    Body,
    Iteration,
    Memory,
    NodeBody,
    Number,
    Opaque,
    Operand,
    Operation,
    Weight,
)
from covan_mlir.provenance.program_graph import Argument, NodeResult, Unknown, Value

_GENERALIZE = "builtin.module(util.func(linalg-generalize-named-ops),util.initializer(linalg-generalize-named-ops))"
_WORKGROUPS = "flow.dispatch.workgroups"
_KERNEL = "flow.dispatch"
_CONTROL = ("scf.if", "scf.for", "scf.while")
_JOIN = "covan.join"
_FUNCTIONS = ("util.func", "util.initializer")
_ALIKE = VIEWS | {"hal.tensor.export", "hal.tensor.alias"}
_FLOAT_PREDICATES = [
    *("false", "oeq", "ogt", "oge", "olt", "ole", "one", "ord"),
    *("ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true"),
]
_INTEGER_PREDICATES = ["eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge"]
_PREDICATES = {"arith.cmpf": _FLOAT_PREDICATES, "arith.cmpi": _INTEGER_PREDICATES}
# They let the compiler assume more; what is computed is the same.
_HINTS = frozenset(
    {"fastmath", "overflowFlags", "isExact", "nonNeg", "hal.executable.target", "linalg.memoized_indexing_maps"}
)
_SMALL = 64
"""Elements of a constant that are written down one by one."""
_RESOURCE = re.compile(r"dense_resource<(?P<name>weight_\w+)>")
_ITERATOR = re.compile(r"#linalg\.iterator_type<(\w+)>")
_WRITTEN = 1024
"""Elements of a constant that are written down beside what reads it."""
_TENSOR = re.compile(r"tensor<(?P<sizes>(?:(?:\d+|\?)x)*)(?P<element>complex<\w+>|\w+)")


def read_bodies(module: Any, nodes: int, kernels: Mapping[str, KernelBody], value: Callable[[Any], Value]) -> Bodies:
    """The bodies of a module whose nodes are marked.

    Args:
        nodes: how many there are.
        kernels: of our own, by the symbol of each of their dispatches.
        value: what a value of the module is in its graph; asked of those of branches and loops.
    """
    copy = module.operation.clone()
    joins: list[_Join] = []
    for op, original in zip(marks.walk(copy, *_CONTROL), marks.walk(module.operation, *_CONTROL), strict=True):
        op.attributes[_JOIN] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), len(joins))
        joins.append(_Join.of(original, value))
    PassManager.parse(_GENERALIZE).run(copy.operation)
    return _Reader(nodes, kernels, joins).read(copy.operation)


@dataclass(frozen=True)
class _Join:
    """What the results of a branch or loop are, and the arguments of its blocks, by region."""

    results: list[Operand]
    arguments: list[list[Operand]]

    @staticmethod
    def of(op: Any, value: Callable[[Any], Value]) -> _Join:
        def known(one: Any) -> Operand:
            stands_for = value(one)
            return stands_for if isinstance(stands_for, NodeResult | Argument) else Unknown()

        arguments = [[known(argument) for argument in block.arguments] for region in op.regions for block in region]
        if op.name == "scf.for" and _counts(op):
            arguments[0][0] = Iteration()
        return _Join([known(result) for result in op.results], arguments)


def _counts(op: Any) -> bool:
    """Whether a loop counts from 0 in steps of 1."""
    start, _, step = (operand.owner for operand in list(op.operands)[:3])
    return all(
        not isinstance(owner, ir.Block)
        and owner.name == "arith.constant"
        and ir.IntegerAttr(owner.operation.attributes["value"]).value == number
        for owner, number in ((start, 0), (step, 1))
    )


class _Reader:
    def __init__(self, nodes: int, kernels: Mapping[str, KernelBody], joins: Sequence[_Join]) -> None:
        self._kernels = kernels
        self._joins = joins
        self._nodes = [NodeBody(None, (), "the compiler formed it anew")] * nodes
        self._bodies: list[Body] = []
        self._known_bodies: dict[bytes, int] = {}
        self._globals: dict[str, Operand] = {}
        self._numbers: dict[str, Any] = {}
        """What globals hold that are numbers, and known."""

    def read(self, module: Any) -> Bodies:
        functions = [view.operation for view in module.regions[0].blocks[0]]
        for op in functions:
            if op.name == "util.global":
                name = op.attributes["sym_name"].value
                self._globals[name] = _initial(op)
                if "initial_value" in op.attributes and "is_mutable" not in op.attributes:
                    self._numbers[name] = op.attributes["initial_value"]
        for function in sorted(functions, key=lambda op: op.name != "util.initializer"):
            if function.name in _FUNCTIONS:
                for block in function.regions[0]:
                    self._block(block)
        return Bodies(tuple(self._bodies), tuple(self._nodes))

    def _block(self, block: Any) -> None:
        for view in block:
            op = view.operation
            if op.name == "util.global.store":
                self._store(op.attributes["global"].value, op.operands[0])
            index = marks.mark_of(op.location)
            if index is not None and len(op.results) and index < len(self._nodes):
                self._nodes[index] = self._node(op)
            elif op.name not in (_WORKGROUPS, _KERNEL):
                for region in op.regions:
                    for inner in region:
                        self._block(inner)

    def _store(self, name: str, value: Any) -> None:
        self._globals[name] = self._operand(value)
        loaded = not isinstance(value.owner, ir.Block) and value.owner.name == "util.global.load"
        if loaded and (other := value.owner.attributes["global"].value) in self._numbers:
            self._numbers[name] = self._numbers[other]
        else:
            self._numbers.pop(name, None)

    def _operand(self, value: Any) -> Operand:
        """What a value of a function is."""
        while True:
            if isinstance(value.owner, ir.Block):
                number, holder = ir.BlockArgument(value).arg_number, value.owner.owner.operation
                if holder.name in _FUNCTIONS:
                    return Argument(number)
                if _JOIN not in holder.attributes:
                    return Unknown()
                region = next(k for k, region in enumerate(holder.regions) if region.blocks[0] == value.owner)
                argument: Operand = self._join(holder).arguments[region][number]
                return argument
            owner = value.owner.operation
            if _JOIN in owner.attributes:
                result: Operand = self._join(owner).results[ir.OpResult(value).result_number]
                return result
            index = marks.mark_of(owner.location)
            if index is not None:
                return NodeResult(index, ir.OpResult(value).result_number)
            if owner.name == "util.global.load":
                return self._globals.get(owner.attributes["global"].value, Opaque())
            if owner.name in EMPTY:
                return Memory()
            if owner.name in ("arith.constant", "flow.tensor.constant"):
                return _held(owner)
            if owner.name == "hal.tensor.barrier":
                value = owner.operands[ir.OpResult(value).result_number]
            elif owner.name in _ALIKE or owner.name == "hal.tensor.import":
                value = owner.operands[0]
            else:
                return Unknown()

    def _join(self, op: Any) -> _Join:
        index: int = ir.IntegerAttr(op.attributes[_JOIN]).value
        return self._joins[index]

    def _node(self, op: Any) -> NodeBody:
        try:
            if op.name == _KERNEL:
                return self._kernel(op)
            if op.name == "flow.tensor.constant":
                return self._known(Body((_type(op.results[0].type),), (), (0,)), [_held(op)])
            writer = _Writer(self._operand, self._numbers)
            return self._known(writer.dispatch(op) if op.name == _WORKGROUPS else writer.single(op), writer.operands)
        except _UnreadableError as error:
            return NodeBody(None, (), str(error))

    def _known(self, body: Body, operands: Sequence[Operand]) -> NodeBody:
        content = msgspec.json.encode(body)
        if content not in self._known_bodies:
            self._known_bodies[content] = len(self._bodies)
            self._bodies.append(body)
        return NodeBody(self._known_bodies[content], tuple(operands))

    def _kernel(self, op: Any) -> NodeBody:
        symbol = _symbol(op)
        kernel = self._kernels.get(symbol)
        if kernel is None:
            return NodeBody(None, (), f"nothing is known of the executable {symbol}")
        if symbol != kernel.last:
            return NodeBody(None)
        writer = _Writer(self._operand, self._numbers)
        return self._known(writer.kernel(kernel, _named(op, kernel)), writer.operands)


class _UnreadableError(Exception):
    """Part of an operation has no form in a body; the message says which."""


def _symbol(op: Any) -> str:
    return str(op.attributes["entry_points"][0]).rsplit("@", 1)[-1].strip('"')


def _named(op: Any, kernel: KernelBody) -> dict[str, tuple[Any, list[Any]]]:
    """The operands of a kernel by name, with those of their sizes that are known at run time only: operands of its last
    dispatch, and of the others whose results it reads."""
    values: dict[str, tuple[Any, list[Any]]] = {}
    stack = [op]
    while stack:
        dispatch = stack.pop()
        symbol = _symbol(dispatch)
        tensors = [operand for operand in dispatch.operands if "tensor<" in str(operand.type)]
        workload, arguments = (ir.DenseI32ArrayAttr(dispatch.attributes["operandSegmentSizes"])[k] for k in range(2))
        sizes = list(dispatch.operands)[workload + arguments :]
        for name, value in zip(kernel.operands[symbol], tensors, strict=False):
            count = _type(value.type).count("?")
            own, sizes = sizes[:count], sizes[count:]
            if name in values:
                continue
            values[name] = value, own
            if isinstance(value.owner, ir.Block):
                continue
            owner = value.owner.operation
            if owner.name == _KERNEL and name in kernel.outputs.get(_symbol(owner), ()):
                stack.append(owner)
    return values


@dataclass
class _Writer:
    """Writes one body.

    Attributes:
        held: what globals hold that are numbers.
        operands: what its inputs are.
    """

    operand: Callable[[Any], Operand]
    held: Mapping[str, Any]
    operands: list[Operand] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    _numbers: dict[Any, int] = field(default_factory=dict)
    _count: int = 0
    _outer: list[Operation] = field(default_factory=list)
    _opaque: dict[Any, int] = field(default_factory=dict)
    """Constants in the operation that are inputs of the body."""

    def single(self, op: Any) -> Body:
        """The body of a node that is one operation of a function."""
        self._leaves(op.operands, op)
        operations = (*self._outer, self._operation(op))
        return Body(tuple(self.inputs), operations, tuple(self._numbers[result] for result in op.results))

    def dispatch(self, op: Any) -> Body:
        """The body of a dispatch: its region, with memory for each result that is not written in place."""
        self._leaves(op.operands, op)
        segments = ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"])
        workload, arguments, argument_sizes = (segments[k] for k in range(3))
        operands = list(op.operands)
        given, sizes = operands[workload : workload + arguments], operands[workload + arguments + argument_sizes :]
        (block,) = op.regions[0].blocks
        outer = list(self._outer)
        results: list[int] = []
        tied: dict[int, int] = {}
        if "tied_operands" in op.attributes:
            for result, number in enumerate(op.attributes["tied_operands"]):
                if ir.IntegerAttr(number).value >= 0:
                    tied[result] = ir.IntegerAttr(number).value
        readwrite: list[int] = []
        for argument, value in zip(block.arguments, given, strict=False):
            self._numbers[argument] = self._numbers[value]
            if "<readwrite:" in str(argument.type):
                readwrite.append(self._numbers[value])
        fresh = [argument for argument in list(block.arguments)[len(given) :] if "<writeonly:" in str(argument.type)]
        for result in range(len(op.results)):
            if result in tied:
                results.append(readwrite.pop(0))
                continue
            argument, kind = fresh.pop(0), _type(op.results[result].type)
            count = kind.count("?")
            dims, sizes = sizes[:count], sizes[count:]
            outer.append(Operation("tensor.empty", tuple(self._numbers[dim] for dim in dims), (kind,)))
            self._numbers[argument] = self._take()
            results.append(self._numbers[argument])
        inner = self._operations(block)
        return Body(tuple(self.inputs), (*outer, *inner), tuple(results))

    def kernel(self, kernel: KernelBody, values: Mapping[str, tuple[Any, list[Any]]]) -> Body:
        """The body of a kernel of our own, whose operands are known by name: what its chain computes, of operands in
        the sizes that the program gives them."""
        self.inputs = list(kernel.body.inputs)
        self.operands = [self.operand(values[name][0]) if name in values else Opaque() for name in kernel.inputs]
        self._count = len(self.inputs)
        self._leaves(size for _, sizes in values.values() for size in sizes)
        numbers = {number: number for number in range(len(self.inputs))}
        for number, name in enumerate(kernel.inputs):
            kind, (_, sizes) = self.inputs[number], values.get(name, (None, []))
            if sizes and kind.count("?") == len(sizes):
                dims = tuple(self._numbers[size] for size in sizes)
                self._outer.append(Operation("flow.tensor.tie_shape", (number, *dims), (kind,)))
                numbers[number] = self._take()
        own, shift = len(kernel.body.inputs), self._count - len(kernel.body.inputs)

        def renumbered(number: int) -> int:
            return numbers[number] if number < own else number + shift

        operations = tuple(operation.renumbered(renumbered) for operation in kernel.body.operations)
        return Body(tuple(self.inputs), (*self._outer, *operations), tuple(map(renumbered, kernel.body.results)))

    def _leaves(self, operands: Iterable[Any], op: Any = None) -> None:
        """Inputs first, operands and then constants in an operation: their numbers are the least. Numbers that are none
        of tensors are computed in the body."""
        scalars: list[Any] = []
        seen: set[Any] = set()
        stack = list(reversed(list(operands)))
        while stack:
            value = stack.pop()
            if value in seen:
                continue
            seen.add(value)
            if isinstance(value.owner, ir.Block) or not (_is_scalar(value.type) or is_filling(value.owner.operation)):
                self.inputs.append(_type(value.type))
                self.operands.append(self.operand(value))
                self._numbers[value] = self._take()
            elif len(value.owner.regions):
                raise _UnreadableError(f"a size that {value.owner.operation.name} computes")
            else:
                scalars.append(value)
                stack += reversed(value.owner.operands)
        for inner in marks.walk(op, "arith.constant") if op is not None else ():
            if _is_complex(inner.results[0].type):  # the bindings have no such attribute
                self.inputs.append(_type(inner.results[0].type))
                self.operands.append(Opaque())
                self._opaque[inner.results[0]] = self._take()
            elif _is_opaque(inner.attributes["value"]):
                self.inputs.append(_type(inner.results[0].type))
                self.operands.append(_constant(inner.attributes["value"]))
                self._opaque[inner.results[0]] = self._take()
        for value in scalars:
            self._scalar(value)

    def _scalar(self, value: Any) -> None:
        if value in self._numbers:
            return
        for operand in value.owner.operands:
            self._scalar(operand)
        self._outer.append(self._operation(value.owner.operation))

    def _take(self) -> int:
        self._count += 1
        return self._count - 1

    def _operations(self, block: Any) -> tuple[Operation, ...]:
        operations: list[Operation] = []
        for view in block:
            op = view.operation
            if op.name == "arith.constant" and op.results[0] in self._opaque:
                self._numbers[op.results[0]] = self._opaque[op.results[0]]
            elif op.name != "flow.return":
                operations.append(self._operation(op))
        return tuple(operations)

    def _operation(self, op: Any) -> Operation:
        try:
            operands = tuple(self._numbers[operand] for operand in op.operands)
        except KeyError:
            raise _UnreadableError(f"an operand of {op.name} comes from elsewhere") from None
        name, attributes = op.name, {}
        if name == "util.global.load" and (number := self.held.get(op.attributes["global"].value)) is not None:
            self._numbers[op.results[0]] = self._take()
            return Operation("arith.constant", (), (_type(op.results[0].type),), {"value": _attribute(number)})
        for key in op.attributes:
            if key in _HINTS or key.startswith("iree_"):
                continue
            attribute = op.attributes[key]
            if name in _PREDICATES and key == "predicate":
                name = f"{name}:{_PREDICATES[name][ir.IntegerAttr(attribute).value]}"
            else:
                attributes[key] = _attribute(attribute)
        blocks = []
        for region in op.regions:
            if len(region.blocks) > 1:
                raise _UnreadableError(f"{op.name} has branches")
            for block in region.blocks:
                for argument in block.arguments:
                    self._numbers[argument] = self._take()
                arguments = tuple(_type(argument.type) for argument in block.arguments)
                blocks.append(Block(arguments, self._operations(block)))
        for result in op.results:
            self._numbers[result] = self._take()
        return Operation(name, operands, tuple(_type(result.type) for result in op.results), attributes, tuple(blocks))


def _is_scalar(kind: Any) -> bool:
    return isinstance(
        kind, ir.IndexType | ir.IntegerType | ir.F32Type | ir.F64Type | ir.F16Type | ir.BF16Type | ir.ComplexType
    )


def _type(kind: Any) -> str:
    text = str(kind)
    match = _TENSOR.search(text)
    if match is None:
        return text
    return f"{match['element']}[{', '.join(match['sizes'].split('x')[:-1])}]"


def _attribute(attribute: Any) -> Any:
    """An attribute as JSON."""
    if isinstance(attribute, ir.BoolAttr):
        return bool(attribute.value)
    if isinstance(attribute, ir.IntegerAttr):
        return bool(attribute.value) if str(attribute.type) == "i1" else attribute.value
    if isinstance(attribute, ir.FloatAttr):
        return _number(attribute.value)
    if isinstance(attribute, ir.StringAttr):
        return attribute.value
    if isinstance(attribute, ir.ArrayAttr):
        return [_attribute(inner) for inner in attribute]
    if isinstance(attribute, ir.DenseI64ArrayAttr | ir.DenseI32ArrayAttr | ir.DenseBoolArrayAttr):
        return list(attribute)
    if isinstance(attribute, ir.DenseElementsAttr):
        if attribute.is_splat:
            return {"splat": _attribute(attribute.get_splat_value())}
        return {"elements": np.array(attribute).reshape(-1).tolist()}
    if isinstance(attribute, ir.AffineMapAttr):
        return str(attribute).removeprefix("affine_map<").removesuffix(">")
    return _ITERATOR.sub(r"\1", str(attribute))


def _is_complex(kind: Any) -> bool:
    return isinstance(getattr(kind, "element_type", kind), ir.ComplexType)


def _is_opaque(attribute: Any) -> bool:
    """Whether a constant stands for a tensor of which each element is another: but for short ones of integers."""
    if isinstance(attribute, ir.IntegerAttr | ir.FloatAttr | ir.BoolAttr):
        return False
    if not isinstance(attribute, ir.DenseElementsAttr):
        return True
    if attribute.is_splat:
        return False
    return not isinstance(attribute, ir.DenseIntElementsAttr) or len(attribute) > _SMALL


def _number(value: Any) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _held(constant: Any) -> Operand:
    """What an operation that is a constant gives."""
    return Opaque() if _is_complex(constant.results[0].type) else _constant(constant.attributes["value"])


def _constant(attribute: Any) -> Operand:
    if isinstance(attribute, ir.DenseElementsAttr):
        if attribute.is_splat:
            return Number(_attribute(attribute.get_splat_value()))
        return Opaque(_elements(attribute)) if len(attribute) <= _WRITTEN else Opaque()
    match = _RESOURCE.match(str(attribute))
    return Weight(match["name"]) if match else Opaque()


def _elements(attribute: Any) -> tuple[Any, ...]:
    """The elements of a constant, if they are numbers that numpy and JSON have."""
    try:
        elements = np.array(attribute).reshape(-1)
    except (RuntimeError, TypeError, ValueError):
        return ()
    return tuple(elements.tolist()) if np.isfinite(elements).all() else ()


def _initial(op: Any) -> Operand:
    """What a global holds before anything is stored to it."""
    if "initial_value" not in op.attributes:
        return Opaque()
    attribute = op.attributes["initial_value"]
    text = str(attribute) if not isinstance(attribute, ir.DenseElementsAttr) else ""
    match = re.match(r'#flow\.parameter\.named<(?:"[^"]*"::)?"(?P<name>[^"]*)">', text)
    return Weight(match["name"]) if match else _constant(attribute)
