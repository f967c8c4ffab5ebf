"""What a kernel of our own computes, as the body of a node (`covan_mlir.provenance.bodies`): its chain."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from covan_mlir.fred.chain import Chain, Reduce, Step
from covan_mlir.fred.expression import Affine, Apply, Const, Expr, Extent, Index, Read, Window, walk
from covan_mlir.lowering.kernels.kernel import Executable
from covan_mlir.provenance.bodies import Block, Body, Operation

_CONSTANT = "arith.constant"


@dataclass(frozen=True)
class KernelBody:
    """What a kernel of our own computes, and which of a call's operands it reads.

    Attributes:
        inputs: names of the inputs of the body; those that are prepared ahead of time are no operands of a dispatch.
        operands: of each dispatch, by its symbol, the names of its tensors.
        outputs: of each dispatch, the names of its results.
        last: symbol of the dispatch that gives the results.
        kernel: symbol of the function that calls stand for.
    """

    body: Body
    inputs: tuple[str, ...]
    operands: Mapping[str, tuple[str, ...]]
    outputs: Mapping[str, tuple[str, ...]]
    last: str
    kernel: str

    @staticmethod
    def of(executable: Executable, body: Body) -> KernelBody:
        """That of a kernel whose chain's body is known."""
        return KernelBody(
            body,
            tuple(operand.name for operand in executable.inputs),
            {step.name: tuple(operand.name for operand in step.inputs) for step in executable.dispatches},
            {step.name: tuple(operand.name for operand in step.outputs) for step in executable.dispatches},
            executable.dispatches[-1].name,
            executable.name,
        )


def chain_body(chain: Chain) -> Body:
    """The body of a chain: each step a ``linalg.generic`` whose sizes are told, windows as reads at positions of which
    some lie outside (``fred.window``)."""
    return _Writer(chain).body()


class _Writer:
    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._numbers = {value.name: number for number, value in enumerate(chain.inputs)}
        self._count = len(chain.inputs)
        self._operations: list[Operation] = []

    def body(self) -> Body:
        for step in self._chain.steps:
            self._numbers[step.name] = self._step(step)
        inputs = tuple(self._type(value.dtype, value.axes) for value in self._chain.inputs)
        return Body(inputs, tuple(self._operations), tuple(self._numbers[name] for name in self._chain.outputs))

    def _type(self, dtype: str, axes: Sequence[str]) -> str:
        sizes = [self._chain.sizes[axis] for axis in axes]
        return f"{dtype}[{', '.join('?' if size is None else str(size) for size in sizes)}]"

    def _take(self) -> int:
        self._count += 1
        return self._count - 1

    def _add(self, name: str, operands: Sequence[int], kind: str, **attributes: Any) -> int:
        self._operations.append(Operation(name, tuple(operands), (kind,), attributes))
        return self._take()

    def _extent(self, axis: str) -> int:
        size = self._chain.sizes[axis]
        if size is not None:
            return self._add(_CONSTANT, (), "index", value=size)
        holder = next(name for name in self._numbers if axis in self._chain.values[name].axes)
        position = self._add(_CONSTANT, (), "index", value=self._chain.values[holder].axes.index(axis))
        return self._add("tensor.dim", (self._numbers[holder], position), "index")

    def _step(self, step: Step) -> int:
        over = step.over if isinstance(step, Reduce) else ()
        loops = (*step.axes, *over)
        kind = self._type(step.dtype, step.axes)
        extents = {node.axis: self._extent(node.axis) for node in walk(step.expr) if isinstance(node, Extent)}
        sizes = [self._extent(axis) for axis in step.axes if self._chain.sizes[axis] is None]
        out = self._add("tensor.empty", sizes, kind)
        if isinstance(step, Reduce):
            initial = self._add(_CONSTANT, (), step.dtype, value=_number(step.initial.value))
            out = self._add("linalg.fill", (initial, out), kind)
        reads = list(dict.fromkeys(node.name for node in walk(step.expr) if isinstance(node, Read)))
        arguments = {name: self._take() for name in reads}
        accumulator = self._take()
        inner: list[Operation] = []
        numbers: dict[int, int] = {}
        for node in walk(step.expr):
            numbers[id(node)] = self._scalar(node, loops, arguments, extents, numbers, inner)
        value = numbers[id(step.expr)]
        if isinstance(step, Reduce):
            inner.append(Operation(step.operation, (value, accumulator), (step.dtype,)))
            value = self._take()
        inner.append(Operation("linalg.yield", (value,)))
        types = (*(self._chain.values[name].dtype for name in reads), step.dtype)
        attributes = {
            "indexing_maps": [*(_map(self._chain.values[name].axes, loops) for name in reads), _map(step.axes, loops)],
            "iterator_types": ["parallel"] * len(step.axes) + ["reduction"] * len(over),
            "operandSegmentSizes": [len(reads), 1],
            "sizes": [self._chain.sizes[axis] or -1 for axis in loops],
        }
        operands = (*(self._numbers[name] for name in reads), out)
        block = Block(types, tuple(inner))
        self._operations.append(Operation("linalg.generic", operands, (kind,), attributes, (block,)))
        return self._take()

    def _scalar(
        self,
        node: Expr,
        loops: Sequence[str],
        arguments: dict[str, int],
        extents: dict[str, int],
        numbers: dict[int, int],
        inner: list[Operation],
    ) -> int:
        match node:
            case Read(name, _):
                return arguments[name]
            case Extent(axis, _):
                return extents[axis]
            case Const(value, dtype):
                inner.append(Operation(_CONSTANT, (), (dtype,), {"value": _number(value)}))
            case Index(axis, _):
                inner.append(Operation("linalg.index", (), ("index",), {"dim": loops.index(axis)}))
            case Window(name, dtype, at, outside):
                attributes = {"at": _positions(at, loops), "outside": _number(outside.value)}
                inner.append(Operation("fred.window", (self._numbers[name],), (dtype,), attributes))
            case Apply(op, args, dtype):
                inner.append(Operation(op, tuple(numbers[id(arg)] for arg in args), (dtype,)))
        return self._take()


def _number(value: float) -> Any:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _map(axes: Sequence[str], loops: Sequence[str]) -> str:
    return _positions([Affine(((axis, 1),)) for axis in axes], loops)


def _positions(at: Sequence[Affine], loops: Sequence[str]) -> str:
    """Positions as MLIR writes an affine map."""
    dims = ", ".join(f"d{k}" for k in range(len(loops)))
    texts = []
    for position in at:
        terms = [f"d{loops.index(axis)} * {factor}" for axis, factor in position.terms]
        texts.append(" + ".join([*terms, str(position.offset)]))
    return f"({dims}) -> ({', '.join(texts)})"
