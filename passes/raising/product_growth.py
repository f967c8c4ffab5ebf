"""Grows products of matrices, convolutions and pooling, which take in less than other reductions.

What they read in more bits than it is in memory, they widen themselves: halves are multiplied as such."""

from __future__ import annotations

from collections.abc import Iterator

from covan_mlir.fred.expression import Apply, walk
from covan_mlir.passes.raising.chain_growth import Growth
from covan_mlir.passes.raising.cluster import Cluster, sources
from covan_mlir.passes.raising.linalg_graph import LinalgNode, is_cheap

_CHEAP = 4
"""Operations on an element that may be done again for each group of rows that is multiplied by it."""


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

    def _repeatable(self, node: LinalgNode) -> bool:
        return node.copies or node.widens


class Prologue(Epilogue):
    """The same, with what is cheap and is done, for this product alone, to the elements of the factor that has the last
    axis of the result: an activation, a scale and a shift of each of its rows. That factor is read as vectors."""

    def _paths(self) -> Iterator[list[int]]:
        yield from super()._paths()
        inside = self._before(self.cluster)
        for value in {operand.value: None for i in inside for operand in self.graph.nodes[i].operands}:
            for path in self._up(value):
                *copies, last = (self.graph.nodes[i] for i in path)
                if all(node.copies for node in copies) and _element_wise(last) and not self._ahead(last):
                    yield path

    def _before(self, cluster: Cluster) -> list[int]:
        """The product of a cluster, and members that compute what it reads."""
        inside = [i for i in cluster.loops if self.graph.nodes[i].reduces]
        for i in inside:
            made_by = [self.graph.definition.get(operand.value, -1) for operand in self.graph.nodes[i].operands]
            while made_by:
                if (index := made_by.pop()) not in cluster.members or index in inside:
                    continue
                node = self.graph.nodes[index]
                if node.copies:
                    made_by += [self.graph.definition.get(value, -1) for value in sources(node)]
                else:
                    inside.append(index)
        return inside

    def _ahead(self, node: LinalgNode) -> bool:
        """Whether the compiler evaluates a node."""
        return any(value in self.graph.weights for value in node.results)

    def _fits_above(self, node: LinalgNode, grown: Cluster) -> bool:
        if any(grown.outside(value) for value in node.results):
            return False
        if node.copies:
            return True
        product, *before = (self.graph.nodes[i] for i in self._before(grown))
        (result,) = product.results
        position = grown.position(node)
        indices = {one.index for one in before}
        wide = {
            value for (i, _), (value, dims) in grown.reads.items() if i in indices and {*grown.flat(dims)} == position
        }
        exprs = [part.expr for one in before for part in one.parts if part is not None]
        return (
            node.index in indices
            and not position.isdisjoint(grown.flat(grown.dims[result])[-1:])  # one number has no axes
            and len(wide) == 1
            and all(is_cheap(expr) for expr in exprs)
            and sum(isinstance(inner, Apply) for expr in exprs for inner in walk(expr)) <= _CHEAP
        )


def _element_wise(node: LinalgNode) -> bool:
    return node.kind == "compute" and not (node.copies or node.widens or node.gathers or node.reduces)


class Unturned(Epilogue):
    """The same, with results in the order of axes in which they are computed."""

    def _absorb_below(self, value: int) -> bool:
        return False


class Alone(Unturned):
    """Leaves a product as it is, but for the views that lead to it."""

    def _paths(self) -> Iterator[list[int]]:
        yield from ()
