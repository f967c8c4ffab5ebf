"""A function of the torch dialect as a program that rules apply to.

Operations that rules know become terms of theirs, on tensors of known sizes and of one type of floating-point numbers.
All others are nodes that rules look at from outside; those that only give a tensor another shape are equal if they are
called alike. What an operation is on other operands can be asked again, which tells whether it may stay as it is when
what it reads has become something else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch_mlir import ir

from covan_mlir.dialects.arguments import read_arguments
from covan_mlir.passes.substitution.broadcasts import broadcast_to
from covan_mlir.subst.program import Store
from covan_mlir.subst.shaping import NoShapesError

_TENSOR = re.compile(r"!torch\.vtensor<\[([\d,]*)\],(f16|bf16|f32|f64)>")
_RANDOM = ("rand", "bernoulli", "dropout", "normal", "uniform", "multinomial", "exponential")
_NUMBERS = ("torch.constant.int", "torch.constant.float", "torch.constant.bool")
_LIST = "torch.prim.ListConstruct"
SHAPED = frozenset(
    f"torch.aten.{name}"
    for name in ("view", "reshape", "expand", "unsqueeze", "squeeze.dim", "permute", "alias", "_unsafe_view")
)
"""Whose results are what they are given, in another shape: equal where they are called alike."""
ELEMENTS = frozenset({"f32", "f64"})
"""Types of elements that rules are applied to: what they change of halves is not measured."""


class NoTerm(Exception):
    """An operation is none that rules know."""


@dataclass
class Call:
    """An operation, and the nodes that it reads, in the order of its operands; those of lists among them.

    Attributes:
        tensors: operands that are tensors, and those in lists, in order.
    """

    op: ir.Operation
    tensors: tuple[ir.Value, ...]
    index: int


@dataclass
class Reading:
    """What a function is.

    Attributes:
        nodes: of each value.
        calls: its operations that give tensors, or read some, in order.
        roots: values that it returns, and that operations without results read.
        returned: of these, those that it returns.
        results: of each call, the nodes of its results.
        covered: nodes that a call stands for without giving them, such as the sum before a bias is added.
    """

    store: Store
    nodes: dict[ir.Value, int] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    roots: list[ir.Value] = field(default_factory=list)
    returned: list[ir.Value] = field(default_factory=list)
    results: list[tuple[int, ...]] = field(default_factory=list)
    covered: list[frozenset[int]] = field(default_factory=list)
    known: dict[ir.Value, Any] = field(default_factory=dict)
    """Numbers and lists of such, by the value that is one."""
    lists: dict[ir.Value, tuple[ir.Value, ...]] = field(default_factory=dict)
    """Tensors in a list, by the value that is the list."""

    def results_on(self, call: Call, operands: Sequence[int]) -> tuple[int, ...]:
        """What a call gives on other operands."""
        given = iter(operands)

        def operand(value: ir.Value) -> Any:
            if value in self.lists:
                return [next(given) for _ in self.lists[value]]
            return next(given) if value in self.nodes else self.known.get(value, NoTerm)

        op = call.op
        arguments = [operand(value) for value in op.operands]
        reader = READERS.get(op.name)
        if reader is not None and len(op.results) == 1:
            element, shape = tensor_type(op.results[0])
            if element in ELEMENTS:
                try:
                    number = reader(self.store, arguments, shape)
                    if self.store[number].shape == shape and self.store[number].element == element:
                        return (number,)
                except (NoTerm, NoShapesError, KeyError, ValueError):
                    pass  # from outside, then
        return self._outside(call, arguments, tuple(operands))

    def _outside(self, call: Call, arguments: Sequence[Any], operands: tuple[int, ...]) -> tuple[int, ...]:
        op = call.op
        same = op.name in SHAPED and NoTerm not in arguments
        told = repr(list(arguments[1:])) if same else f"#{call.index}"
        drawn = any(word in op.name for word in _RANDOM)
        constant = not drawn and not len(op.regions) and all(self.store[number].constant for number in operands)
        constant = constant and (bool(operands) or op.name == "torch.vtensor.literal")
        numbers = []
        for place, result in enumerate(op.results):
            element, shape = tensor_type(result)
            label = f"{op.name} {told}.{place}"
            numbers.append(self.store.outside(label, shape, element, operands, constant=constant))
        return tuple(numbers)


def tensor_type(value: ir.Value) -> tuple[str, tuple[int, ...]]:
    """Type of the elements, and sizes; an empty type where it is no tensor of known sizes and of floating-point
    numbers."""
    match = _TENSOR.fullmatch(str(value.type))
    if match is None:
        return "", ()
    return match[2], tuple(int(size) for size in match[1].split(",") if size)


def read(function: ir.Operation, store: Store) -> Reading:
    """The function as nodes of a store.

    Raises:
        NoTerm: it has several blocks, or none.
    """
    blocks = list(function.regions[0].blocks)
    if len(blocks) != 1:
        raise NoTerm("control flow between blocks")
    reading = Reading(store)
    facts = read_arguments(function)
    for index, argument in enumerate(blocks[0].arguments):
        element, shape = tensor_type(argument)
        weight = index < len(facts) and bool(facts[index].weight)
        reading.nodes[argument] = store.outside(f"argument {index}", shape, element, constant=weight)
    for index, view in enumerate(blocks[0]):
        _read(view.operation, index, reading)
    return reading


def _read(op: ir.Operation, index: int, reading: Reading) -> None:
    if op.name in _NUMBERS:
        reading.known[op.results[0]] = op.attributes["value"].value
        return
    if op.name == "torch.constant.none":
        reading.known[op.results[0]] = None
        return
    operands = list(op.operands)
    if op.name == _LIST:
        if operands and all(value in reading.nodes for value in operands):
            reading.lists[op.results[0]] = tuple(operands)
            return
        if all(value in reading.known for value in operands):
            reading.known[op.results[0]] = [reading.known[value] for value in operands]
            return
    tensors: list[ir.Value] = []
    for value in operands:
        tensors += reading.lists.get(value, (value,) if value in reading.nodes else ())
    tensors += [value for value in _captured(op) if value in reading.nodes]
    if not len(op.results):
        reading.roots += tensors
        if op.name in ("func.return", "return"):
            reading.returned = list(operands)
        return
    call = Call(op, tuple(tensors), index)
    given = [reading.nodes[value] for value in tensors]
    before = len(reading.store.nodes)
    results = reading.results_on(call, given)
    reading.calls.append(call)
    reading.results.append(results)
    inner = frozenset(range(before, len(reading.store.nodes))) | _between(reading.store, results, given)
    reading.covered.append(inner - frozenset(results))
    for value, number in zip(op.results, results, strict=True):
        reading.nodes[value] = number


def _between(store: Store, results: Sequence[int], operands: Sequence[int]) -> frozenset[int]:
    """The nodes on the way from what a call reads to what it gives."""
    inner: set[int] = set()
    stack = [arg for number in results for arg in store[number].args if number not in operands]
    while stack:
        number = stack.pop()
        if number not in operands and number not in inner:
            inner.add(number)
            stack += store[number].args
    return frozenset(inner)


def _captured(op: ir.Operation) -> list[ir.Value]:
    """Values from outside that operations in its regions read, lists of them aside."""
    captured: dict[ir.Value, None] = {}
    for region in op.regions:
        for block in region:
            for view in block:
                inner = view.operation
                for value in (*inner.operands, *_captured(inner)):
                    captured[value] = None
    return list(captured)


# What operations are


Reader = Callable[[Store, Sequence[Any], tuple[int, ...]], int]
READERS: dict[str, Reader] = {}


def _reads(*names: str) -> Callable[[Reader], Reader]:
    def register(reader: Reader) -> Reader:
        READERS.update({f"torch.aten.{name}": reader for name in names})
        return reader

    return register


def _known(*values: Any) -> None:
    """Raises NoTerm where one of them is known at run time only."""
    if any(value is NoTerm for value in values):
        raise NoTerm


@_reads("mm", "bmm", "matmul")
def _matmul(store: Store, given: Sequence[Any], shape: tuple[int, ...]) -> int:
    return store.apply("matmul", given[:2])


def _pointwise(op: str, *, factor: int | None = None) -> Reader:
    def reader(store: Store, given: Sequence[Any], shape: tuple[int, ...]) -> int:
        left, right = given[:2]
        if factor is not None and given[factor] != 1:
            raise NoTerm
        if op == "mul" and (store[left].shape == () or store[right].shape == ()) and shape:
            tensor, number = (right, left) if store[left].shape == () else (left, right)
            return store.apply("scale", (tensor, number))
        return store.apply(op, (broadcast_to(store, left, shape), broadcast_to(store, right, shape)))

    return reader


READERS |= {
    "torch.aten.add.Tensor": _pointwise("add", factor=2),
    "torch.aten.sub.Tensor": _pointwise("sub", factor=2),
    "torch.aten.mul.Tensor": _pointwise("mul"),
    "torch.aten.div.Tensor": _pointwise("div"),
}


@_reads("mul.Scalar")
def _scaled(store: Store, given: Sequence[Any], shape: tuple[int, ...]) -> int:
    tensor, number = given[:2]
    _known(number)
    if number == 1:
        return int(tensor)
    return store.apply("scale", (tensor, number_node(store, float(number), store[tensor].element)))


@_reads("add.Scalar", "sub.Scalar")
def _shifted(store: Store, given: Sequence[Any], shape: tuple[int, ...]) -> int:
    if given[1] != 0:
        raise NoTerm
    return int(given[0])


def number_node(store: Store, number: float, element: str) -> int:
    """A number that a program has written out."""
    return store.outside(f"number {number!r}", (), element, constant=True)


def _unary(op: str) -> Reader:
    return lambda store, given, shape: store.apply(op, given[:1])


READERS |= {f"torch.aten.{op}": _unary(op) for op in ("neg", "relu", "exp", "tanh", "sigmoid", "silu", "sqrt", "rsqrt")}


@_reads("gelu")
def _gelu(store: Store, given: Sequence[Any], shape: tuple[int, ...]) -> int:
    raise NoTerm  # of its two forms the text of an argument decides


@_reads("permute")
def _permute(store: Store, given: Sequence[Any], shape: tuple[int, ...]) -> int:
    tensor, axes = given
    _known(axes)
    axes = [axis % len(shape) for axis in axes]
    if axes == sorted(axes):
        return int(tensor)
    return store.apply("transpose", (tensor,), (("axes", tuple(axes)),))


@_reads("transpose.int")
def _transpose(store: Store, given: Sequence[Any], shape: tuple[int, ...]) -> int:
    tensor, first, second = given
    _known(first, second)
    axes = list(range(len(shape)))
    axes[first], axes[second] = axes[second], axes[first]
    return _permute(store, (tensor, axes), shape)


@_reads("t")
def _t(store: Store, given: Sequence[Any], shape: tuple[int, ...]) -> int:
    return _permute(store, (given[0], [1, 0][-len(shape) :]), shape)


@_reads("cat")
def _cat(store: Store, given: Sequence[Any], shape: tuple[int, ...]) -> int:
    tensors, axis = given
    _known(axis)
    first, *others = tensors
    for other in others:
        first = store.apply("concat", (first, other), (("axis", (axis % len(shape),)),))
    return int(first)


@_reads("slice.Tensor")
def _slice(store: Store, given: Sequence[Any], shape: tuple[int, ...]) -> int:
    tensor, axis, start, end, step = given
    _known(axis, start, end)
    if step != 1:
        raise NoTerm
    axis %= len(shape)
    size = store[tensor].shape[axis]
    start, end = (min(max(at + size if at < 0 else at, 0), size) for at in (start or 0, size if end is None else end))
    return piece(store, int(tensor), axis, start, end)


def piece(store: Store, tensor: int, axis: int, start: int, end: int) -> int:
    """Elements of an axis from one on up to another one: the last of the first."""
    if end < store[tensor].shape[axis]:
        tensor = store.apply("head", (tensor,), (("axis", (axis,)), ("size", (end,))))
    if start > 0:
        tensor = store.apply("tail", (tensor,), (("axis", (axis,)), ("size", (end - start,))))
    return tensor


@_reads("unsqueeze")
def _unsqueeze(store: Store, given: Sequence[Any], shape: tuple[int, ...]) -> int:
    _known(given[1])
    return store.apply("broadcast", given[:1], (("axis", (given[1] % len(shape),)), ("size", (1,))))


@_reads("expand")
def _expand(store: Store, given: Sequence[Any], shape: tuple[int, ...]) -> int:
    return broadcast_to(store, given[0], shape)


@_reads("sum.dim_IntList")
def _sum(store: Store, given: Sequence[Any], shape: tuple[int, ...]) -> int:
    return _reduced(store, "sum", given)


@_reads("amax")
def _amax(store: Store, given: Sequence[Any], shape: tuple[int, ...]) -> int:
    return _reduced(store, "max", given)


def _reduced(store: Store, op: str, given: Sequence[Any]) -> int:
    tensor, axes, keep = given[:3]
    _known(axes, keep)
    if not axes or len(axes) != 1 or keep:
        raise NoTerm
    return store.apply(op, (tensor,), (("axis", (axes[0] % len(store[tensor].shape),)),))


@_reads("convolution")
def _convolution(store: Store, given: Sequence[Any], shape: tuple[int, ...]) -> int:
    image, kernel, bias, stride, pad, dilation, transposed, _, groups = given
    _known(bias, stride, pad, dilation, transposed, groups)
    if transposed or len(shape) != 4 or any(len(list(sizes)) != 2 for sizes in (stride, pad, dilation)):
        raise NoTerm
    attributes = (
        ("stride", tuple(stride)),
        ("pad", tuple(pad)),
        ("dilation", tuple(dilation)),
        ("groups", (groups,)),
    )
    result = store.apply("conv", (image, kernel), attributes)
    if bias is None:
        return result
    return store.apply("add", (result, broadcast_to(store, bias, shape, axes=(1,))))


@_reads("constant_pad_nd")
def _pad(store: Store, given: Sequence[Any], shape: tuple[int, ...]) -> int:
    tensor, pads, value = given
    _known(pads, value)
    if value != 0 or len(pads) != 4 or pads[0] != pads[1] or pads[2] != pads[3] or min(pads) < 0:
        raise NoTerm
    return store.apply("enlarge", (tensor,), (("border", (pads[2], pads[0])),))


@_reads("avg_pool2d")
def _avg_pool(store: Store, given: Sequence[Any], shape: tuple[int, ...]) -> int:
    tensor, window, stride, pad, ceil, padded, divisor = given
    _known(window, stride, pad, ceil, padded, divisor)
    if ceil or divisor is not None or not (padded or not any(pad)):
        raise NoTerm
    return _pooled(store, "avg_pool", tensor, window, stride, pad)


@_reads("max_pool2d")
def _max_pool(store: Store, given: Sequence[Any], shape: tuple[int, ...]) -> int:
    tensor, window, stride, pad, dilation, ceil = given
    _known(window, stride, pad, dilation, ceil)
    if ceil or any(step != 1 for step in dilation):
        raise NoTerm
    return _pooled(store, "max_pool", tensor, window, stride, pad)


def _pooled(store: Store, op: str, tensor: int, window: Any, stride: Any, pad: Any) -> int:
    window = list(window) * (2 // len(window))
    stride = list(stride or window)
    attributes = (
        ("window", tuple(window)),
        ("stride", tuple(stride * (2 // len(stride)))),
        ("pad", tuple(list(pad) * (2 // len(pad)))),
    )
    return store.apply(op, (tensor,), attributes)
