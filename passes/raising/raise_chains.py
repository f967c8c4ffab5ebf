"""Chains that were chains, put into the place of the ops that they are."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from torch_mlir import ir

from covan_mlir.dialects.arguments import read_arguments
from covan_mlir.dialects.fred_chain import StepLocation, write_chain
from covan_mlir.dialects.identity import address
from covan_mlir.dialects.prov_locations import TraceReader
from covan_mlir.fred.chain import Chain
from covan_mlir.passes.framework.rewriter import Rewriter
from covan_mlir.passes.raising.chain_build import Built, Orders, Unbuildable, build_chain
from covan_mlir.passes.raising.chain_search import find_chains
from covan_mlir.passes.raising.cluster import Cluster
from covan_mlir.passes.raising.joined_axes import ChainTensor
from covan_mlir.passes.raising.layouts import Layouts, linked, reads_images
from covan_mlir.passes.raising.linalg_graph import LinalgGraph
from covan_mlir.passes.raising.linalg_reader import read_block
from covan_mlir.passes.raising.reshape import extent, from_axes, to_axes
from covan_mlir.passes.raising.varying import varying

log = logging.getLogger(__name__)

_LEFT_OVER = ("linalg.fill", "tensor.empty", "arith.constant")


class Chooser(Protocol):
    """Who decides which chains are raised; all are given with their traces."""

    def unbuildable(self, reason: str, ids: frozenset[int]) -> None:
        """Is told why ops that belong together cannot be written as a chain, and their traces."""

    def accept(self, chain: Chain) -> bool:
        """Whether a chain is worth raising, whose layouts are settled later. What is not stays as it was."""

    def predict(self, chain: Chain) -> float | None:
        """Seconds that it is predicted to take; None where it would not be accepted, or layouts are not chosen."""

    def writable(self, chain: Chain) -> bool:
        """Whether it can be had for certain."""

    def settle(self, chain: Chain) -> bool:
        """Whether it becomes one ``fred.chain``: nothing about it changes any more."""

    def resettle(self, before: Chain, after: Chain) -> None:
        """Another chain, which can be had, takes the place of one that was settled: its images have another order."""


def raise_chains(function: ir.Operation, chooser: Chooser | None = None, products: bool = True) -> None:
    """Makes each set of ops of a function that is a chain one ``fred.chain``; what is none stays as it was.

    Args:
        chooser: is asked about chains; those of weights and constants alone stay as they are. None: all are raised.
        products: whether chains may hold matrix products.
    """
    blocks = list(function.regions[0].blocks)
    if len(blocks) != 1:
        return  # a declaration, or control flow
    raised = _Raised(function, blocks[0], chooser)
    find_chains(raised.graph, raised.take, products)
    if raised.built:
        raised.lay_out()
        raised.replace()


class _Raised:
    """The chains of a block."""

    def __init__(self, function: ir.Operation, block: ir.Block, chooser: Chooser | None) -> None:
        arguments = read_arguments(function)
        self.function, self.block, self.chooser = function, block, chooser
        self.graph = read_block(block, arguments)
        self.changing = varying(block, arguments)
        self.reader = TraceReader()
        self.lent = _lent(self.graph, self._ids)
        self.clusters: list[Cluster] = []
        self.built: list[Built] = []
        self.orders: Orders = {}

    def _ids(self, nodes: Iterable[int]) -> frozenset[int]:
        return frozenset(id_ for i in nodes for id_ in self.reader.ids(self.graph.nodes[i].op.location))

    def _chain(self, built: Built) -> Chain:
        """The chain with its traces."""
        return _traced(built.chain, {name: self._ids(nodes) for name, nodes in built.sources.items()})

    def take(self, cluster: Cluster) -> bool:
        """Whether ops become a chain."""
        chooser = self.chooser
        try:
            built = _own(build_chain(cluster), self.lent)
        except Unbuildable as error:
            if chooser is not None:
                chooser.unbuildable(str(error), self._ids(cluster.loops))
            return False
        if chooser is not None:
            if not any(self.graph.values[tensor.value] in self.changing for tensor in built.inputs):
                # IREE does, as it compiles or as the program is loaded: on the processor, whatever the kernel is for.
                chooser.unbuildable(
                    "it reads weights and constants alone: it is computed once", self._ids(cluster.loops)
                )
                return False
            decide = chooser.accept if reads_images(cluster) else chooser.settle
            if not decide(self._chain(built)):
                return False
        self.clusters.append(cluster)
        self.built.append(built)
        return True

    def lay_out(self) -> None:
        """Settles in which order images lie between chains, and the chains that have to do with images."""
        chooser = self.chooser
        if chooser is None:
            return
        plain = self.built
        self._turn(Layouts(self.graph, self.clusters, plain, chooser.predict).choose(), chooser)
        refused: set[int] = set()
        for n, (cluster, before, after) in enumerate(zip(self.clusters, plain, self.built, strict=True)):
            if not reads_images(cluster):
                if before is not after:
                    chooser.resettle(self._chain(before), self._chain(after))
            elif not chooser.settle(self._chain(after)):
                refused.add(n)  # one that no image in another order goes through
        self.built = [built for n, built in enumerate(self.built) if n not in refused]

    def _turn(self, orders: Orders, chooser: Chooser) -> None:
        """Gives images another order, unless a kernel cannot be had after all."""
        turned = list(self.built)
        for n, built in enumerate(self.built):
            if any(tensor.value in orders for tensor in (*built.inputs, *built.outputs)):
                turned[n] = _own(build_chain(self.clusters[n], orders), self.lent)
                if not chooser.writable(self._chain(turned[n])):
                    log.warning("images stay as the program lays them out: a kernel of another order failed")
                    return
        self.built, self.orders = turned, orders

    def replace(self) -> None:
        """Puts the chains into the place of the ops that they are."""
        rewriter = Rewriter(self.function)
        copied = {address(self.graph.nodes[i].op) for i in self.lent.union(*(built.copied for built in self.built))}
        for n in linked(self.built, self.orders):
            _replace(self.built[n], self.graph, rewriter, self.orders)
        _clean(self.block, rewriter, copied)


def _replace(built: Built, graph: LinalgGraph, rewriter: Rewriter, orders: Orders) -> None:
    ops = [graph.nodes[i].op for i in built.replaced]
    copies = [graph.nodes[i].op for i in built.copied]
    place = _place(built, graph, ops)
    with rewriter.replacing(*ops, copies=copies, at=ir.InsertionPoint(place)) as new:
        size = _extents(built, graph)
        operands = [to_axes(graph.values[t.value], _sizes(t, built), t.counts, size) for t in built.inputs]
        locations: dict[str, StepLocation] = {}
        traces: dict[str, frozenset[int]] = {}
        for step in built.chain.steps:
            sources = [graph.nodes[i].op for i in sorted(built.sources[step.name])]
            finished = [graph.nodes[i].op for i in sorted(built.values[step.name])]
            with new.only(*sources) as work, new.only(*finished) as value:
                locations[step.name] = StepLocation(value, work)
            traces[step.name] = rewriter.reader.ids(work)
        op = write_chain(_traced(built.chain, traces), operands, locations)
        given = dict(zip(built.chain.outputs, op.results, strict=True))
        values: dict[int, Any] = {}
        for tensor in built.outputs:
            kind = _laid(graph.values[tensor.value].type, orders.get(tensor.value))
            values[tensor.value] = from_axes(given[tensor.name], _sizes(tensor, built), tensor.counts, kind, size)
        for i in built.replaced:
            node = graph.nodes[i]
            results = node.results if node.kind != "compute" else [p.value if p else -1 for p in node.parts]
            if any(value in values for value in results):
                retyped = any(value in orders for value in results)
                new.results(*(values.get(value) for value in results), of=node.op, retyped=retyped)
    for value, after in values.items():
        graph.values[value] = after


def _laid(kind: ir.RankedTensorType, order: Sequence[int] | None) -> ir.Type:
    """A tensor's type with its dimensions in another order."""
    return kind if order is None else ir.RankedTensorType.get([kind.shape[n] for n in order], kind.element_type)


def _lent(graph: LinalgGraph, ids: Callable[[Iterable[int]], frozenset[int]]) -> frozenset[int]:
    """Nodes that say positions, in the name of operations that do more than that elsewhere. One is kept of equal ones:
    the positions that a gather counts along are those of a mask behind it, too, which is none of the gather's work."""
    positions = frozenset[int]().union(*graph.sources.values())
    work = ids(i for i, node in enumerate(graph.nodes) if i not in positions and node.op.name == "linalg.generic")
    return frozenset(i for i in positions if (named := ids([i])) and named <= work)


def _own(built: Built, lent: frozenset[int]) -> Built:
    """The chain without those, but for steps that are nothing else."""
    sources = {name: nodes - lent or nodes for name, nodes in built.sources.items()}
    values = {name: nodes - lent or nodes for name, nodes in built.values.items()}
    used = frozenset[int]().union(*sources.values(), *values.values())
    copied = tuple(i for i in built.copied if i not in lent or i in used)
    return replace(built, sources=sources, values=values, copied=copied)


def _sizes(tensor: ChainTensor, built: Built) -> list[list[int | str]]:
    return [[piece if (size := built.sizes[piece]) is None else size for piece in group] for group in tensor.groups]


def _extents(built: Built, graph: LinalgGraph) -> Callable[[str], ir.Value]:
    """Gives the sizes of pieces that are known at run time only, each computed once, from an input."""
    extents: dict[str, ir.Value] = {}

    def size(piece: str) -> ir.Value:
        if piece not in extents:
            place = built.extents[piece]
            extents[piece] = extent(graph.values[place.value], place.dimension, place.known)
        return extents[piece]

    return size


def _traced(chain: Chain, traces: dict[str, frozenset[int]]) -> Chain:
    return replace(chain, steps=tuple(replace(step, trace=traces[step.name]) for step in chain.steps))


def _place(built: Built, graph: LinalgGraph, ops: list[ir.Operation]) -> ir.Operation:
    """An op to build before: after all inputs, before all readers. Readers that stand too early are moved down."""
    inputs = [owner for t in built.inputs if (owner := _definition(graph.values[t.value])) is not None]
    last: Any = None
    for op in inputs:
        last = op if last is None or last.is_before_in_block(op) else last
    readers = [
        _outermost(use.owner.operation, ops[0].block) for t in built.outputs for use in graph.values[t.value].uses
    ]
    readers = [op for op in readers if op not in ops]
    first = readers[0]
    for op in readers:
        first = op if op.is_before_in_block(first) else first
    if last is None or last.is_before_in_block(first):
        return first
    moving = readers
    early: list[ir.Operation] = []
    while moving:
        op = moving.pop()
        if op in early or not op.is_before_in_block(last) or op in ops:
            continue
        early.append(op)
        moving += [_outermost(use.owner.operation, op.block) for result in op.results for use in result.uses]
    ordered: list[ir.Operation] = []
    for op in early:
        at = next((i for i, other in enumerate(ordered) if op.is_before_in_block(other)), len(ordered))
        ordered.insert(at, op)
    after = last
    for op in ordered:
        op.move_after(after)
        after = op
    return ordered[0]


def _definition(value: Any) -> ir.Operation | None:
    owner = value.owner
    return None if isinstance(owner, ir.Block) else owner.operation


def _outermost(op: ir.Operation, block: ir.Block) -> ir.Operation:
    while op.block != block and op.parent is not None:
        op = op.parent.operation
    return op


def _clean(block: ir.Block, rewriter: Rewriter, copied: Container[int]) -> None:
    """Erases what only the replaced ops read: initial values, shapes, and what each chain that reads it computes."""
    waiting = [op for view in block if (op := view.operation).name in _LEFT_OVER or address(op) in copied]
    for op in reversed(waiting):
        if not any(True for result in op.results for _ in result.uses):
            rewriter.erase(op, "each of its readers computes it")
