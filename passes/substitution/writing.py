"""Nodes as operations of the torch dialect."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch_mlir import ir

from covan_mlir.passes.substitution.broadcasts import base_of
from covan_mlir.subst.program import Node, Store

VIEWS = frozenset({"permute", "slice.Tensor", "unsqueeze", "expand", "view"})
"""Operators whose results are memory of what they are given, by their schemas."""


class NotWritableError(Exception):
    """There is no operation for a node: a bug of whoever lets rules make one."""


@dataclass(frozen=True)
class Written:
    """An operation that was written.

    Attributes:
        node: that it gives, or is on the way to.
        operator: ``aten.mm.default``.
        arguments: that it is called with: values, numbers, lists of these.
        view: its result is memory of what it is given.
        helpers: numbers and lists that were written for it.
    """

    op: ir.Operation
    node: int
    operator: str
    arguments: tuple[Any, ...]
    named: tuple[tuple[str, Any], ...]
    view: bool
    helpers: tuple[ir.Operation, ...]


class Writer:
    """Writes nodes where an insertion point stands.

    Attributes:
        values: by node, those that are there, and those that were written.
        written: operations, in order.
    """

    def __init__(
        self,
        store: Store,
        values: dict[int, ir.Value],
        readers: Mapping[int, Sequence[int]],
        location: Callable[[int], ir.Location],
        context: ir.Context,
    ) -> None:
        """
        Args:
            readers: of each node, in the program that is written.
            location: of what does the work of a node.
        """
        self.store = store
        self.values = values
        self.written: list[Written] = []
        self._readers = readers
        self._location = location
        self._context = context
        self._node = -1
        self._helpers: list[ir.Operation] = []

    def value(self, number: int) -> ir.Value:
        """The value of a node.

        Raises:
            NotWritableError: none is there, and there is no operation for it.
        """
        if number in self.values:
            return self.values[number]
        node = self.store[number]
        writer = _WRITERS.get(node.op) if node.known else None
        if node.op.startswith("number "):
            value = self._number(number, node)
        elif writer is None:
            raise NotWritableError(f"nothing gives {node.op}")
        else:
            operands = self._operands(number, node)
            self._node = number
            with self._location(number):
                value = writer(self, node, operands)
        self.values[number] = value
        return value

    def _operands(self, number: int, node: Node) -> list[Any]:
        """What a node is written on: values, and node numbers of what is written with it."""
        if node.op in ("add", "sub", "mul", "div"):
            if node.op == "add" and (parts := self._biased(number, node)) is not None:
                (image, kernel), bias = parts
                return [self.value(image), self.value(kernel), self.value(bias)]
            return [self._broadcast(arg) for arg in node.args]
        if node.op == "concat":
            return [self.value(arg) for arg in self._pieces(number)]
        if node.op == "broadcast":
            return [self._broadcast(number)]
        if node.op == "scale" and self.store[node.args[1]].op.startswith("number "):
            return [self.value(node.args[0]), float(self.store[node.args[1]].op.removeprefix("number "))]
        return [self.value(arg) for arg in node.args]

    def _biased(self, number: int, node: Node) -> tuple[tuple[int, int], int] | None:
        """Of a convolution whose bias is added: its operands and the bias."""
        conv, added = node.args
        if self.store[conv].op != "conv" or conv in self.values or list(self._readers.get(conv, ())) != [number]:
            return None
        base, kept = base_of(self.store, added)
        if kept != [1] or added in self.values:
            return None
        image, kernel = self.store[conv].args
        return (image, kernel), base

    def _pieces(self, number: int) -> list[int]:
        """What is joined along one axis, one after the other."""
        node = self.store[number]
        first, last = node.args
        inner = self.store[first]
        alone = first not in self.values and inner.known and inner.op == "concat"
        if alone and inner.attributes == node.attributes and list(self._readers.get(first, ())) == [number]:
            return [*self._pieces(first), last]
        return [first, last]

    def _broadcast(self, number: int) -> ir.Value:
        """A tensor that stands for a node where axes are added in front, and repeated, by themselves."""
        if number in self.values or self.store[number].op != "broadcast":
            return self.value(number)
        base, kept = base_of(self.store, number)
        value = self.value(base)
        shape = list(self.store[base].shape)
        first = kept[0] if kept else len(self.store[number].shape)
        self._node = number
        for axis in range(first, len(self.store[number].shape)):
            if axis not in kept:
                shape.insert(axis - first, 1)
                with self._location(number):
                    value = self.call("unsqueeze", [value, axis - first], shape, self.store[number].element)
        return value

    def _number(self, number: int, node: Node) -> ir.Value:
        self._node = number
        kind = {"f32": (6, "float32"), "f64": (7, "float64")}[node.element]
        given = float(node.op.removeprefix("number "))
        with self._location(number):
            operands = [
                self._constant([]),
                self._constant(given),
                self._constant(kind[0]),
                *(self._constant(None) for _ in range(3)),
            ]
            return self._create(
                "full", operands, ([], given), (("dtype", {"t": kind[1]}),), node.shape, node.element, "default"
            )

    def call(
        self, name: str, arguments: Sequence[Any], shape: Sequence[int], element: str, behind: Sequence[Any] = ()
    ) -> ir.Value:
        """An operation's result; ``name`` as in ``slice.Tensor``.

        Args:
            behind: operands that the dialect has behind what is said.
        """
        operands = [self._constant(argument) for argument in (*arguments, *behind)]
        overload = "" if "." in name else "default"
        return self._create(name, operands, tuple(arguments), (), shape, element, overload)

    def _create(
        self,
        name: str,
        operands: Sequence[ir.Value],
        arguments: Sequence[Any],
        named: tuple[tuple[str, Any], ...],
        shape: Sequence[int],
        element: str,
        overload: str,
    ) -> ir.Value:
        kind = ir.Type.parse(f"!torch.vtensor<[{','.join(map(str, shape))}],{element}>", self._context)
        op = ir.Operation.create(f"torch.aten.{name}", results=[kind], operands=operands)
        operator = f"aten.{name}.{overload}" if overload else f"aten.{name}"
        helpers, self._helpers = tuple(self._helpers), []
        self.written.append(Written(op, self._node, operator, tuple(arguments), named, name in VIEWS, helpers))
        return op.results[0]

    def _constant(self, value: Any) -> ir.Value:
        if isinstance(value, ir.Value):
            return value
        if isinstance(value, list | tuple):
            items = [self._constant(item) for item in value]
            kind = str(items[0].type).removeprefix("!torch.").partition("<")[0] if items else "int"
            result = ir.Type.parse(f"!torch.list<{kind}>", self._context)
            return self._help("torch.prim.ListConstruct", result, items, None)
        name, scalar, attribute = _scalar(value, self._context)
        return self._help(name, scalar, (), attribute)

    def _help(self, name: str, kind: ir.Type, operands: Sequence[ir.Value], attribute: ir.Attribute | None) -> ir.Value:
        attributes = {} if attribute is None else {"value": attribute}
        op = ir.Operation.create(name, results=[kind], operands=list(operands), attributes=attributes)
        self._helpers.append(op)
        return op.results[0]


def _scalar(value: Any, context: ir.Context) -> tuple[str, ir.Type, ir.Attribute | None]:
    def kind(name: str) -> ir.Type:
        return ir.Type.parse(f"!torch.{name}", context)

    if value is None:
        return "torch.constant.none", kind("none"), None
    if isinstance(value, bool):
        i1 = ir.IntegerType.get_signless(1, context)
        return "torch.constant.bool", kind("bool"), ir.IntegerAttr.get(i1, int(value))
    if isinstance(value, int):
        return "torch.constant.int", kind("int"), ir.IntegerAttr.get(ir.IntegerType.get_signless(64, context), value)
    return "torch.constant.float", kind("float"), ir.FloatAttr.get(ir.F64Type.get(context), value)


_NodeWriter = Callable[[Writer, Node, list[Any]], ir.Value]


def _simple(name: str) -> _NodeWriter:
    return lambda writer, node, operands: writer.call(name, operands, node.shape, node.element)


def _matmul(writer: Writer, node: Node, operands: list[Any]) -> ir.Value:
    name = {2: "mm", 3: "bmm"}.get(len(node.shape), "matmul")
    return writer.call(name, operands, node.shape, node.element)


def _add(writer: Writer, node: Node, operands: list[Any]) -> ir.Value:
    if len(operands) == 3:
        return _convolution(writer, writer.store[node.args[0]], operands)
    return writer.call("add.Tensor", operands, node.shape, node.element, [1])


def _sub(writer: Writer, node: Node, operands: list[Any]) -> ir.Value:
    return writer.call("sub.Tensor", operands, node.shape, node.element, [1])


def _scale(writer: Writer, node: Node, operands: list[Any]) -> ir.Value:
    name = "mul.Scalar" if isinstance(operands[1], float) else "mul.Tensor"
    return writer.call(name, operands, node.shape, node.element)


def _transpose(writer: Writer, node: Node, operands: list[Any]) -> ir.Value:
    return writer.call("permute", [*operands, list(node.attribute("axes"))], node.shape, node.element)


def _concat(writer: Writer, node: Node, operands: list[Any]) -> ir.Value:
    return writer.call("cat", [operands, node.attribute("axis")[0]], node.shape, node.element)


def _piece(writer: Writer, node: Node, operands: list[Any]) -> ir.Value:
    (axis,), (size,) = node.attribute("axis"), node.attribute("size")
    whole = writer.store[node.args[0]].shape[axis]
    start, end = (0, size) if node.op == "head" else (whole - size, whole)
    return writer.call("slice.Tensor", [*operands, axis, start, end, 1], node.shape, node.element)


def _broadcast(writer: Writer, node: Node, operands: list[Any]) -> ir.Value:
    return writer.call("expand", [*operands, list(node.shape)], node.shape, node.element, [False])


def _reduction(name: str, *behind: Any) -> _NodeWriter:
    return lambda writer, node, operands: writer.call(
        name, [*operands, list(node.attribute("axis")), False], node.shape, node.element, behind
    )


def _convolution(writer: Writer, node: Node, operands: list[Any]) -> ir.Value:
    image, kernel, *bias = operands
    arguments = [image, kernel, *(bias or [None])]
    arguments += [list(node.attribute(name)) for name in ("stride", "pad", "dilation")]
    return writer.call("convolution", [*arguments, False, [0, 0], *node.attribute("groups")], node.shape, node.element)


def _enlarge(writer: Writer, node: Node, operands: list[Any]) -> ir.Value:
    rows, columns = node.attribute("border")
    pads = [columns, columns, rows, rows]
    return writer.call("constant_pad_nd", [*operands, pads, 0.0], node.shape, node.element)


def _avg_pool(writer: Writer, node: Node, operands: list[Any]) -> ir.Value:
    sizes = [list(node.attribute(name)) for name in ("window", "stride", "pad")]
    return writer.call("avg_pool2d", [*operands, *sizes, False, True, None], node.shape, node.element)


def _max_pool(writer: Writer, node: Node, operands: list[Any]) -> ir.Value:
    sizes = [list(node.attribute(name)) for name in ("window", "stride", "pad")]
    return writer.call("max_pool2d", [*operands, *sizes, [1, 1], False], node.shape, node.element)


_WRITERS: dict[str, _NodeWriter] = {
    **{name: _simple(name) for name in ("neg", "relu", "exp", "tanh", "sigmoid", "silu", "sqrt", "rsqrt")},
    "mul": _simple("mul.Tensor"),
    "div": _simple("div.Tensor"),
    "matmul": _matmul,
    "add": _add,
    "sub": _sub,
    "scale": _scale,
    "transpose": _transpose,
    "concat": _concat,
    "head": _piece,
    "tail": _piece,
    "broadcast": _broadcast,
    "sum": _reduction("sum.dim_IntList", None),
    "max": _reduction("amax"),
    "conv": _convolution,
    "enlarge": _enlarge,
    "avg_pool": _avg_pool,
    "max_pool": _max_pool,
}
WRITABLE = frozenset(_WRITERS)
"""Operators that there are operations for."""
