"""Grows chains of products that meet in one intermediate value: all sums along its rows and its columns together.

The value, as attention's weights, has more elements than what it comes from. What is made of it one by one becomes the
chain's, and what products along one of its axes make of it: then no memory holds it. It starts from a product that
gives such a value, and goes back to other products that do.
"""

from __future__ import annotations

from covan_mlir.passes.raising.chain_growth import LONGEST_FREE, Growth, Reach
from covan_mlir.passes.raising.cluster import Cluster
from covan_mlir.passes.raising.linalg_graph import LinalgGraph, LinalgNode


def tiles_around(
    seed: LinalgNode, graph: LinalgGraph, reach: Reach, taken: tuple[set[int], set[int]]
) -> Cluster | None:
    """The chain of products that meet in what one of them gives; None if that is no such chain."""
    cluster = Cluster(graph)
    if not seed.contracts or seed.gathers or not cluster.add(seed) or not _widens(seed, cluster):
        return None
    return TileGrowth(graph, reach, taken, cluster).grown()


def _widens(node: LinalgNode, cluster: Cluster) -> bool:
    """Whether a product has more elements than its factors."""
    kept, over = cluster.position(node) - cluster.over(node), cluster.over(node)
    factors = [cluster.flat(dims) for (i, _), (_, dims) in cluster.reads.items() if i == node.index]
    lengths = [cluster.length(set(factor)) for factor in factors]
    length, depth = cluster.length(kept), cluster.length(over)
    if length is None or depth is None or depth > LONGEST_FREE or any(known is None for known in lengths):
        return False
    return length > sum(known or 0 for known in lengths)


class TileGrowth(Growth):
    """Grows a chain from a product with many rows and columns."""

    def __init__(self, graph: LinalgGraph, reach: Reach, taken: tuple[set[int], set[int]], cluster: Cluster) -> None:
        super().__init__(graph, reach, taken, cluster, True)
        (self.seed,) = cluster.loops

    def grown(self) -> Cluster | None:
        """The largest chain; None if the value is needed in memory after all."""
        cluster = self.grow()
        sums = [i for i in cluster.loops if self._sums(self.graph.nodes[i], cluster)]
        if not sums:
            return None
        for i in cluster.loops:
            node = self.graph.nodes[i]
            if self._of_tile(node, cluster) and any(self._reaches(value, cluster) for value in node.results):
                return None
        return cluster

    def _tile(self, cluster: Cluster) -> set[int]:
        """The axes of the value."""
        seed = self.graph.nodes[self.seed]
        return cluster.position(seed) - cluster.over(seed)

    def _of_tile(self, node: LinalgNode, cluster: Cluster) -> bool:
        """Whether a member gives elements of the value."""
        return cluster.position(node) - cluster.over(node) == self._tile(cluster)

    def _sums(self, node: LinalgNode, cluster: Cluster) -> bool:
        """Whether a member is a product along an axis of the value."""
        over = cluster.over(node)
        return node.reduces and bool(over) and over <= self._tile(cluster)

    def _reaches(self, value: int, cluster: Cluster) -> bool:
        """Whether somebody outside reads a value, as it is or through copies."""
        waiting = [value]
        while waiting:
            for user in self.graph.users.get(waiting.pop(), ()):
                node = self.graph.nodes[user]
                if user not in cluster.members:
                    return True
                waiting += node.results if node.copies else []
        return False

    def _fits_above(self, node: LinalgNode, grown: Cluster) -> bool:
        """What gives elements of the value, for the chain alone."""
        alone = not any(grown.outside(value) for value in node.results)
        if node.copies:
            return alone or grown.is_free(node.index)
        if not alone or not self._of_tile(node, grown) or any(value in self.graph.weights for value in node.results):
            return False
        return not node.reduces or (node.contracts and self._short(grown.over(node), grown))

    def _fits_below(self, nodes: list[LinalgNode], grown: Cluster, old: set[int]) -> bool:
        """What is made of elements of the value one by one, products along its axes, and what is made of these."""
        last = nodes[-1]
        if any(node.reduces or node.gathers for node in nodes[:-1]) or last.gathers or self._for_others(nodes):
            return False
        if not last.reduces:
            return self._of_tile(last, grown) or any(
                grown.position(last) == grown.position(self.graph.nodes[i]) - grown.over(self.graph.nodes[i])
                for i in grown.loops
                if self._sums(self.graph.nodes[i], grown)
            )
        position = grown.position(last)
        over = grown.over(last)
        tile = self._tile(grown)
        return last.contracts and len(over) == 1 and over <= tile and self._short(position - tile, grown)

    def _short(self, axes: set[int], grown: Cluster) -> bool:
        length = grown.length(axes)
        return bool(axes) and length is not None and length <= LONGEST_FREE
