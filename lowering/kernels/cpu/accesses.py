"""What a reduction reads, each read at affine positions: plain reads of inputs, and those through windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from covan_mlir.fred.chain import Chain, Input
from covan_mlir.fred.expression import Affine, Const, Expr, Read, Window, rebuild
from covan_mlir.lowering.kernels.cpu.elements import computed
from covan_mlir.lowering.kernels.dense.chain import DenseChain, only_reduction
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.reductions.hoist import Scope


@dataclass(frozen=True)
class Access:
    """A read of an input.

    Attributes:
        alias: what the terms call what is read; two reads of an input at other positions have two.
        value: the input.
        at: the position on each of its dimensions.
        outside: what is read where a position lies outside of the input.
    """

    alias: str
    value: Input
    at: tuple[Affine, ...]
    outside: Const

    @cached_property
    def axes(self) -> frozenset[str]:
        """The axes that it depends on."""
        return frozenset(axis for position in self.at for axis in position.axes)

    def moves(self, axis: str) -> tuple[int, ...]:
        """How far a step along an axis moves, on each dimension."""
        return tuple(dict(position.terms).get(axis, 0) for position in self.at)

    def contiguous(self, axis: str) -> bool:
        """Whether elements that follow each other along an axis do so in memory."""
        return bool(self.at) and self.moves(axis) == (*([0] * (len(self.at) - 1)), 1)

    def leaving(self, sizes: Mapping[str, int]) -> tuple[bool, ...]:
        """Of which dimensions a position may lie outside of the input."""
        ends = [(size, position.bounds(sizes)) for size, position in zip(self.shape(sizes), self.at, strict=True)]
        return tuple(low < 0 or high >= size for size, (low, high) in ends)

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Of the input."""
        return tuple(sizes[axis] for axis in self.value.axes)

    def strides(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Elements from one position to the next, on each dimension."""
        strides, one = [], 1
        for size in reversed(self.shape(sizes)):
            strides.append(one)
            one *= size
        return tuple(reversed(strides))


@dataclass(frozen=True)
class LoopNest(DenseChain):
    """``step[kept] = combine over the contracted axes of term``, and maps of it, with every read at affine positions.

    Attributes:
        chain: as it was given; all of its sizes are known.
        term: what is combined, of the accesses' aliases.
        accesses: what it reads, each once.
    """

    term: Expr
    accesses: tuple[Access, ...]

    @property
    def kept(self) -> tuple[str, ...]:
        """Axes of the results."""
        return self.step.axes

    @cached_property
    def contracted(self) -> tuple[str, ...]:
        """Axes that are combined over, those that lie closest together in what most of them index last."""
        over = self.step.over
        widest = max(self.accesses, key=lambda access: len(access.axes & {*over}))
        near = {axis: n for n, position in enumerate(widest.at) for axis in position.axes}
        return tuple(sorted(over, key=lambda axis: (near.get(axis, -1), over.index(axis))))

    @property
    def element(self) -> str:
        """The type that is computed in."""
        return computed(self.step.dtype)


def loop_nest_of(chain: Chain) -> LoopNest:
    """A chain of one reduction, as its reads.

    Raises:
        UnsupportedError: it is no such chain, or a size is known at run time only.
    """
    step = only_reduction(chain)
    if chain.extents:
        raise UnsupportedError(f"the sizes of {', '.join(chain.extents)} are only known at run time")
    accesses: dict[Expr, Access] = {}

    def read(node: Expr) -> Expr:
        if not isinstance(node, Read | Window):
            return node
        if node not in accesses:
            value = chain.values[node.name]
            if not isinstance(value, Input):
                raise UnsupportedError(f"its terms read {node.name}, which is no input")
            at = node.at if isinstance(node, Window) else tuple(Affine.of([(axis, 1)]) for axis in value.axes)
            outside = node.outside if isinstance(node, Window) else Const(0, node.dtype)
            accesses[node] = Access(f"{node.name}.{len(accesses)}", value, at, outside)
        return Read(accesses[node].alias, node.dtype)

    term = rebuild(Scope(chain, {}).inlined(step.expr), read)
    if not accesses:
        raise UnsupportedError("its terms read nothing")
    return LoopNest(chain, step, term, tuple(accesses.values()))
