"""In which order the dimensions of images lie in memory between chains: channels before the positions, as the program
has them, or behind.

Where channels lie side by side, vectors along them are filled whatever the size of the image, windows are read without
masks, and a convolution by single points is the product that a linear layer is. Where they do not, filters are read as
scalars and wide images as vectors. No order is right for all of a model, and no conversion is needed between two: a
kernel may read one and write the other, if a template takes it.

So it is a choice for each image that chains alone give and read: the one with the least sum of predicted times,
exactly, but for a bound on how many kernels are predicted. An image that anything else reads stays as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from covan_mlir.fred.chain import Chain
from covan_mlir.passes.raising.chain_build import Built, Unbuildable, build_chain
from covan_mlir.passes.raising.cluster import Cluster
from covan_mlir.passes.raising.labelling import Table, TooWideError, least, tabulated
from covan_mlir.passes.raising.linalg_graph import LinalgGraph

log = logging.getLogger(__name__)

Predict = Callable[[Chain], float | None]
"""Seconds that a chain is predicted to take; None where it would not become a kernel."""

IMAGES = ("linalg.conv_", "linalg.depthwise_conv_", "linalg.pooling_")
"""Names of what reads images begin so."""
NEVER = 1e3
"""Seconds for a chain that would not become a kernel."""
GAIN = 0.02
"""Part of all chains' time that must be won."""
ROUGH = 1.05
"""Times the prediction of a kernel with images of both orders: one more order wins nothing where it is even."""
MIXED = 32
"""Predictions beyond two for each chain, in all: of kernels for images of both orders. Each takes as long as choosing a
schedule."""


def reads_images(cluster: Cluster) -> bool:
    """Whether a chain has to do with images: its layouts are settled when all chains are known."""
    nodes = cluster.graph.nodes
    return any(nodes[i].op.name.startswith(IMAGES) for i in cluster.loops)


@dataclass(frozen=True)
class Layouts:
    """Chains and the images between them.

    Attributes:
        clusters, built: of the chains, as the program lays images out.
        predict: asked about chains as they are and otherwise.
    """

    graph: LinalgGraph
    clusters: Sequence[Cluster]
    built: Sequence[Built]
    predict: Predict
    _predicted: dict[Chain, float] = field(default_factory=dict)
    _chains: dict[tuple[int, frozenset[int]], Chain | None] = field(default_factory=dict)

    def choose(self) -> dict[int, tuple[int, ...]]:
        """The images whose channels are to lie behind their positions, with the order of their dimensions."""
        images = self._images
        if not images:
            return {}
        plain = sum(self._time(number, frozenset()) for number in self._own)
        if plain >= NEVER:
            return {}
        try:
            turned, seconds = self._best()
        except TooWideError:
            log.info("images stay as the program lays them out: too many of them depend on each other")
            return {}
        return {value: images[value] for value in turned} if seconds < (1 - GAIN) * plain else {}

    @cached_property
    def _inside(self) -> set[int]:
        """What chains read."""
        return {tensor.value for built in self.built for tensor in built.inputs}

    @cached_property
    def _images(self) -> dict[int, tuple[int, ...]]:
        """Images that chains alone give and read."""
        replaced = {i for built in self.built for i in built.replaced}
        copied = {i for built in self.built for i in built.copied}
        images: dict[int, tuple[int, ...]] = {}
        for cluster, built in zip(self.clusters, self.built, strict=True):
            names = [tensor.name for tensor in built.outputs]
            for tensor in built.outputs:
                rank = len(self.graph.shapes[tensor.value])
                if rank < 3 or tensor.value not in self._inside or names.count(tensor.name) > 1:
                    continue
                near = reads_images(cluster) or any(map(reads_images, self._readers(tensor.value)))
                if near and self._only_inside(tensor.value, replaced, copied):
                    images[tensor.value] = (0, *range(2, rank), 1)
        return images

    def _readers(self, value: int) -> Iterator[Cluster]:
        for cluster, built in zip(self.clusters, self.built, strict=True):
            if any(tensor.value == value for tensor in built.inputs):
                yield cluster

    def _only_inside(self, value: int, replaced: set[int], copied: set[int]) -> bool:
        """Whether nothing but chains reads a value, or views of it that they read through."""
        for user in self.graph.users.get(value, ()):
            if user in replaced:
                continue
            views = self.graph.nodes[user].results
            # A chain that reads a view as it is reads what the program has.
            if user not in copied or any(one in self._inside for one in views):
                return False
            if not all(self._only_inside(one, replaced, copied) for one in views):
                return False
        return True

    @cached_property
    def _own(self) -> dict[int, tuple[int, ...]]:
        """By chain, the images that it gives or reads."""
        own: dict[int, tuple[int, ...]] = {}
        for number, built in enumerate(self.built):
            values = dict.fromkeys(tensor.value for tensor in (*built.inputs, *built.outputs))
            if mine := tuple(value for value in values if value in self._images):
                own[number] = mine
        return own

    def _best(self) -> tuple[frozenset[int], float]:
        """The images to turn, and the time of all chains then.

        A chain with images of both orders is taken to need as long as the faster one with all of one, until that is
        what the best choice rests on: then its kernel is predicted, and the choice made again.
        """
        while True:
            mixed = len(self._predicted) < 2 * len(self._own) + MIXED
            tables = [self._table(number, mixed=mixed) for number in self._own]
            chosen = least(tables)
            turned = frozenset(value for value, yes in chosen.items() if yes)
            asked = [number for number in self._own if self._known(number, turned) is None]
            seconds = sum(self._time(number, turned) for number in self._own)
            if not asked:
                return turned, seconds

    def _table(self, number: int, *, mixed: bool) -> Table[int]:
        """What a chain takes for each choice, as far as it was predicted.

        Args:
            mixed: whether kernels for images of both orders may still be predicted.
        """
        own = self._own[number]
        uniform = self._time(number, frozenset()), self._time(number, frozenset(own))
        least_mixed = ROUGH * min(uniform) if mixed else NEVER

        def time(chosen: Mapping[int, bool]) -> float:
            known = self._known(number, frozenset(value for value, yes in chosen.items() if yes))
            return least_mixed if known is None else known

        return tabulated(own, time)

    def _chain(self, number: int, turned: frozenset[int]) -> Chain | None:
        """A chain where the channels of some images lie behind; None: it cannot be said."""
        key = number, turned.intersection(self._own[number])
        if key not in self._chains:
            if not key[1]:
                self._chains[key] = self.built[number].chain.untraced
            else:
                try:
                    built = build_chain(self.clusters[number], {value: self._images[value] for value in key[1]})
                    self._chains[key] = built.chain.untraced
                except Unbuildable:
                    self._chains[key] = None
        return self._chains[key]

    def _known(self, number: int, turned: frozenset[int]) -> float | None:
        """The time of a chain, as far as it was predicted."""
        if (number, turned.intersection(self._own[number])) not in self._chains:
            return None
        chain = self._chain(number, turned)
        if chain is None:
            return NEVER
        mixed = not turned.isdisjoint(self._own[number]) and not turned.issuperset(self._own[number])
        return self._predicted[chain] * (ROUGH if mixed else 1.0) if chain in self._predicted else None

    def _time(self, number: int, turned: frozenset[int]) -> float:
        chain = self._chain(number, turned)
        if chain is not None and chain not in self._predicted:
            seconds = self.predict(chain)
            self._predicted[chain] = NEVER if seconds is None else seconds
        known = self._known(number, turned)
        assert known is not None
        return known


def linked(built: Sequence[Built], orders: Mapping[int, object]) -> list[int]:
    """Numbers of chains, those that give an image in another order before those that read it."""
    given = {tensor.value: n for n, one in enumerate(built) for tensor in one.outputs if tensor.value in orders}
    order: list[int] = []
    done: set[int] = set()

    def visit(number: int) -> None:
        if number in done:
            return
        done.add(number)
        for tensor in built[number].inputs:
            if tensor.value in given:
                visit(given[tensor.value])
        order.append(number)

    for number in range(len(built)):
        visit(number)
    return order
