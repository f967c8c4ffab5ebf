"""Finds chains in a block: sets of ops over shared axes that may be computed together.

A chain starts from a reduction and grows, as long as something fits:

- what its values come from: element-wise ops that nobody else reads, reductions over the same axes, and matrix products
  whose result only the chain reads (the scores of attention);
- what reads its values: element-wise ops over the same axes, reductions over an axis that the chain reduces already or
  that go on with one of its own along another axis, products with something that is no weight among them (the values
  of attention);
- reductions over the same axes of the same inputs; elements picked along an axis that the chain reduces.

Products with weights stay out of these, for they are large, and so does what reads through windows, a convolution or a
pooling. With the element-wise ops behind them, they are chains of their own; products that share a factor are one. A
chain is convex: nothing outside lies between two of its ops.
"""

from __future__ import annotations

from collections.abc import Callable

from covan_mlir.passes.raising.chain_growth import Growth, Reach
from covan_mlir.passes.raising.cluster import Cluster
from covan_mlir.passes.raising.linalg_graph import LinalgGraph, LinalgNode
from covan_mlir.passes.raising.product_growth import Alone, Epilogue, Prologue, Unturned
from covan_mlir.passes.raising.siblings import with_siblings
from covan_mlir.passes.raising.tile_growth import tiles_around

Accept = Callable[[Cluster], bool]
"""Whether a chain is worth raising."""


def find_chains(graph: LinalgGraph, accept: Accept | None = None, products: bool = True) -> list[Cluster]:
    """The chains of a block, in the order of their first reductions.

    Args:
        accept: asked about each chain; of one that it refuses, the part without matrix products is offered.
        products: whether chains may hold matrix products.
    """
    reach = Reach(graph)
    taken: set[int] = set()
    refused: set[int] = set()
    read_through: set[int] = set()
    clusters = []
    reductions = [node for node in graph.nodes if node.kind == "compute" and node.reduces and not node.gathers]
    first = [node for node in reductions if not _is_dense(node)]
    clusters += _tiles(graph, reach, (taken, read_through), accept) if products else []
    # What is left of products then are chains of their own.
    second = [node for node in reductions if _is_dense(node)] if products else []
    for node in (*first, *second):
        if node.index in taken | refused:
            continue
        known = (graph.weights, graph.constants, graph.closed)
        if all(any(operand.value in values for values in known) for operand in node.operands):
            continue  # the compiler evaluates it
        before = (taken, read_through)
        if _is_dense(node):
            chain = _products(node, graph, reach, before, accept, refused) or _product(
                node, graph, reach, before, accept
            )
        else:
            chain = _grown(node, graph, reach, before, accept, products)
        if isinstance(chain, set):
            refused |= chain
            continue
        _take(chain, reach, before)
        clusters.append(chain)
    return clusters


def _take(chain: Cluster, reach: Reach, taken: tuple[set[int], set[int]]) -> None:
    """From now on, a chain is taken."""
    graph, (own, read_through) = chain.graph, taken
    # Views, broadcasts and conversions of what comes from outside may be read through by several chains.
    free = {i for i in chain.members if chain.is_free(i)}
    read_through |= free
    own |= chain.members - free
    reach.contract({i for i in chain.members - free if not graph.nodes[i].copies})


def _tiles(graph: LinalgGraph, reach: Reach, taken: tuple[set[int], set[int]], accept: Accept | None) -> list[Cluster]:
    """Chains of products that meet in one intermediate value."""
    chains = []
    for node in graph.nodes:
        if node.kind != "compute" or node.index in taken[0]:
            continue
        chain = tiles_around(node, graph, reach, taken)
        if chain is not None and (accept is None or accept(chain)):
            _take(chain, reach, taken)
            chains.append(chain)
    return chains


def _is_dense(node: LinalgNode) -> bool:
    """Whether a reduction is a product of matrices, or reads through windows."""
    return node.contracts or node.windowed


def _grown(
    seed: LinalgNode,
    graph: LinalgGraph,
    reach: Reach,
    taken: tuple[set[int], set[int]],
    accept: Accept | None,
    products: bool,
) -> Cluster | set[int]:
    """The chain around a reduction, or what is not to be tried again."""
    tried = {seed.index}
    for with_products in (True, False) if products else (False,):
        cluster = Cluster(graph)
        if not cluster.add(seed):
            break
        cluster = Growth(graph, reach, taken, cluster, with_products).grow()
        if accept is None or accept(cluster):
            return cluster
        tried |= {i for i in cluster.loops if not graph.nodes[i].contracts}
        if not any(graph.nodes[i].contracts for i in cluster.loops):
            break
    return tried


def _products(
    seed: LinalgNode,
    graph: LinalgGraph,
    reach: Reach,
    taken: tuple[set[int], set[int]],
    accept: Accept | None,
    refused: set[int],
) -> Cluster | None:
    """A product of matrices and those that share a factor with it, if they are taken together."""

    def grow(node: LinalgNode) -> Cluster | None:
        cluster = Cluster(graph)
        return Epilogue(graph, reach, taken, cluster, True).grow() if cluster.add(node) else None

    if not seed.contracts:
        return None
    cluster = with_siblings(seed, graph, reach, taken[0] | refused, grow)
    return cluster if cluster is not None and (accept is None or accept(cluster)) else None


def _product(
    seed: LinalgNode, graph: LinalgGraph, reach: Reach, taken: tuple[set[int], set[int]], accept: Accept | None
) -> Cluster | set[int]:
    """A product of matrices, or what reads through windows, with the element-wise ops behind it and cheap ones before
    it if it is taken with them, else without those before it, else without the transposition behind it, else alone; or
    what is not to be tried again."""
    tried: list[set[int]] = []
    for growth in (Prologue, Epilogue, Unturned, Alone):
        cluster = Cluster(graph)
        if not cluster.add(seed):
            break
        cluster = growth(graph, reach, taken, cluster, True).grow()
        if cluster.members in tried:
            continue
        if accept is None or accept(cluster):
            return cluster
        tried.append(cluster.members)
    return {seed.index}
