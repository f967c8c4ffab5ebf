"""Chains that were chains, put into the place of the ops that they are."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import replace
from typing import Any

from torch_mlir import ir

from covan_mlir.dialects.arguments import read_arguments
from covan_mlir.dialects.fred_chain import StepLocation, write_chain
from covan_mlir.dialects.identity import address
from covan_mlir.dialects.prov_locations import TraceReader
from covan_mlir.fred.chain import Chain
from covan_mlir.passes.framework.rewriter import Rewriter
from covan_mlir.passes.raising.chain_build import Built, Unbuildable, build_chain
from covan_mlir.passes.raising.chain_search import find_chains
from covan_mlir.passes.raising.cluster import Cluster
from covan_mlir.passes.raising.joined_axes import ChainTensor
from covan_mlir.passes.raising.linalg_graph import LinalgGraph
from covan_mlir.passes.raising.linalg_reader import read_block
from covan_mlir.passes.raising.reshape import extent, from_axes, to_axes
from covan_mlir.passes.raising.varying import varying

_LEFT_OVER = ("linalg.fill", "tensor.empty", "arith.constant")


def raise_chains(
    function: ir.Operation,
    accept: Callable[[Chain], bool] | None = None,
    unbuildable: Callable[[str, frozenset[int]], None] | None = None,
    products: bool = True,
) -> None:
    """Makes each set of ops of a function that is a chain one ``fred.chain``; what is none stays as it was.

    Args:
        accept: is given chains with their traces; those that it does not take stay as they are, and so do those of
            weights and constants alone.
        unbuildable: is told why ops that belong together cannot be written as a chain, and their traces.
        products: whether chains may hold matrix products.
    """
    blocks = list(function.regions[0].blocks)
    if len(blocks) != 1:
        return  # a declaration, or control flow
    arguments = read_arguments(function)
    graph = read_block(blocks[0], arguments)
    changing = varying(blocks[0], arguments)
    chains: list[Built] = []
    reader = TraceReader()

    def ids(nodes: Iterable[int]) -> frozenset[int]:
        return frozenset(id_ for i in nodes for id_ in reader.ids(graph.nodes[i].op.location))

    lent = _lent(graph, ids)

    def take(cluster: Cluster) -> bool:
        try:
            built = _own(build_chain(cluster), lent)
        except Unbuildable as error:
            if unbuildable is not None:
                unbuildable(str(error), ids(cluster.loops))
            return False
        if accept is not None:
            if not any(graph.values[tensor.value] in changing for tensor in built.inputs):
                # IREE does, as it compiles or as the program is loaded: on the processor, whatever the kernel is for.
                if unbuildable is not None:
                    unbuildable("it reads weights and constants alone: it is computed once", ids(cluster.loops))
                return False
            traces = {name: ids(nodes) for name, nodes in built.sources.items()}
            if not accept(_traced(built.chain, traces)):
                return False
        chains.append(built)
        return True

    find_chains(graph, take, products)
    if not chains:
        return
    rewriter = Rewriter(function)
    copied = {address(graph.nodes[i].op) for i in lent.union(*(built.copied for built in chains))}
    for built in chains:
        _replace(built, graph, rewriter)
    _clean(blocks[0], rewriter, copied)


def _replace(built: Built, graph: LinalgGraph, rewriter: Rewriter) -> None:
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
            kind = graph.values[tensor.value].type
            values[tensor.value] = from_axes(given[tensor.name], _sizes(tensor, built), tensor.counts, kind, size)
        for i in built.replaced:
            node = graph.nodes[i]
            results = node.results if node.kind != "compute" else [p.value if p else -1 for p in node.parts]
            if any(value in values for value in results):
                new.results(*(values.get(value) for value in results), of=node.op)
    for value, after in values.items():
        graph.values[value] = after


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
