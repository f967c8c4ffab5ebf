"""Grows a chain around a reduction, op by op: what may join it, and what it would lie between."""

from __future__ import annotations

from collections.abc import Iterator

from covan_mlir.dialects.fred_limits import MAX_INPUTS, MAX_OUTPUTS
from covan_mlir.fred.expression import Apply, Read, walk
from covan_mlir.passes.raising.cluster import Cluster, sources
from covan_mlir.passes.raising.linalg_graph import LinalgGraph, LinalgNode, is_cheap
from covan_mlir.passes.raising.nested_reductions import neutral

# The free axes of a product are accumulated side by side, its contracted axis is read again for each block of the
# other operand: longer ones are for a matrix product proper.
LONGEST_FREE = 256
SHORTEST = 8
"""Positions of a last axis that vectors are along."""
_DEEPEST = 6


class Reach:
    """What comes from what, as bit sets of node numbers; chains that were found count as one op.

    An op stands behind all that it takes: also the memory that it writes into, and numbers in its body, behind both of
    which sizes may be. Once it is in a chain, it stands behind what it reads, for a chain asks its inputs for sizes.
    """

    def __init__(self, graph: LinalgGraph) -> None:
        count = len(graph.nodes)
        self.before = [1 << i for i in range(count)]
        self.after = [1 << i for i in range(count)]
        self.views = {node.index for node in graph.nodes if node.kind == "view"}
        self._reads: list[list[int]] = [[] for _ in range(count)]
        for value, users in graph.users.items():
            source = graph.definition.get(value)
            if source is not None:
                for user in users:
                    self._reads[user].append(source)
        for i, needed in enumerate(graph.needs):
            for source in needed:
                self.before[i] |= self.before[source]
        for i in reversed(range(count)):
            for source in graph.needs[i]:
                self.after[source] |= self.after[i]

    def convex(self, members: set[int], perhaps: set[int] | None = None) -> bool:
        """Whether nothing else lies between two of them.

        Args:
            perhaps: members that may join; with them, False is certain and True is not.
        """
        within = members | (perhaps or set())
        before = after = inside = 0
        for i in members:
            for source in self._reads[i]:
                if source not in within:
                    before |= self.before[source]
            after |= self.after[i]
        for i in within:
            inside |= 1 << i
        return not before & after & ~inside

    def contract(self, members: set[int]) -> None:
        """From now on they are one op."""
        before = after = 0
        for i in members:
            before |= self.before[i]
            after |= self.after[i]
        for i in range(len(self.before)):
            if after >> i & 1:
                self.before[i] |= before
            if before >> i & 1:
                self.after[i] |= after


class Growth:
    """The largest chain that the rules reach from a cluster of one reduction."""

    def __init__(
        self, graph: LinalgGraph, reach: Reach, taken: tuple[set[int], set[int]], cluster: Cluster, products: bool
    ) -> None:
        self.products = products
        self.graph = graph
        self.reach = reach
        # By other chains: to themselves, and as views that they read their inputs through.
        self.taken, self.read_through = taken
        self.cluster = cluster
        self._axes = self._all_axes()

    def _all_axes(self) -> set[int]:
        """The axes of all loops of the chain as it is."""
        return set().union(*(self.cluster.position(self.graph.nodes[i]) for i in self.cluster.loops))

    def grow(self) -> Cluster:
        """The largest chain around the first reduction that the rules reach."""
        while self._step():
            pass
        self._absorb_views()
        return self.cluster

    def _is_taken(self, index: int) -> bool:
        """Whether another chain has a node: to itself, or to hold what it reads in more bits, which it does there."""
        return index in self.taken or (index in self.read_through and self.graph.nodes[index].widens)

    def _step(self) -> bool:
        refused: set[tuple[int, ...]] = set()
        for path in self._paths():
            key = tuple(path)
            if key in refused or any(self._is_taken(i) for i in path):
                continue
            grown = self._with(path)
            if grown is not None:
                self.cluster = grown
                self._axes = self._all_axes()
                return True
            refused.add(key)
        return False

    def _paths(self) -> Iterator[list[int]]:
        for _, (value, _) in list(self.cluster.reads.items()):
            yield from self._up(value)
        for value in list(self.cluster.dims):
            yield from self._down(value, [])
        for _, (value, _) in list(self.cluster.reads.items()):
            if value not in self.graph.weights:
                yield from self._down(value, [])

    def _up(self, value: int, path: list[int] | None = None) -> Iterator[list[int]]:
        """Ways from a value back to what it comes from. Beyond a reduction they go on: only there may be an input that
        tells its axes."""
        path = path or []
        if value not in self.graph.definition or len(path) >= _DEEPEST:
            return
        node = self.graph.nodes[self.graph.definition[value]]
        if node.kind == "opaque" or node.index in self.cluster.members or node.index in path:
            return
        path = [*path, node.index]
        if node.kind == "view":
            yield from self._up(node.source, path)
            return
        yield path
        if node.copies or any(self.graph.nodes[i].reduces and not self.graph.nodes[i].contracts for i in path):
            for operand in node.operands:
                yield from self._up(operand.value, path)

    def _down(self, value: int, path: list[int]) -> Iterator[list[int]]:
        """Ways from a value to the next reduction or element-wise op."""
        if len(path) >= _DEEPEST:
            return
        for user in self.cluster.outside(value):
            node = self.graph.nodes[user]
            if node.kind == "opaque" or user in path:
                continue
            further = [*path, user]
            if node.kind == "view":
                yield from self._down(node.result, further)
                continue
            yield further
            if not node.reduces:
                for result in node.results:
                    yield from self._down(result, further)

    def _with(self, path: list[int]) -> Cluster | None:
        """The cluster with these nodes, if it is a chain then."""
        nodes = [self.graph.nodes[i] for i in path]
        if not any(not node.copies for node in nodes):
            return None
        # Asked first, for it costs less than axes: what joins beside the path is a view.
        certain = {i for i in self.cluster.members if not self.cluster.is_free(i)}
        certain |= {node.index for node in nodes if not (node.copies or node.widens)}
        if not self.reach.convex(certain, self.reach.views.union(path, self.cluster.members)):
            return None
        grown = self.cluster.copy()
        for node in nodes:
            if not grown.add(node):
                return None
        if not self._same_through_views(grown) or not _shares_inputs(grown, self.cluster, path):
            return None
        if not self.reach.convex({i for i in grown.members if not grown.is_free(i)}):
            return None
        if grown.windows and sum(self.graph.nodes[i].reduces for i in grown.loops) > 1:
            return None
        if self._shortens(nodes, grown):
            return None
        if grown.inputs() > MAX_INPUTS or grown.outputs() > MAX_OUTPUTS:
            return None
        old = {leaf for axis in self._axes for leaf in grown.axes.leaves([axis])}
        if any(user in self.cluster.members for value in nodes[0].results for user in self.graph.users.get(value, ())):
            fits = all(self._fits_above(node, grown) for node in nodes)
        else:
            fits = self._fits_below(nodes, grown, old)
        return grown if fits else None

    def _shortens(self, nodes: list[LinalgNode], grown: Cluster) -> bool:
        """Whether new nodes take the last axis of a value apart for what they read of a part of it alone, so that
        vectors would be along a few positions: what is repeated side by side (the windows of a pooling, for their
        elements) is made before."""
        values = [dims for _, dims in self.cluster.reads.values()] + list(self.cluster.dims.values())
        last = {flat[-1] for dims in values if (flat := self.cluster.flat(dims))}
        apart = [leaves for axis in last if len(leaves := grown.axes.leaves([axis])) > 1]
        short = [leaves for leaves in apart if (grown.length({leaves[-1]}) or SHORTEST) < SHORTEST]
        if not short:
            return False
        read = [grown.flat(dims) for (i, _), (_, dims) in grown.reads.items() if i in {node.index for node in nodes}]
        return any(0 < len({*leaves} & {*flat}) < len({*leaves}) for leaves in short for flat in read)

    def _same_through_views(self, grown: Cluster) -> bool:
        """Takes in the views by which an input of new members is one that the chain has already in another shape, so
        that they lie along the same axes; False where they cannot."""
        known = {value for value, _ in self.cluster.reads.values()}
        for value in {read for use, (read, _) in grown.reads.items() if use not in self.cluster.reads} - known:
            for node in self._views_to(value, known):
                if node.index in self.taken or not grown.add(node):
                    return False
        return True

    def _views_to(self, value: int, known: set[int]) -> list[LinalgNode]:
        """The views between a value and one of those known, whichever is made of the other; none if there are none."""
        above: list[LinalgNode] = []
        at = value
        while (index := self.graph.definition.get(at)) is not None and self.graph.nodes[index].kind == "view":
            above.append(self.graph.nodes[index])
            at = above[-1].source
            if at in known:
                return above
        waiting: list[tuple[int, list[LinalgNode]]] = [(value, [])]
        while waiting:
            at, below = waiting.pop()
            if at in known:
                return below
            nodes = [self.graph.nodes[i] for i in self.graph.users.get(at, ())]
            waiting += [(n.result, [*below, n]) for n in nodes if n.kind == "view" and len(below) < _DEEPEST]
        return []

    def _fits_above(self, node: LinalgNode, grown: Cluster) -> bool:
        """Whether a node may be computed in the chain that reads it."""
        alone = not any(grown.outside(value) for value in node.results)
        if node.copies:
            return alone or grown.is_free(node.index)
        if any(value in self.graph.weights for value in node.results):
            return False  # the compiler evaluates it
        if not node.reduces:
            fits = alone and self._cheap_enough(node, grown) and not _feeds_windowed(node, grown)
            return fits and not self._settles(node)
        if node.contracts:
            return alone and self._product(node, grown, grown.over(node))
        return bool(grown.over(node) & self.cluster_reduced(grown))

    def _settles(self, node: LinalgNode) -> bool:
        """Whether a node says what sums of products of integers stand for: that is done where they are summed, and what
        is kept is a value of the program's."""
        sums = (value for value in self._tensors(node) if self.graph.dtypes[value].startswith("i"))
        makers = (self.graph.definition.get(value) for value in sums)
        return any(index is not None and self.graph.nodes[index].contracts for index in makers)

    def cluster_reduced(self, grown: Cluster) -> set[int]:
        """The axes that the chain reduced before it grew."""
        return {axis for i in self.cluster.loops for axis in grown.over(self.graph.nodes[i])}

    def _cheap_enough(self, node: LinalgNode, grown: Cluster) -> bool:
        """What a product reads is computed again for each block of rows: a scale or a conversion, but no bias, which
        the product before it adds for nothing."""
        values = node.results
        for value in values:  # it grows by what is made of these alone
            for user in self.graph.users.get(value, ()):
                further = self.graph.nodes[user]
                if user in grown.members and not further.reduces and len(self._tensors(further)) == 1:
                    values += further.results
        feeds = any(
            self.graph.nodes[i].contracts and any(o.value in values for o in self.graph.nodes[i].operands)
            for i in grown.loops
        )
        return not feeds or (
            len(self._tensors(node)) == 1
            and all(
                part is not None and is_cheap(part.expr) and sum(isinstance(n, Apply) for n in walk(part.expr)) <= 2
                for part in node.parts
            )
        )

    def _tensors(self, node: LinalgNode) -> set[int]:
        """Values that a node reads, but for numbers and positions."""
        return set(sources(node)) - self.graph.constants.keys() - self.graph.closed.keys()

    def _fits_below(self, nodes: list[LinalgNode], grown: Cluster, old: set[int]) -> bool:
        """Whether the end of a path may be computed in the chain that it reads, or shares inputs with."""
        last = nodes[-1]
        reads_chain = any(
            value in self.cluster.dims
            for node in nodes
            for value in ([node.source] if node.kind == "view" else [o.value for o in node.operands])
        )
        for node in nodes[:-1]:
            if node.kind == "compute" and grown.position(node) - old and not last.reduces:
                return False
        position = grown.position(last)
        if not last.reduces:
            return (
                reads_chain
                and not self._for_others(nodes)
                and any(position <= grown.position(self.graph.nodes[i]) for i in self.cluster.loops)
            )
        reduced = self.cluster_reduced(grown)
        if not reads_chain:  # beside the chain
            return (
                not last.contracts
                and position <= old
                and grown.over(last)
                in (grown.over(self.graph.nodes[i]) for i in self.cluster.loops if self.graph.nodes[i].reduces)
            )
        if not grown.over(last) & reduced and not self._goes_on(nodes):
            return False
        free = set().union(*(grown.position(node) for node in nodes if node.kind == "compute")) - old
        return not free or self._product(last, grown, free)

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

    def _goes_on(self, nodes: list[LinalgNode]) -> bool:
        """Whether the end of a path of views reduces the results of a reduction of the chain, in the same way, along
        another axis: a maximum over several axes, one by one."""
        last = nodes[-1]
        if any(node.kind != "view" for node in nodes[:-1]):
            return False
        value = nodes[0].source if len(nodes) > 1 else last.operands[0].value
        before = self.graph.nodes[self.graph.definition[value]] if value in self.cluster.dims else last
        inner = next((part for part in before.parts if part is not None and part.value == value), None)
        outer = [part for part in last.parts if part is not None]
        return (
            inner is not None
            and inner.combine is not None
            and inner.initial is not None
            and neutral(inner.combine, inner.initial)
            and len(outer) == len(last.operands) == 1
            and isinstance(outer[0].expr, Read)
            and (inner.combine, inner.initial) == (outer[0].combine, outer[0].initial)
            and len(self.graph.users[value]) == 1
        )

    def _product(self, node: LinalgNode, grown: Cluster, free: set[int]) -> bool:
        """Whether a matrix product is one that belongs into a chain."""
        if not self.products or any(operand.value in self.graph.weights for operand in node.operands):
            return False
        length = grown.length(free)
        return length is not None and length <= LONGEST_FREE

    def _absorb_views(self) -> None:
        """Reads inputs through the views that lead to them, and writes results through transpositions."""
        again = True
        while again:
            again = False
            # A view that two of them share gets the axes of who takes it in first, and the other may need others: a
            # product of a matrix with its own transposition. So the longest way is first, of which a part will do.
            above = [self._above(value) for value, _ in self.cluster.reads.values()]
            for nodes in sorted(above, key=len, reverse=True):
                again = self._absorb_above(nodes) or again
            for value in list(self.cluster.dims):
                again = self._absorb_below(value) or again

    def _absorb_below(self, value: int) -> bool:
        """Takes in a transposition that alone reads a result, and the reshapes before it."""
        below: list[LinalgNode] = []
        while len(users := self.graph.users.get(value, [])) == 1:
            node = self.graph.nodes[users[0]]
            if node.kind != "view" or node.index in self.cluster.members | self.taken | self.read_through:
                return False
            below.append(node)
            if node.op.name == "linalg.transpose":
                return self._absorb(below)
            value = node.result
        return False

    def _above(self, value: int) -> list[LinalgNode]:
        """The views and broadcasts that lead to an input, the nearest first."""
        above: list[LinalgNode] = []
        while value in self.graph.definition:
            node = self.graph.nodes[self.graph.definition[value]]
            if not self._repeatable(node) or node.index in self.cluster.members | self.taken:
                break
            above.append(node)
            value = sources(node)[0]
        return above

    def _absorb_above(self, above: list[LinalgNode]) -> bool:
        """Takes in what leads to an input, or the nearest part of it. A view that takes an axis apart is better done
        before the chain, unless a broadcast is behind it, which then need not be done at all."""
        if any(node.index in self.cluster.members for node in above):
            return False  # another one has taken them in since; what is left is looked at again
        return any(self._absorb(above[:count]) for count in range(len(above), 0, -1))

    def _repeatable(self, node: LinalgNode) -> bool:
        """Whether a chain may do for itself what leads to an input."""
        return node.copies

    def _absorb(self, nodes: list[LinalgNode]) -> bool:
        grown = self.cluster.copy()
        axes = set(grown.flat([dim for _, dims in grown.reads.values() for dim in dims]))
        if not all(grown.add(node) for node in nodes):
            return False
        last = nodes[-1]
        repeats = last.kind == "compute" and len(last.operands[0].dims) < len(last.loops)
        if not repeats and any(len(grown.axes.leaves([axis])) > 1 for axis in axes):
            return False
        self.cluster = grown
        return True


def _feeds_windowed(node: LinalgNode, grown: Cluster) -> bool:
    """Whether what reads through windows reads a node's results, directly or through copies."""
    waiting = node.results
    while waiting:
        for user in grown.graph.users.get(waiting.pop(), ()):
            reader = grown.graph.nodes[user]
            if user in grown.loops and reader.windowed:
                return True
            waiting += reader.results if user in grown.members and reader.copies else []
    return False


def _shares_inputs(grown: Cluster, before: Cluster, path: list[int]) -> bool:
    """Whether a path that reads nothing of the chain reads its inputs along the same axes."""
    if any(value in before.dims for i in path for value in sources(grown.graph.nodes[i])):
        return True
    for i in path:
        for k, value in enumerate(sources(grown.graph.nodes[i])):
            mine = grown.reads.get((i, k))
            theirs = next((dims for read, dims in before.reads.values() if read == value), None)
            if mine is not None and theirs is not None and grown.flat(mine[1]) != grown.flat(theirs):
                return False
    return True
