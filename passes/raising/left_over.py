"""What no kernel took in, of a program that computes with steps: which ops are one operator together, and its formula.

An op joins the one that reads its result, if that is the only one, and element by element; steps are where operators
meet. So an operator gives one tensor, and nothing stands between its ops.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from string import ascii_lowercase
from typing import Any

from covan_mlir.dialects.fred_limits import MAX_INPUTS
from covan_mlir.dialects.fred_scalars import folded_throughout
from covan_mlir.fred.chain import Axis, Chain, ChainError, Input, Map, Reduce, Step
from covan_mlir.fred.expression import Affine, Apply, Const, Expr, Index, Read, Window, rebuild, walk
from covan_mlir.kir.quantisation import STEP
from covan_mlir.passes.raising.linalg_graph import (
    LinalgGraph,
    LinalgNode,
    LinalgResult,
    NodeOperand,
    OperandWindow,
    WindowPiece,
)
from covan_mlir.passes.raising.windows import affine_maps, loop_of

log = logging.getLogger(__name__)

_CONCAT = "tensor.concat"
Loop = tuple[int, int]
"""A loop of a node: the number of each."""


@dataclass(frozen=True)
class LeftOver:
    """Ops that are one operator.

    Attributes:
        nodes: in the order of the program; the last gives the result.
        chain: what they compute.
        inputs: for each input of the chain, the value that it is.
        result: the value that it gives.
    """

    nodes: tuple[int, ...]
    chain: Chain
    inputs: tuple[int, ...]
    result: int


def left_over(graph: LinalgGraph, changing: Set[Any]) -> Iterator[LeftOver]:
    """The operators that a block is made of besides its kernels; none where nothing that changes is in steps.

    Args:
        changing: values that are computed at every call (`covan_mlir.passes.raising.varying`).
    """
    if not any(kind == STEP and graph.values[n] in changing for n, kind in enumerate(graph.dtypes)):
        return
    for group in _Groups(graph, changing).all():
        try:
            yield group.written()
        except ChainError as error:
            log.info("%s stays as it is: %s", group.name, error)


class _Groups:
    def __init__(self, graph: LinalgGraph, changing: Set[Any]) -> None:
        self._graph = graph
        self._nodes = {
            node.index: node
            for node in map(self._known, graph.nodes)
            if node is not None and graph.values[_part(node).value] in changing
        }
        self._of: dict[int, _Group] = {}

    def all(self) -> list[_Group]:
        """In the order of the program, as far as their last ops are concerned."""
        groups: list[_Group] = []
        for index in sorted(self._nodes, reverse=True):
            node = self._nodes[index]
            readers = self._graph.users.get(_part(node).value, [])
            joined = {id(self._of[user]): self._of[user] for user in readers if user in self._of}
            (group,) = joined.values() if len(joined) == 1 and all(user in self._of for user in readers) else (None,)
            if group is None or not group.join(node):
                group = _Group(self._graph)
                groups.append(group)
                group.join(node)
            self._of[index] = group
        return groups[::-1]

    def _known(self, node: LinalgNode) -> LinalgNode | None:
        """A node that may be part of an operator, concatenations as expressions."""
        if node.op.name == _CONCAT:
            return _concatenation(self._graph, node)
        if node.kind != "compute" or len(node.parts) != 1 or node.copies or None in node.loops:
            return None
        part = node.parts[0]
        if part is None or part.picked is not None or part.added is not None or None in part.dims:
            return None
        read = {node_.name for node_ in walk(part.expr) if isinstance(node_, Read)}
        if any(f"#{k}" in read and o.value in self._graph.closed for k, o in enumerate(node.operands)):
            return None
        operands = tuple(_whole(self._graph, node, k) for k in range(len(node.operands)))
        return replace(node, operands=operands)


def _whole(graph: LinalgGraph, node: LinalgNode, k: int) -> NodeOperand:
    """An operand that is read through a window on a tensor of which no dimension is taken apart: on the operand itself,
    if what it is made of has such."""
    operand = node.operands[k]
    if operand.window is None or all(len(pieces) < 2 for pieces in operand.window.pieces):
        return operand
    positions = affine_maps(node.op)
    assert positions is not None
    return replace(operand, window=_plain(graph, operand.value, positions[k]))


def _plain(graph: LinalgGraph, value: int, at: Sequence[Affine]) -> OperandWindow:
    """A tensor that is read at positions on its dimensions, and never outside of it."""
    dtype = graph.dtypes[value]
    nothing = Const(0.0 if dtype.startswith(("f", "bf")) else 0, dtype)
    pieces = tuple((WindowPiece(one, size, ()),) for one, size in zip(at, graph.shapes[value], strict=True))
    return OperandWindow(value, pieces, nothing, frozenset())


def _part(node: LinalgNode) -> LinalgResult:
    (part,) = node.parts
    assert part is not None
    return part


def _concatenation(graph: LinalgGraph, node: LinalgNode) -> LinalgNode | None:
    """Each tensor through a window that begins where the one before it ends, and the position says which is read."""
    op = node.op
    along = op.attributes["dim"].value
    numbers = [graph.values.index(value) for value in op.operands]
    result = graph.values.index(op.results[0])
    shape = graph.shapes[result]
    if None in shape or any(number in graph.constants or number in graph.closed for number in numbers):
        return None
    dtype = graph.dtypes[result]
    expr: Expr | None = None
    begin = sum(graph.shapes[number][along] or 0 for number in numbers)
    operands: list[NodeOperand] = []
    for k in reversed(range(len(numbers))):
        sizes = graph.shapes[numbers[k]]
        end, begin = begin, begin - (sizes[along] or 0)
        at = [Affine.of([(f"@{d}", 1)], -begin if d == along else 0) for d in range(len(shape))]
        operands.insert(0, NodeOperand(numbers[k], (), _plain(graph, numbers[k], at)))
        read: Expr = Read(f"#{k}", dtype)
        ahead = Apply("arith.cmpi:ult", (Index(f"@{along}"), Const(end, "index")), "i1")
        expr = read if expr is None else Apply("arith.select", (ahead, read, expr), dtype)
    assert expr is not None
    part = LinalgResult(result, tuple(range(len(shape))), expr)
    return LinalgNode(node.index, op, "compute", shape, tuple(operands), (part,))


@dataclass
class _Group:
    """Nodes of which each but the last is read by others of them alone."""

    graph: LinalgGraph
    nodes: dict[int, LinalgNode] = field(default_factory=dict)
    same: dict[Loop, Loop] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What people are told that it is: its last operation, and where that comes from."""
        op = self.nodes[max(self.nodes)].op
        return f"'{op.name}' at {op.location}"

    def join(self, node: LinalgNode) -> bool:
        """Takes a node in, if it fits to those that read it; the first always does."""
        part = _part(node)
        if self.nodes:
            reduced = node.reduces and any(one.reduces for one in self.nodes.values())
            if reduced or self.graph.dtypes[part.value] == STEP:
                return False
        before = dict(self.same)
        for reader in self.nodes.values():
            for operand in reader.operands:
                if operand.window is not None and operand.window.value == part.value:
                    self.same = before
                    return False
                if (
                    operand.value == part.value
                    and operand.window is None
                    and not self._meet(node, part, reader, operand)
                ):
                    self.same = before
                    return False
        self.nodes[node.index] = node
        if not self._distinct():
            del self.nodes[node.index]
            self.same = before
            return False
        return True

    def _meet(self, node: LinalgNode, part: LinalgResult, reader: LinalgNode, operand: NodeOperand) -> bool:
        """Whether a reader has the result at loops of its own; they are the node's then."""
        for own, theirs in zip(part.dims, operand.dims, strict=True):
            if own is None or theirs is None:
                return False
            one, other = self._root((node.index, own)), self._root((reader.index, theirs))
            if one != other:
                self.same[one] = other
        return True

    def _root(self, loop: Loop) -> Loop:
        while loop in self.same:
            loop = self.same[loop]
        return loop

    def _distinct(self) -> bool:
        return all(
            len({self._root((node.index, n)) for n in range(len(node.loops))}) == len(node.loops)
            for node in self.nodes.values()
        )

    def written(self) -> LeftOver:
        """The operator.

        Raises:
            ChainError: it is no chain.
        """
        return _Writer(self.graph, [self.nodes[n] for n in sorted(self.nodes)], self._root).written()


class _Writer:
    """Writes a group as a chain."""

    def __init__(self, graph: LinalgGraph, nodes: Sequence[LinalgNode], root: Any) -> None:
        self._graph = graph
        self._nodes = nodes
        self._root = root
        self._axes: dict[Any, Axis] = {}
        self._inputs: dict[Any, tuple[Input, int]] = {}
        self._steps: list[Step] = []
        self._given: dict[int, str] = {}

    def written(self) -> LeftOver:
        for node in self._nodes:
            self._step(node)
        inputs = tuple(self._inputs.values())
        if len(inputs) > MAX_INPUTS:
            raise ChainError(f"an operator has at most {MAX_INPUTS} inputs")
        chain = Chain(
            tuple(self._axes.values()),
            tuple(one for one, _ in inputs),
            tuple(self._steps),
            (self._steps[-1].name,),
        )
        return LeftOver(
            tuple(node.index for node in self._nodes),
            chain,
            tuple(value for _, value in inputs),
            _part(self._nodes[-1]).value,
        )

    def _step(self, node: LinalgNode) -> None:
        part = _part(node)
        name = f"v{len(self._steps)}"

        def change(leaf: Expr) -> Expr:
            if isinstance(leaf, Read):
                return self._read(node, node.operands[int(leaf.name[1:])], leaf.dtype)
            if isinstance(leaf, Index):
                return Index(self._axis(node, loop_of(leaf.axis)))
            return leaf

        axes = tuple(self._axis(node, loop) for loop in part.dims if loop is not None)
        expr = folded_throughout(rebuild(part.expr, change))
        dtype = self._graph.dtypes[part.value]
        if part.combine is None:
            self._steps.append(Map(name, axes, expr, dtype))
        else:
            assert part.initial is not None
            over = tuple(self._axis(node, loop) for loop in sorted(node.over))
            self._steps.append(Reduce(name, axes, over, part.combine, expr, part.initial, dtype))
        self._given[part.value] = name

    def _axis(self, node: LinalgNode, loop: int) -> str:
        return self._named(self._root((node.index, loop)), node.loops[loop])

    def _named(self, key: Any, size: int | None) -> str:
        if key not in self._axes:
            n = len(self._axes)
            letter = ascii_lowercase[(8 + n) % 26]
            self._axes[key] = Axis(letter if n < 26 else f"{letter}{n // 26}", size)
        return self._axes[key].name

    def _read(self, node: LinalgNode, operand: NodeOperand, dtype: str) -> Expr:
        if operand.window is not None:
            return self._window(node, operand.window, dtype)
        if operand.value in self._given:
            return Read(self._given[operand.value], dtype)
        if operand.value in self._graph.constants:
            return self._graph.constants[operand.value]
        if None not in operand.dims:
            axes = tuple(self._axis(node, loop) for loop in operand.dims if loop is not None)
            return Read(self._input(operand.value, axes), dtype)
        if (plain := self._unexpanded(node, operand)) is not None:
            return Read(self._input(*plain), dtype)
        at = [Affine.of([] if loop is None else [(f"@{loop}", 1)]) for loop in operand.dims]
        return self._window(node, _plain(self._graph, operand.value, at), dtype)

    def _unexpanded(self, node: LinalgNode, operand: NodeOperand) -> tuple[int, tuple[str, ...]] | None:
        """A tensor that an operand is with dimensions of one position besides, and its axes."""
        index = self._graph.definition.get(operand.value)
        view = None if index is None else self._graph.nodes[index]
        if view is None or view.op.name != "tensor.expand_shape":
            return None
        axes: list[str] = []
        for sources, results in view.groups:
            loops = [loop for n in results if (loop := operand.dims[n]) is not None]
            if len(sources) != 1 or len(loops) != 1:
                return None
            axes.append(self._axis(node, loops[0]))
        return view.source, tuple(axes)

    def _window(self, node: LinalgNode, window: OperandWindow, dtype: str) -> Expr:
        at: list[Affine] = []
        axes: list[str] = []
        for n, (pieces, size) in enumerate(zip(window.pieces, self._graph.shapes[window.value], strict=True)):
            if len(pieces) > 1 or size is None:
                raise ChainError("a window runs along a dimension that is taken apart")
            place = pieces[0].at if pieces else Affine(())
            at.append(Affine.of([(self._axis(node, loop_of(a)), k) for a, k in place.terms], place.offset))
            along = None if place.axis is None else loop_of(place.axis)
            if along is not None and node.loops[along] == size:
                axes.append(self._axis(node, along))
            else:
                axes.append(self._named(("own", window.value, n), size))
        return Window(self._input(window.value, tuple(axes)), dtype, tuple(at), window.outside)

    def _input(self, value: int, axes: tuple[str, ...]) -> str:
        key = (value, axes)
        if key not in self._inputs:
            given = Input(f"x{len(self._inputs)}", axes, self._graph.dtypes[value])
            self._inputs[key] = (given, value)
        return self._inputs[key][0].name
