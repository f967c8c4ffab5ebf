"""``linalg-recompute-products``: what is computed again, where an intermediate value would lie in memory for long."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from torch_mlir import ir

from covan_mlir.dialects.arguments import read_arguments
from covan_mlir.dialects.prov_locations import TraceReader, rewrite_locations
from covan_mlir.passes.framework.trace_check import current_journal, identity
from covan_mlir.passes.raising.chain_growth import Reach
from covan_mlir.passes.raising.cluster import sources
from covan_mlir.passes.raising.linalg_graph import LinalgGraph, LinalgNode
from covan_mlir.passes.raising.linalg_reader import read_block


@dataclass(frozen=True)
class LinalgRecomputeProducts:
    """Takes apart a product of matrices that has more elements than its factors, with what is made of it one by one,
    where two products read it of which one needs the other's result.

    No chain can hold both: what lies between them is not its own. So the value would be in memory in between. A program
    that computes gradients says that it computes attention's weights again for them; common subexpression elimination
    made one of both.

    Before::

        %s = linalg.batch_matmul ins(%q, %k) ...
        %p = linalg.generic {exp} ins(%s) ...
        %o = linalg.batch_matmul ins(%p, %v) ...
        %g = ... %o ...
        %d = linalg.batch_matmul ins(%p, %g) ...

    After::

        %s = linalg.batch_matmul ins(%q, %k) ...
        %p = linalg.generic {exp} ins(%s) ...
        %o = linalg.batch_matmul ins(%p, %v) ...
        %g = ... %o ...
        %t = linalg.batch_matmul ins(%q, %k) ...
        %r = linalg.generic {exp} ins(%t) ...
        %d = linalg.batch_matmul ins(%r, %g) ...

    Sums over rows of the value, softmax's statistics, are not computed again. Where no kernel takes the copies in, IREE
    makes one of both again.
    """

    name: ClassVar[str] = "linalg-recompute-products"
    op_name: ClassVar[str | None] = "func.func"

    def run(self, op: ir.Operation) -> None:
        blocks = list(op.regions[0].blocks)
        if len(blocks) != 1:
            return  # a declaration, or control flow
        graph = read_block(blocks[0], read_arguments(op))
        reach, reader = Reach(graph), TraceReader()
        for node in graph.nodes:
            if node.kind == "compute" and node.contracts and not node.gathers and _widens(node, graph):
                _split(node, graph, reach, reader)


def _count(value: int, graph: LinalgGraph) -> int | None:
    sizes = [size for size in graph.shapes[value] if size is not None]
    return prod(sizes) if len(sizes) == len(graph.shapes[value]) else None


def _widens(node: LinalgNode, graph: LinalgGraph) -> bool:
    """Whether a product has more elements than its factors, none of which the compiler evaluates."""
    factors = [operand.value for operand in node.operands if operand.value not in graph.constants]
    counts = [_count(value, graph) for value in (*node.results, *factors)]
    if len(node.results) != 1 or any(value in graph.weights for value in factors):
        return False
    known = [count for count in counts if count is not None]
    return len(known) == len(counts) and known[0] > sum(known[1:])


def _split(product: LinalgNode, graph: LinalgGraph, reach: Reach, reader: TraceReader) -> None:
    """Gives those who need the result of a product with a value copies of it."""
    elements, readers = _made_of(product, graph)
    products = [i for i in readers if graph.nodes[i].contracts]
    first = [i for i in products if not any(_needs(i, other, reach) for other in products if other != i)]
    late = {i for i in (*elements, *readers) if any(i != other and _needs(i, other, reach) for other in first)}
    early = [i for i in elements if i not in late]
    if not first or not any(i in late for i in products):
        return
    wanted = _wanted(
        early, [i for i in late if any(value in _results(early, graph) for value in _reads(i, graph))], graph
    )
    if product.index not in wanted:
        return
    place = graph.nodes[min(late.intersection(_readers(wanted, graph)))].op
    copies: dict[int, ir.Value] = {}
    for i in sorted(wanted):
        node = graph.nodes[i]
        with ir.InsertionPoint(place):
            copy = node.op.clone()
        if reader.ids(node.op.location):  # what is in its body need not say so itself
            _locate(copy, node.op.location)
        else:
            current_journal().untraced.add(identity(copy))
        for number, operand in enumerate(copy.operands):
            for value, other in copies.items():
                if operand == graph.values[value]:
                    copy.operands[number] = other
        copies |= dict(zip(node.results, copy.results, strict=True))
    for i in late:
        op = graph.nodes[i].op
        for number, operand in enumerate(op.operands):
            for value, other in copies.items():
                if operand == graph.values[value]:
                    op.operands[number] = other
    for i in sorted(wanted, reverse=True):  # what only led to late ones
        op = graph.nodes[i].op
        if not any(True for result in op.results for _ in result.uses):
            op.erase()


def _locate(op: ir.Operation, location: ir.Location) -> None:
    rewrite_locations(op, lambda _: location)


def _needs(node: int, other: int, reach: Reach) -> bool:
    return bool(reach.before[node] >> other & 1)


def _made_of(product: LinalgNode, graph: LinalgGraph) -> tuple[list[int], list[int]]:
    """-> the nodes that make elements of a product's value one by one, it first; those that read them otherwise."""
    count = _count(product.results[0], graph)
    elements, readers = {product.index: None}, dict[int, None]()
    waiting = list(product.results)
    while waiting:
        for user in graph.users.get(waiting.pop(), ()):
            node = graph.nodes[user]
            alike = node.kind != "opaque" and not node.reduces and not node.gathers
            if alike and len(node.results) == 1 and _count(node.results[0], graph) == count:
                if user not in elements:
                    elements[user] = None
                    waiting += node.results
            else:
                readers[user] = None
    return list(elements), list(readers)


def _reads(i: int, graph: LinalgGraph) -> list[int]:
    return [] if graph.nodes[i].kind == "opaque" else sources(graph.nodes[i])


def _results(nodes: list[int], graph: LinalgGraph) -> set[int]:
    return {value for i in nodes for value in graph.nodes[i].results}


def _readers(nodes: set[int], graph: LinalgGraph) -> set[int]:
    return {user for i in nodes for value in graph.nodes[i].results for user in graph.users.get(value, ())}


def _wanted(early: list[int], late: list[int], graph: LinalgGraph) -> set[int]:
    """Those early nodes whose results late ones read, directly or not."""
    makers = {value: i for i in early for value in graph.nodes[i].results}
    waiting = [value for i in late for value in _reads(i, graph)]
    wanted: set[int] = set()
    while waiting:
        maker = makers.get(waiting.pop())
        if maker is not None and maker not in wanted:
            wanted.add(maker)
            waiting += _reads(maker, graph)
    return wanted
