"""A found chain as data: names for its axes and values, expressions over them, and what stands for which IR value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TypeVar

from covan_mlir.dialects.fred_scalars import folded_throughout
from covan_mlir.fred.chain import Chain, Input, Map, Reduce, Step
from covan_mlir.fred.expression import (
    Affine,
    Apply,
    Const,
    Expr,
    Extent,
    Index,
    Read,
    Window,
    reads,
    rebuild,
    substitute,
    walk,
)
from covan_mlir.passes.raising.axis_groups import Dim
from covan_mlir.passes.raising.cluster import Cluster
from covan_mlir.passes.raising.gathers import picking
from covan_mlir.passes.raising.joined_axes import ChainTensor, Joined
from covan_mlir.passes.raising.linalg_graph import LinalgNode, LinalgResult, OperandWindow
from covan_mlir.passes.raising.nested_reductions import unnested
from covan_mlir.passes.raising.windows import loop_of

_LETTERS = "ijklmnopqrstuvwxyz"


class Unbuildable(Exception):
    """The ops that were found cannot be written as a chain; the message says why."""


@dataclass(frozen=True)
class SizeSource:
    """Where the size of a piece is found at run time: in a dimension of a value, whose other pieces have ``known``
    positions together."""

    value: int
    dimension: int
    known: int


@dataclass(frozen=True)
class Built:
    """A chain and its ties to the graph.

    Attributes:
        inputs: one per input of the chain.
        outputs: values that somebody outside reads; several may stand for one output.
        sizes: of the pieces by name.
        extents: where to find the sizes that are known at run time only.
        sources: by step, the nodes whose computation it is; views are the chain's as a whole.
        values: by step, those of them whose result it is; what others give is read on the way.
        replaced: nodes whose work is now the chain's alone.
        copied: nodes whose work the chain does as well.
    """

    chain: Chain
    inputs: tuple[ChainTensor, ...]
    outputs: tuple[ChainTensor, ...]
    sizes: dict[str, int | None]
    extents: dict[str, SizeSource]
    sources: dict[str, frozenset[int]]
    values: dict[str, frozenset[int]]
    replaced: tuple[int, ...]
    copied: tuple[int, ...]


@dataclass(frozen=True)
class _Pick:
    """What a gather does.

    Attributes:
        axes: of its result.
        over: the axes that it picks a position from.
        place: the position along these.
        at: the one that is picked.
    """

    axes: tuple[str, ...]
    over: tuple[str, ...]
    place: Expr
    at: Expr


Orders = Mapping[int, tuple[int, ...]]
"""Of values whose dimensions lie in another order than the program has them: for each dimension, which one it was."""

T = TypeVar("T")


def build_chain(cluster: Cluster, orders: Orders | None = None) -> Built:
    """The chain of a cluster.

    Args:
        orders: of values that it reads or gives; their tensors have their dimensions in this order.

    Raises:
        Unbuildable: it cannot be said.
    """
    return _Builder(cluster, orders or {}).build()


class _Builder:
    def __init__(self, cluster: Cluster, orders: Orders) -> None:
        self.cluster = cluster
        self.orders = orders
        self.graph = cluster.graph
        self.names: dict[int, str] = {}
        """Of axes."""
        self.origins: dict[int, Read] = {}
        """Whose elements the values that members give are, views and broadcasts among them."""
        self.copies: dict[int, frozenset[int]] = {}
        """Broadcasts and transpositions between these elements and the values."""
        self.inputs: dict[tuple[int, tuple[int, ...]], tuple[Input, ChainTensor]] = {}
        self.steps: list[Step] = []
        self.sources: dict[str, frozenset[int]] = {}
        self.values: dict[str, frozenset[int]] = {}
        self.through: dict[str, frozenset[int]] = {}
        """By step, the copies through which it reads."""
        self.closed: set[int] = set()
        """Nodes that were read as an expression over positions, or through a window."""

    def build(self) -> Built:
        members = [self.graph.nodes[i] for i in sorted(self.cluster.members)]
        # In program order, but for what a path brought in out of it: an op stands behind what it reads.
        for node in members:
            if node.copies:
                self._alias(node)
            else:
                for part in node.parts:
                    if part is not None:
                        self._step(node, part)
        replaced = self._replaced()
        # A copy that only the chain reads is how it reads; one that others read as well is work that it does again.
        self.sources = {
            name: nodes | (self.through.get(name, frozenset()) - replaced) for name, nodes in self.sources.items()
        }
        outputs = self._outputs(replaced)
        self._turn(outputs)
        steps, inputs = self._live(outputs)
        order = list(dict.fromkeys(axis for given, _ in inputs for axis in given.axes))
        # What is computed of positions alone may have axes that no input has.
        order += [axis for step in steps if isinstance(step, Reduce) for axis in step.over if axis not in order]
        steps, self.sources = unnested(steps, {tensor.name for tensor in outputs}, self.sources, order)
        for value in (*steps, *(given for given, _ in inputs)):
            if len(set(value.axes)) != len(value.axes):
                raise Unbuildable(f"{value.name} has one axis twice")
        there = {axis for value in (*steps, *(given for given, _ in inputs)) for axis in value.axes}
        asked = {node.axis for step in steps for node in walk(step.expr) if isinstance(node, Extent)}
        if asked - there:
            raise Unbuildable("it computes with a size that none of its values has, which is known at run time only")
        sizes = {name: self.cluster.axes.size(leaf) for leaf, name in self.names.items()}
        names = list(dict.fromkeys(tensor.name for tensor in outputs))
        joined = Joined(tuple(given for given, _ in inputs), tuple(steps), sizes)
        touched = self.closed | self.cluster.members
        return Built(
            joined.chain(names),
            tuple(joined.tensor(tensor) for _, tensor in inputs),
            tuple(joined.tensor(tensor) for tensor in outputs),
            sizes,
            _extents([tensor for _, tensor in inputs], outputs, sizes),
            self.sources,
            self.values,
            tuple(sorted(replaced)),
            tuple(sorted(touched - replaced)),
        )

    def _axis(self, leaf: int) -> str:
        if leaf not in self.names:
            count = len(self.names)
            self.names[leaf] = _LETTERS[count] if count < len(_LETTERS) else f"i{count}"
        return self.names[leaf]

    def _axes(self, dims: Sequence[Dim]) -> tuple[str, ...]:
        return tuple(self._axis(leaf) for leaf in self.cluster.flat(dims))

    def _groups(self, dims: Sequence[Dim]) -> tuple[tuple[str, ...], ...]:
        return tuple(tuple(self._axis(leaf) for leaf in self.cluster.axes.leaves(dim)) for dim in dims)

    def _laid(self, value: int, dims: Sequence[T]) -> Sequence[T]:
        """What a value has for each dimension, in the order of its tensor's."""
        return [dims[n] for n in self.orders[value]] if value in self.orders else dims

    def _input(self, value: int, dims: Sequence[Dim]) -> Read:
        dims = self._laid(value, dims)
        key = (value, self.cluster.flat(dims))
        if key not in self.inputs:
            name = f"x{len(self.inputs)}"
            dtype = self.graph.dtypes[value]
            ours = value in self.graph.weights and value not in self.graph.parameters
            weight = ours and (self.graph.only_multiplied(value) or self.graph.only_scales(value))
            given = Input(name, self._axes(dims), dtype, weight)
            self.inputs[key] = (given, ChainTensor(value, name, self._groups(dims)))
        return Read(self.inputs[key][0].name, self.graph.dtypes[value])

    def _origin(self, node: LinalgNode, operand: int, value: int) -> Read:
        if (node.index, operand) in self.cluster.reads:
            return self._input(*self.cluster.reads[node.index, operand])
        return self.origins[value]

    def _copies(self, node: LinalgNode, operand: int, value: int) -> frozenset[int]:
        return frozenset() if (node.index, operand) in self.cluster.reads else self.copies.get(value, frozenset())

    def _alias(self, node: LinalgNode) -> None:
        """A view or a broadcast gives the elements of another value."""
        number, value = (0, node.source)
        result = node.result
        if node.kind == "compute":
            (part,) = node.parts
            assert part is not None
            assert isinstance(part.expr, Read)
            number, result = int(part.expr.name[1:]), part.value
            value = node.operands[number].value
        if result in self.graph.constants or result in self.graph.closed:
            return  # its readers have the expression
        self.origins[result] = self._origin(node, number, value)
        self.copies[result] = self._copies(node, number, value) | ({node.index} if node.kind == "compute" else set())

    def _step(self, node: LinalgNode, part: LinalgResult) -> None:
        cluster = self.cluster
        loops = cluster.loops[node.index]
        sources, through = {node.index}, frozenset[int]()
        values: dict[str, Expr] = {}
        for k, operand in enumerate(node.operands):
            if operand.window is not None:
                values[f"#{k}"] = self._window(operand.window, node, k)
                sources |= {i for i in operand.window.through if self.graph.nodes[i].kind != "view"}
                self.closed |= operand.window.through
            elif operand.value in self.graph.constants:
                values[f"#{k}"] = self.graph.constants[operand.value]
            elif operand.value in self.graph.closed:
                dims = [[] if loop is None else loops[loop] for loop in operand.dims]
                values[f"#{k}"] = self._positions(self.graph.closed[operand.value], dims)
                made_by = self.graph.sources[operand.value]
                sources |= {i for i in made_by if self.graph.nodes[i].kind == "compute"}
                self.closed |= made_by
            else:
                values[f"#{k}"] = self._origin(node, k, operand.value)
                through |= self._copies(node, k, operand.value)

        def filled(expr: Expr) -> Expr:
            # First the positions: what is filled in has its own.
            return substitute(self._positions(expr, loops), values)

        expr = filled(part.expr)
        dtype = self.graph.dtypes[part.value]
        dims = cluster.dims[part.value]
        axes = self._axes(dims)
        if part.picked is not None:
            pick = _Pick(axes, self._axes(loops[-1:]), filled(Index(f"@{len(loops) - 1}")), filled(part.picked))
            expr, inlined = self._picked(expr, pick, node)
            sources |= inlined
        name = f"v{len(self.steps)}"
        if part.combine is None or part.picked is not None:
            self.steps.append(Map(name, axes, expr, dtype))
        else:
            assert part.initial is not None
            kept = set(cluster.flat(dims))
            over = tuple(self._axis(leaf) for leaf in cluster.flat(loops) if leaf not in kept)
            self.steps.append(Reduce(name, axes, over, part.combine, expr, part.initial, dtype))
        self.sources[name], self.through[name] = frozenset(sources), through
        self.values[name] = frozenset({node.index})
        if part.added is not None:
            total = f"v{len(self.steps)}"
            added = Apply(part.operation, (Read(name, dtype), filled(part.added)), dtype)
            self.steps.append(Map(total, axes, added, dtype))
            self.sources[total], self.through[total] = frozenset({node.index}), through
            self.values[total] = frozenset({node.index})
            name = total
        self.origins[part.value] = Read(name, dtype)

    def _window(self, window: OperandWindow, node: LinalgNode, operand: int) -> Window:
        """What a node reads through a window, at positions on the chain's axes."""
        value, dims = self.cluster.windows[node.index, operand]
        read = self._input(value, dims)
        at: list[Affine] = []
        for piece in (piece for pieces in self._laid(value, window.pieces) for piece in pieces):
            if piece.loops:
                dims = [self.cluster.loops[node.index][loop] for loop in piece.loops]
                at += [Affine.of([(axis, 1)]) for axis in self._axes(dims)]
            else:
                terms = [term for loop, number in piece.at.terms for term in self._terms(node, loop_of(loop), number)]
                at.append(Affine.of(terms, piece.at.offset))
        return Window(read.name, read.dtype, tuple(at), window.outside)

    def _terms(self, node: LinalgNode, loop: int, number: int) -> list[tuple[str, int]]:
        """A multiple of the position on a loop as multiples of those on its axes."""
        terms: list[tuple[str, int]] = []
        leaves = self.cluster.axes.leaves(self.cluster.loops[node.index][loop])
        for at, leaf in reversed(list(enumerate(leaves))):
            terms.append((self._axis(leaf), number))
            size = self.cluster.axes.size(leaf)
            if size is None and at:
                raise Unbuildable("a window runs along a size that is taken apart, and known at run time only")
            number *= size or 1
        return terms

    def _picked(self, expr: Expr, pick: _Pick, node: LinalgNode) -> tuple[Expr, frozenset[int]]:
        """-> (the expression at the picked position, whose computation it repeats). An element-wise function of what
        is picked is picked by nobody: only what it is computed from is read there."""
        maps = {step.name: step for step in self.steps if isinstance(step, Map) and {*pick.over} & {*step.axes}}
        repeated: set[int] = set()
        while inner := reads(expr) & maps.keys():
            repeated = repeated.union(*(self.sources[name] for name in inner))
            expr = substitute(expr, {name: maps[name].expr for name in inner})
        axes = {value.name: value.axes for value in (*self.steps, *(given for given, _ in self.inputs.values()))}

        def change(leaf: Expr) -> Expr:
            if isinstance(leaf, Index) and leaf.axis in pick.over:
                if len(pick.over) > 1:
                    raise Unbuildable("a position is asked for along an axis that is taken apart and picked from")
                return pick.at
            if not isinstance(leaf, Read) or not {*pick.over} & {*axes[leaf.name]}:
                return leaf
            return self._pick(leaf, axes, pick, node)

        return rebuild(expr, change), frozenset(repeated)

    def _pick(self, leaf: Read, axes: Mapping[str, tuple[str, ...]], pick: _Pick, node: LinalgNode) -> Read:
        """The element of a value at the picked position."""
        at = {axis for n in walk(pick.at) if isinstance(n, Read) for axis in axes[n.name]}
        at |= {n.axis for n in walk(pick.at) if isinstance(n, Index)}
        kept = tuple(axis for axis in pick.axes if axis in {*axes[leaf.name], *at})
        combine, nothing = picking(leaf.dtype)
        here = Apply("arith.cmpi:eq", (pick.place, pick.at), "i1")
        expr = Apply("arith.select", (here, leaf, nothing), leaf.dtype)
        name = f"v{len(self.steps)}"
        self.steps.append(Reduce(name, kept, pick.over, combine, expr, nothing, leaf.dtype))
        self.sources[name] = self.values[name] = frozenset({node.index})
        return Read(name, leaf.dtype)

    def _positions(self, expr: Expr, dims: Sequence[Dim]) -> Expr:
        """The expression with ``Index("@k")`` as the position along dimension k, and sizes as those of axes."""

        def change(node: Expr) -> Expr:
            if isinstance(node, Extent) and node.axis.startswith("%"):
                size = self.cluster.size(node)
                if size is None:
                    raise Unbuildable("no value has a size that is computed with, which is known at run time only")
                if size != node:
                    return rebuild(size, change)
                leaves = self.cluster.extent(node) or ()
                total: Expr | None = None
                for leaf in leaves:
                    factor = self._extent(leaf)
                    total = factor if total is None else Apply("arith.muli", (total, factor), "index")
                return total or Const(1, "index")
            if not isinstance(node, Index) or not node.axis.startswith("@"):
                return node
            position: Expr | None = None
            for leaf in self.cluster.axes.leaves(dims[int(node.axis[1:])]):
                name = self._axis(leaf)
                if position is not None:
                    position = Apply("arith.muli", (position, self._extent(leaf)), "index")
                    position = Apply("arith.addi", (position, Index(name)), "index")
                else:
                    position = Index(name)
            return position or Const(0, "index")

        return rebuild(expr, change)

    def _extent(self, leaf: int) -> Expr:
        size = self.cluster.axes.size(leaf)
        return Extent(self._axis(leaf)) if size is None else Const(size, "index")

    def _replaced(self) -> set[int]:
        """The nodes that nobody needs any more: all that compute, and of views, broadcasts and iotas those that only
        such read."""
        graph = self.graph
        members = self.cluster.members
        gone = {i for i in members if not (graph.nodes[i].copies or self.cluster.is_free(i)) and i not in self.closed}
        sinks = self._sinks()
        gone |= sinks
        waiting = sorted((members | self.closed) - gone, reverse=True)
        for i in waiting:  # readers first
            node = graph.nodes[i]
            if all(user in gone for value in node.results for user in graph.users.get(value, ())):
                gone.add(i)
        return gone

    def _sinks(self) -> set[int]:
        """Transpositions of results, and reshapes before them: the chain writes what they give."""
        sinks: set[int] = set()
        for i in sorted(self.cluster.members, reverse=True):
            node = self.graph.nodes[i]
            if node.kind != "view" or node.source not in self.origins or self.graph.users[node.source] != [i]:
                continue
            inside = self.cluster.members & set(self.graph.users.get(node.result, ()))
            ends = node.op.name == "linalg.transpose" and not inside
            if self.origins[node.source].name in self.sources and (ends or (inside and inside <= sinks)):
                sinks.add(i)
        return sinks

    def _outputs(self, replaced: set[int]) -> list[ChainTensor]:
        outputs: list[ChainTensor] = []
        for i in sorted(replaced & self.cluster.members):
            node = self.graph.nodes[i]
            for value in node.results:
                if any(user not in replaced for user in self.graph.users.get(value, ())):
                    groups = self._groups(self._laid(value, self.cluster.dims[value]))
                    outputs.append(ChainTensor(value, self.origins[value].name, groups))
        if not outputs:
            raise Unbuildable("nobody reads what it gives")
        return outputs

    def _turn(self, outputs: list[ChainTensor]) -> None:
        """Gives steps the order of axes in which results are read; of a product alone, and where a value's order was
        chosen, also what it makes these of."""
        order = {tensor.name: tuple(axis for group in tensor.groups for axis in group) for tensor in outputs}
        alone = sum(isinstance(step, Reduce) for step in self.steps) == 1
        if alone and (not self.cluster.windows or any(tensor.value in self.orders for tensor in outputs)):
            for axes in dict.fromkeys(order.values()):
                alike = [step.name for step in self.steps if {*step.axes} == {*axes}]
                order = dict.fromkeys(alike, axes) | order
        for k, step in enumerate(self.steps):
            axes = order.get(step.name, step.axes)
            if axes != step.axes:
                changed = Map(step.name, axes, step.expr, step.dtype) if isinstance(step, Map) else _turned(step, axes)
                self.steps[k] = changed
        for tensor in outputs:
            if order[tensor.name] != tuple(axis for group in tensor.groups for axis in group):
                raise Unbuildable(f"{tensor.name} is read in two orders of its axes")

    def _live(self, outputs: list[ChainTensor]) -> tuple[list[Step], list[tuple[Input, ChainTensor]]]:
        needed = {tensor.name for tensor in outputs}
        steps: list[Step] = []
        for step in reversed(self.steps):
            if step.name in needed:
                steps.append(step)
                needed |= reads(step.expr)
        # What was filled in may make an operation simpler; a chain and what is read from its IR are the same.
        steps = [replace(step, expr=folded_throughout(step.expr)) for step in reversed(steps)]
        return steps, [pair for pair in self.inputs.values() if pair[0].name in needed]


def _extents(
    inputs: Sequence[ChainTensor], outputs: Sequence[ChainTensor], sizes: Mapping[str, int | None]
) -> dict[str, SizeSource]:
    """For each size that is known at run time only an input that tells it."""
    sources: dict[str, SizeSource] = {}
    for tensor in inputs:
        for k, group in enumerate(tensor.groups):
            unknown = [piece for piece in group if sizes[piece] is None]
            if len(unknown) == 1 and unknown[0] not in sources:
                known = prod(size for piece in group if (size := sizes[piece]) is not None)
                sources[unknown[0]] = SizeSource(tensor.value, k, known)
    for tensor in (*inputs, *outputs):
        for piece in (piece for group in tensor.groups for piece in group):
            if sizes[piece] is None and piece not in sources:
                raise Unbuildable("no input has the size of one of its axes, which is known at run time only")
    return sources


def _turned(step: Reduce, axes: tuple[str, ...]) -> Reduce:
    return Reduce(step.name, axes, step.over, step.combine, step.expr, step.initial, step.dtype)
