"""Grows products of matrices, convolutions and pooling, which take in less than other reductions.

What they read in more bits than it is in memory, they widen themselves: halves are multiplied as such."""

from __future__ import annotations

from collections.abc import Iterator

from covan_mlir.passes.raising.chain_growth import Growth
from covan_mlir.passes.raising.linalg_graph import LinalgNode


class Epilogue(Growth):
    """Grows a product by the element-wise ops that go over all of its result."""

    def _paths(self) -> Iterator[list[int]]:
        (seed,) = [i for i in self.cluster.loops if self.graph.nodes[i].reduces]
        kept = self.cluster.position(self.graph.nodes[seed]) - self.cluster.over(self.graph.nodes[seed])
        for value in list(self.cluster.dims):
            for path in self._down(value, []):
                nodes = [self.graph.nodes[i] for i in path]
                if any(node.reduces or node.gathers for node in nodes) or nodes[-1].copies or self._for_others(nodes):
                    continue
                grown = self.cluster.copy()
                if all(grown.add(node) for node in nodes) and all(
                    grown.position(node) == {leaf for axis in kept for leaf in grown.axes.leaves([axis])}
                    for node in nodes
                    if node.kind == "compute"
                ):
                    yield path

    def _for_others(self, path: list[LinalgNode]) -> bool:
        """Whether the end of a path only widens what products then read."""
        waiting = path[-1].results if path[-1].widens else []
        for value in waiting:
            for user in self.graph.users.get(value, ()):
                reader = self.graph.nodes[user]
                if reader.contracts:
                    return True
                waiting += reader.results if reader.copies else []
        return False

    def _repeatable(self, node: LinalgNode) -> bool:
        return node.copies or node.widens


class Unturned(Epilogue):
    """The same, with results in the order of axes in which they are computed."""

    def _absorb_below(self, value: int) -> bool:
        return False


class Alone(Unturned):
    """Leaves a product as it is, but for the views that lead to it."""

    def _paths(self) -> Iterator[list[int]]:
        yield from ()
