"""What the axes of a fused chain are to each other, and which of them become dimensions of tiles."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from covan_mlir.fred.chain import Chain, Reduce
from covan_mlir.fred.forms import Fusion, Rolling, Stage
from covan_mlir.lowering.kernels.errors import UnsupportedError


@dataclass(frozen=True)
class SweepRoles:
    """Roles of axes.

    Attributes:
        stages: the sweeps, computations between them included.
        reduction_axes: the axes that are swept.
        rows: axes of the statistics, in the order of memory.
        free: those of them that some streamed input does not have: positions that share it. All, if none is shared.
        feature_axes: axes that some accumulators have besides the rows'.
        inner: reductions under a loop, for each position of it: the scores.
        shared: whether rows share anything: then tiles of them are worth it.
    """

    stages: tuple[Stage, ...]
    reduction_axes: tuple[str, ...]
    rows: tuple[str, ...]
    free: tuple[str, ...]
    feature_axes: tuple[str, ...]
    inner: tuple[Reduce, ...]
    shared: bool

    @property
    def loops(self) -> tuple[Rolling, ...]:
        """The loops that compute reductions."""
        return tuple(stage.rolling for stage in self.stages if stage.rolling is not None)


def in_memory_order(chain: Chain, axes: frozenset[str]) -> tuple[str, ...]:
    """Axes as the largest value has them; others before."""
    widest = max((*chain.inputs, *chain.steps), key=lambda v: len(axes.intersection(v.axes)))
    first = [axis.name for axis in chain.axes if axis.name in axes and axis.name not in widest.axes]
    return (*first, *(axis for axis in widest.axes if axis in axes))


def sweep_roles(fusion: Fusion) -> SweepRoles:
    """Roles of a chain whose sweeps all run over the same axes.

    Raises:
        UnsupportedError: they do not, or nothing is reduced.
    """
    chain = fusion.chain
    swept = [stage for stage in fusion.stages if stage.axes]
    loops = [stage.rolling for stage in swept if stage.rolling is not None]
    if not loops:
        raise UnsupportedError("nothing is reduced")
    stream = frozenset(swept[0].axes)
    for stage in swept[1:]:
        if frozenset(stage.axes) != stream:
            raise UnsupportedError(f"its sweeps run over different axes: {stage.why}")
    steps = {
        e.name: e for stage in swept for e in (*stage.elements, *(stage.rolling.elements if stage.rolling else ()))
    }
    inner = tuple(step for step in steps.values() if isinstance(step, Reduce))
    states = [state.axes for loop in loops for state in loop.state if state.name != "count"]
    least = min(states, key=lambda axes: len(tuple(axes)))
    narrow = frozenset(least)
    wide = frozenset(axis for axes in states for axis in axes) - narrow
    if any(not narrow <= frozenset(axes) for axes in states):
        raise UnsupportedError("its accumulators have axes that do not contain each other")
    if both := wide & {axis for step in inner for axis in step.over}:
        raise UnsupportedError(f"the axes {sorted(both)} are contracted under the loop and kept by its accumulators")
    # Keys and values, not masks: what has features besides the loop's and the rows' axes.
    streamed = [v for v in chain.inputs if stream & {*v.axes} and not {*v.axes} <= stream | narrow]
    rows = in_memory_order(chain, narrow)
    free = tuple(axis for axis in rows if any(axis not in value.axes for value in streamed))
    return SweepRoles(
        tuple(fusion.stages),
        in_memory_order(chain, stream),
        rows,
        free if streamed else rows,
        in_memory_order(chain, wide),
        inner,
        bool(streamed),
    )


@dataclass(frozen=True)
class Dim:
    """A dimension of tiles: axes of the chain as one, the last one fastest.

    Attributes:
        name: of the variable that holds the positions.
        size: number of positions.
        block: positions of a tile; a power of two.
    """

    name: str
    axes: tuple[str, ...]
    size: int
    block: int

    @property
    def ragged(self) -> bool:
        """Whether the last tile is not full."""
        return self.size % self.block != 0


@dataclass(frozen=True)
class Layout:
    """Where every axis is: in a dimension of tiles, or distributed over programs one by one.

    Attributes:
        dims: in the order that tiles have them: rows, stream, wide, then one per set of contracted axes.
        grid: axes of which a program has one position.
        stream: name of the dimension that is swept.
    """

    dims: tuple[Dim, ...]
    grid: tuple[str, ...]
    sizes: dict[str, int]
    stream: str

    def dim_of(self, axis: str) -> Dim | None:
        """The dimension that an axis is in, if any."""
        return next((dim for dim in self.dims if axis in dim.axes), None)

    def dim(self, name: str) -> Dim | None:
        """A dimension by name."""
        return next((dim for dim in self.dims if dim.name == name), None)

    def dims_of(self, axes: frozenset[str]) -> tuple[str, ...]:
        """Names of the dimensions that values with these axes have."""
        return tuple(dim.name for dim in self.dims if axes.intersection(dim.axes))

    def tiles(self, name: str) -> int:
        """Number of tiles along a dimension; 1 if there is no such."""
        dim = self.dim(name)
        return -(-dim.size // dim.block) if dim else 1


def dim_of_axes(name: str, axes: tuple[str, ...], sizes: dict[str, int], block: int) -> Dim:
    """A dimension of tiles that holds these axes."""
    return Dim(name, axes, prod(sizes[axis] for axis in axes), block)


def power_of_two(n: int) -> int:
    """The smallest power of two that is not smaller."""
    return 1 << max(n - 1, 0).bit_length()
