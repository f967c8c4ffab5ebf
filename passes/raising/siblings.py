"""Products that share a factor, as one chain: query, key and value of an attention, both products of a gate."""

from __future__ import annotations

from collections.abc import Callable, Container

from covan_mlir.dialects.fred_limits import MAX_INPUTS, MAX_OUTPUTS
from covan_mlir.passes.raising.chain_growth import Reach
from covan_mlir.passes.raising.cluster import Cluster, sources
from covan_mlir.passes.raising.linalg_graph import LinalgGraph, LinalgNode


def with_siblings(
    seed: LinalgNode,
    graph: LinalgGraph,
    reach: Reach,
    skip: Container[int],
    grow: Callable[[LinalgNode], Cluster | None],
) -> Cluster | None:
    """A product with all those that sum over the same axes of something that it reads as well, each with the
    element-wise ops behind it; None where there are no others.

    Args:
        skip: nodes that are not asked.
        grow: gives a product with the element-wise ops behind it.
    """
    siblings = [node for node in _sharing(seed, graph) if node.index not in skip]
    cluster = grow(seed) if siblings else None
    if cluster is None:
        return None
    alone = cluster
    for node in siblings:
        if node.index not in cluster.members and (other := grow(node)) is not None:
            cluster = _united(cluster, other, reach) or cluster
    return None if cluster is alone else cluster


def _sharing(seed: LinalgNode, graph: LinalgGraph) -> list[LinalgNode]:
    """Other products that read something that a product reads, directly or through copies, in program order."""
    waiting = list(dict.fromkeys(_origin(operand.value, graph) for operand in seed.operands))
    sharing: dict[int, LinalgNode] = {}
    for value in waiting:
        if value in graph.constants or value in graph.closed:
            continue
        for user in graph.users.get(value, ()):
            node = graph.nodes[user]
            if node.copies:
                waiting += node.results
            elif node.contracts and not node.gathers and node.index != seed.index:
                sharing[node.index] = node
    return [sharing[index] for index in sorted(sharing)]


def _origin(value: int, graph: LinalgGraph) -> int:
    """What a value is a copy of."""
    while value in graph.definition and (node := graph.nodes[graph.definition[value]]).copies:
        value = sources(node)[0]
    return value


def _united(cluster: Cluster, other: Cluster, reach: Reach) -> Cluster | None:
    """Both as one chain, if they are one: all of its products sum over the same axes."""
    grown, nodes = cluster.copy(), cluster.graph.nodes
    if not all(grown.add(nodes[index]) for index in sorted(other.members - grown.members)):
        return None
    over = {frozenset(grown.over(nodes[i])) for i in grown.loops if nodes[i].reduces}
    fits = len(over) == 1 and grown.inputs() <= MAX_INPUTS and grown.outputs() <= MAX_OUTPUTS
    return grown if fits and reach.convex({i for i in grown.members if not grown.is_free(i)}) else None
