"""Ops that become one chain: which they are, and along which axes their values lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from covan_mlir.fred.expression import Apply, Const, Expr, Extent, walk
from covan_mlir.passes.raising.axis_groups import AxisGroups, Dim
from covan_mlir.passes.raising.linalg_graph import LinalgGraph, LinalgNode, OperandWindow


@dataclass
class Cluster:
    """Ops that become one chain, and the axes of their values.

    Attributes:
        loops: dimensions of the loops of each compute node among the members.
        dims: of the values that members give.
        reads: of what a member reads from outside, by (member, operand).
        windows: the same of what is read through windows, which is always from outside.
    """

    graph: LinalgGraph
    axes: AxisGroups = field(default_factory=AxisGroups)
    members: set[int] = field(default_factory=set)
    loops: dict[int, list[Dim]] = field(default_factory=dict)
    dims: dict[int, list[Dim]] = field(default_factory=dict)
    reads: dict[tuple[int, int], tuple[int, list[Dim]]] = field(default_factory=dict)
    windows: dict[tuple[int, int], tuple[int, list[Dim]]] = field(default_factory=dict)

    def copy(self) -> Cluster:
        """An independent copy."""
        return Cluster(
            self.graph,
            self.axes.copy(),
            self.members.copy(),
            self.loops.copy(),
            self.dims.copy(),
            self.reads.copy(),
            self.windows.copy(),
        )

    def add(self, node: LinalgNode) -> bool:
        """Takes a node in; False where its dimensions do not fit, and the cluster is spoiled."""
        graph, axes = self.graph, self.axes
        self.members.add(node.index)
        if node.kind == "view":
            result = [axes.new(size) for size in graph.shapes[node.result]]
            source = [axes.new(size) for size in graph.shapes[node.source]]
            for sources, results in node.groups:
                if not axes.unify([a for i in sources for a in source[i]], [a for i in results for a in result[i]]):
                    return False
            given = [(node.result, result)]
            taken = [(0, node.source, source)]
        else:
            loops = self.loops[node.index] = [axes.new(size) for size in node.loops]
            given = [
                (part.value, [[] if loop is None else loops[loop] for loop in part.dims])
                for part in node.parts
                if part is not None
            ]
            taken = [
                (k, operand.value, [[] if loop is None else loops[loop] for loop in operand.dims])
                for k, operand in enumerate(node.operands)
                if operand.window is None and operand.value not in graph.constants and operand.value not in graph.closed
            ]
            for k, operand in enumerate(node.operands):
                if operand.window is not None:
                    self.windows[node.index, k] = (operand.window.value, self._window(operand.window, loops))
        for k, value, dims in taken:
            if value in self.dims:
                if not self._same(self.dims[value], dims):
                    return False
            else:
                self.reads[node.index, k] = (value, dims)
        for value, dims in given:
            self.dims[value] = dims
            for use in [use for use, (read, _) in self.reads.items() if read == value]:
                if not self._same(self.reads.pop(use)[1], dims):
                    return False
        if any(value in self.dims for value, _ in self.windows.values()) or not self._distinct():
            return False
        for k, value, dims in taken:
            if (node.index, k) in self.reads:
                self._meet(value, dims)
        return all(self.size(size) is not None for size in _sizes(node, graph))

    def _window(self, window: OperandWindow, loops: Sequence[Dim]) -> list[Dim]:
        """The dimensions of what is read through a window: along loops where it is read at their positions."""
        return [
            [
                axis
                for piece in pieces
                for axis in ([a for n in piece.loops for a in loops[n]] if piece.loops else self.axes.own(piece.size))
            ]
            for pieces in window.pieces
        ]

    def size(self, size: Extent) -> Expr | None:
        """A size by those that values have: itself, or what is left of a sum; None where it is neither."""
        if self.extent(size) is not None:
            return size
        for total, (number, terms) in self.graph.sums.items():
            others = {name: count for name, count in terms.items() if name != size}
            if terms[size] != 1 or any(self.extent(name) is None for name in (total, *others)):
                continue
            left: Expr = Apply("arith.subi", (total, Const(number, "index")), "index")
            for other, count in others.items():
                left = Apply(
                    "arith.subi", (left, Apply("arith.muli", (other, Const(count, "index")), "index")), "index"
                )
            return left
        return None

    def extent(self, size: Extent) -> tuple[int, ...] | None:
        """The axes that have together a size which is known at run time only; None where no value has it."""
        known = [*self.reads.values(), *self.windows.values(), *self.dims.items()]
        for value, dims in known:
            # Of a constant there are none: its sizes are numbers.
            for dim, other in zip(dims, self.graph.extents.get(value, ()), strict=False):
                if other == size:
                    return self.axes.leaves(dim)
        return None

    def _meet(self, value: int, dims: Sequence[Dim]) -> None:
        """What is read twice is read along the same axes, if it can be."""
        for other, theirs in self.reads.values():
            if other == value and theirs is not dims and self.flat(theirs) != self.flat(dims):
                before = self.axes.copy()
                if not (self._same(theirs, dims) and self._distinct()):
                    self.axes = before

    def _same(self, one: Sequence[Dim], other: Sequence[Dim]) -> bool:
        return all(self.axes.unify(a, b) for a, b in zip(one, other, strict=True))

    def _distinct(self) -> bool:
        for loops in self.loops.values():
            leaves = self.axes.leaves([axis for loop in loops for axis in loop])
            if len(set(leaves)) != len(leaves):
                return False
        return True

    def flat(self, dims: Sequence[Dim]) -> tuple[int, ...]:
        """Dimensions as axes."""
        return self.axes.leaves([axis for dim in dims for axis in dim])

    def position(self, node: LinalgNode) -> set[int]:
        """The axes of a compute node's loops."""
        return set(self.flat(self.loops[node.index]))

    def over(self, node: LinalgNode) -> set[int]:
        """The axes that a node reduces."""
        kept: set[int] = set()
        for part in node.parts:
            if part is not None:
                kept.update(self.flat(self.dims[part.value]))
        return self.position(node) - kept

    def reduced(self) -> set[int]:
        """The axes that any member reduces."""
        return {axis for i in self.loops for axis in self.over(self.graph.nodes[i])}

    def length(self, axes: set[int]) -> int | None:
        """Number of positions on all these axes; None where unknown."""
        total = 1
        for axis in axes:
            size = self.axes.size(axis)
            if size is None:
                return None
            total *= size
        return total

    def inputs(self) -> int:
        """Number of tensors that come from outside."""
        return len({(value, self.flat(dims)) for value, dims in (*self.reads.values(), *self.windows.values())})

    def outputs(self) -> int:
        """Number of tensors that outside ops read; a view of one is the same tensor."""
        given: set[int] = set()
        for value in self.dims:
            if self.outside(value):
                node = self.graph.nodes[self.graph.definition[value]]
                while node.copies and (source := sources(node)[0]) in self.dims:
                    value = source
                    node = self.graph.nodes[self.graph.definition[value]]
                given |= set() if node.copies or (node.widens and self.is_free(node.index)) else {value}
        return len(given)

    def is_free(self, index: int) -> bool:
        """Whether a member is a view of something outside, or that in more bits: a copy of it does no harm."""
        node = self.graph.nodes[index]
        if not (node.copies or node.widens):
            return False
        source = sources(node)[0]
        return source not in self.dims or (node.widens and self.is_free(self.graph.definition[source]))

    def outside(self, value: int) -> list[int]:
        """Who reads a value and is no member."""
        return [user for user in self.graph.users.get(value, ()) if user not in self.members]


def _sizes(node: LinalgNode, graph: LinalgGraph) -> set[Extent]:
    """The sizes that a node computes with."""
    exprs: list[Expr] = [part.expr for part in node.parts if part is not None]
    exprs += [graph.closed[value] for value in sources(node) if value in graph.closed]
    return {size for expr in exprs for size in walk(expr) if isinstance(size, Extent)}


def sources(node: LinalgNode) -> list[int]:
    """Values that a node reads."""
    return [node.source] if node.kind == "view" else [operand.value for operand in node.operands]
