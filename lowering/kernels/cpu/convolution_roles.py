"""A chain that is one convolution with element-wise work around it, as the CPU's template for convolutions sees it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property

from covan_mlir.fred.chain import Chain, Input, Map, Reduce
from covan_mlir.fred.expression import Affine, Apply, Expr, Index, Window, walk
from covan_mlir.lowering.kernels.cpu.elements import computed
from covan_mlir.lowering.kernels.cpu.scalar_rows import in_place, weight_by_rows
from covan_mlir.lowering.kernels.cpu.words import BF16, INTEGER_SUMS, Words, fitting
from covan_mlir.lowering.kernels.dense.chain import (
    DenseChain,
    check_sum,
    is_unsigned,
    only_reduction,
    stored,
    without_zero,
)
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.reductions.hoist import Scope

MOST_TAPS = 64
"""Of a window, that are written out in an inner loop."""


@dataclass(frozen=True)
class Sliding:
    """A dimension of the input along which a window slides: ``stride * position + dilation * tap + offset``.

    Attributes:
        axis: of the results.
        tap: axis of the filter; None where it has one position.
        inside: size of the input's dimension.
        outside: size of the results' axis.
        taps: positions of the filter.
    """

    axis: str
    tap: str | None
    stride: int
    dilation: int
    offset: int
    inside: int
    outside: int
    taps: int

    def phase(self, tap: int) -> int:
        """Which of the input's ``stride`` interleaved parts a tap reads."""
        return tap * self.dilation % self.stride

    def shift(self, tap: int) -> int:
        """How far on in that part."""
        return tap * self.dilation // self.stride

    @cached_property
    def phases(self) -> tuple[int, ...]:
        """The parts that are read at all."""
        return tuple(sorted({self.phase(tap) for tap in range(self.taps)}))

    @cached_property
    def halo(self) -> int:
        """Positions of a part that are read beyond those of the results."""
        return max(self.shift(tap) for tap in range(self.taps))


@dataclass(frozen=True)
class WindowWords:
    """What is multiplied of a convolution whose channels are, a word at a time.

    Attributes:
        weight: the filter; of integers it has a sign.
        words: of consecutive channels.
        signed: of integers, the image has a sign.
        zero: what is taken off each of its numbers before it is multiplied.
    """

    weight: Input
    words: Words
    signed: bool = False
    zero: int = 0

    @property
    def offset(self) -> int:
        """What is multiplied too much of each number of the image."""
        return self.words.excess(signed=self.signed, zero=self.zero)

    @property
    def turned(self) -> bool:
        """Whether numbers of the image are taken for others."""
        return self.words.turns(signed=self.signed)


@dataclass(frozen=True)
class Convolution(DenseChain):
    """``step[outer, rows, h, lane] = sum of scalars[outer, rows, contracted, taps] * window[outer, contracted, h, taps,
    lane]``, and maps of it. Without a filter it is pooling: what the window shows is combined as it is.

    Attributes:
        chain: as it was given; sizes of outer axes may be known at run time only.
        scalars: the filter; None for pooling.
        window: what slides.
        outer: axes that are none of the others, in the order of the result.
        rows: axes of the filter alone, in the order of the result: output channels.
        width: slides along the last axis of the results, which lanes run along.
        height: slides along the axis before it; None where nothing does.
        contracted: axes that are summed over, but for the taps of both: input channels.
        integers: how the machine multiplies integers a word at a time.
    """

    scalars: Expr | None
    window: Window
    outer: tuple[str, ...]
    rows: tuple[str, ...]
    width: Sliding
    height: Sliding | None
    contracted: tuple[str, ...]
    integers: tuple[Words, ...] = ()

    @property
    def slides(self) -> tuple[Sliding, ...]:
        """Along what the window slides, the last one last."""
        return (self.width,) if self.height is None else (self.height, self.width)

    @cached_property
    def filter(self) -> Input | None:
        """The filter, where it is a weight that can be packed by rows."""
        return weight_by_rows(self, self.scalars, self.rows, self.window)

    @cached_property
    def words(self) -> WindowWords | None:
        """How its channels are multiplied a word at a time; None: they are not."""
        if self.scalars is None or len(self.rows) != 1 or not self.contracted:
            return None
        weight, channel = self.packable(self.scalars, self.window), self.contracted[0]
        if weight is None or self.rows[0] not in weight.axes:
            return None
        sums, term = computed(self.step.dtype), Scope(self.chain, {}).inlined(self.step.expr)
        assert isinstance(term, Apply)
        shown = (one for one in map(without_zero, term.args) if isinstance(stored(one[0]), Window))
        image, zero = next(shown)
        signed = not is_unsigned(image)
        words = fitting(self.integers, signed=signed) if sums == INTEGER_SUMS else BF16
        if words is None or sums != words.sums or not weight.dtype == self.window.dtype == words.element:
            return None
        # What is multiplied beyond the last channel is by 0, which leaves numbers out, but not those of bfloat16.
        if not words.integers and self.sizes[channel] % words.count:
            return None
        # Where one channel of a word is in the input, so are the others.
        position = position_on(self.window, channel)
        low, high = position.bounds(self.sizes)
        inside = self.chain.values[self.window.name].axes[self.window.at.index(position)]
        if low < 0 or high >= self.sizes[inside]:
            return None
        if not words.integers:
            return WindowWords(weight, words) if self.window.outside.value == 0.0 else None
        return None if is_unsigned(self.scalars) else WindowWords(weight, words, signed, zero)

    @cached_property
    def batch(self) -> int:
        """Positions on the outer axes."""
        return self.count(self.outer)

    @cached_property
    def filters(self) -> int:
        """Output channels of one of them."""
        return self.count(self.rows)

    @cached_property
    def channels(self) -> int:
        """Positions that are summed over, but for the taps."""
        return self.count(self.contracted)

    @cached_property
    def beside(self) -> int:
        """Of them, those on all contracted axes but the first."""
        return self.count(self.contracted[1:])

    @cached_property
    def taps(self) -> int:
        """Of the window, along both."""
        return self.width.taps * (self.height.taps if self.height is not None else 1)


def with_filters_outside(convolution: Convolution) -> Convolution:
    """A convolution over one channel, of whose filters each is taken by itself, and shown the same window."""
    slid = {slides.axis for slides in convolution.slides}
    return replace(convolution, outer=tuple(axis for axis in convolution.step.axes if axis not in slid), rows=())


def check_taps(written: int) -> None:
    """Raises UnsupportedError: more taps of a window would be written out in an inner loop than should be."""
    if written > MOST_TAPS:
        raise UnsupportedError(f"{written} taps of its window would be written out, and {MOST_TAPS} are the most")


def check_bare_windows(convolution: Convolution) -> None:
    """Raises UnsupportedError: a result takes more than a window of one channel."""
    if convolution.rows or convolution.contracted:
        raise UnsupportedError("a result takes more than one channel, or a channel makes more than one result")
    for position in convolution.window.at[: -len(convolution.slides)]:
        if position.axes and position.axis not in convolution.outer:
            raise UnsupportedError("its window slides along more than two dimensions")


def check_one_channel(convolution: Convolution) -> None:
    """Raises UnsupportedError: a result takes more than a window of one channel, whose outside does not count."""
    check_bare_windows(convolution)
    if convolution.scalars is not None and not in_place(convolution.chain, convolution.scalars):
        raise UnsupportedError("its filter is not in memory as it is multiplied")
    neutral = 0.0 if convolution.scalars is not None else convolution.step.initial.value
    if convolution.window.outside.value != neutral:
        raise UnsupportedError("what is outside of the input counts")


def rows_are_one(convolution: Convolution) -> bool:
    """Whether all rows of the results can be taken for one."""
    return are_one(convolution.chain, tuple(slides.axis for slides in convolution.slides), {convolution.window.name})


def are_one(chain: Chain, axes: tuple[str, ...], factors: Collection[str]) -> bool:
    """Whether positions on some axes can be counted through where results are made: what is done to sums does not tell
    them apart, and whatever it reads that has one of the axes has all of them, last.

    Args:
        factors: inputs that are multiplied only.
    """
    for value in chain.values.values():
        if value.name not in factors and {*axes} & {*value.axes} and value.axes[-len(axes) :] != axes:
            return False
    maps = [step.expr for step in chain.steps if isinstance(step, Map)]
    return not any(isinstance(node, Index) and node.axis in axes for expr in maps for node in walk(expr))


def convolution_of(chain: Chain, *, integers: tuple[Words, ...] = ()) -> Convolution:
    """The roles of a chain's axes.

    Args:
        integers: words of them, which are multiplied in place of floating-point numbers.

    Raises:
        UnsupportedError: it is no such chain.
    """
    step = only_reduction(chain, integers=bool(integers))
    window, scalars = factors(chain, step)
    own = Scope(chain, {}).axes(scalars) if scalars is not None else frozenset()
    lanes = {chain.values[name].axes[-1:] for name in chain.outputs}
    if len(lanes) != 1 or not (lane := next(iter(lanes))):
        raise UnsupportedError("the results end in different axes")
    width = sliding(chain, step, window, lane[0])
    if width is None or width.axis in own:
        raise UnsupportedError("its window does not slide along the last axis of the results")
    before = step.axes[step.axes.index(lane[0]) - 1] if len(step.axes) > 1 else ""
    height = sliding(chain, step, window, before) if before and before not in own else None
    if height is not None and window.at.index(position_on(window, before)) != len(window.at) - 2:
        height = None
    if window.at.index(position_on(window, lane[0])) != len(window.at) - 1:
        raise UnsupportedError("its window does not slide along the last dimension of its input")
    taps = {slides.tap for slides in (width, height) if slides is not None}
    rows = tuple(axis for axis in step.axes if axis in own - window.axes)
    slid = {slides.axis for slides in (width, height) if slides is not None}
    outer = tuple(axis for axis in step.axes if axis not in slid and axis not in rows)
    contracted = tuple(axis for axis in step.over if axis not in taps)
    if scalars is not None and set(step.over) - own:
        raise UnsupportedError("its filter is the same at all positions of an axis that is summed over")
    convolution = Convolution(chain, step, scalars, window, outer, rows, width, height, contracted, integers)
    inner = [axis for axis in chain.extents if axis not in outer and axis not in rows]
    if inner:
        raise UnsupportedError(f"the sizes of {', '.join(inner)} are only known at run time")
    return convolution


def factors(chain: Chain, step: Reduce) -> tuple[Window, Expr | None]:
    """-> (what slides, the filter)."""
    term = Scope(chain, {}).inlined(step.expr)
    if isinstance(whole := stored(term), Window):
        return whole, None
    check_sum(step)
    if not isinstance(term, Apply) or term.op not in ("arith.mulf", "arith.muli"):
        raise UnsupportedError("its terms are no products")
    parts = [(factor, stored(without_zero(factor)[0])) for factor in term.args]
    sliding = [part for _, part in parts if isinstance(part, Window)]
    filters = [factor for factor, part in parts if not isinstance(part, Window)]
    if len(sliding) != 1 or any(isinstance(node, Window) for node in walk(filters[0])):
        raise UnsupportedError("not exactly one factor is an input that is read through a window")
    return sliding[0], filters[0]


def position_on(window: Window, axis: str) -> Affine:
    """The only position that depends on an axis."""
    positions = [position for position in window.at if axis in position.axes]
    if len(positions) != 1:
        raise UnsupportedError(f"{len(positions)} dimensions of its input depend on {axis}")
    return positions[0]


def sliding(chain: Chain, step: Reduce, window: Window, axis: str) -> Sliding | None:
    """How a window slides along an axis of the results; None where it does not."""
    if axis not in window.axes:
        return None
    position = position_on(window, axis)
    terms = dict(position.terms)
    stride = terms.pop(axis)
    taps = [tap for tap in terms if tap in step.over]
    if len(terms) > 1 or len(taps) != len(terms) or stride < 1 or any(value < 1 for value in terms.values()):
        return None
    size = chain.sizes[chain.values[window.name].axes[window.at.index(position)]]
    results = chain.sizes[axis]
    if size is None or results is None:
        raise UnsupportedError(f"the size of {axis} is only known at run time")
    tap = taps[0] if taps else None
    if tap is None:
        return Sliding(axis, None, stride, 1, position.offset, size, results, 1)
    count = chain.sizes[tap]
    if count is None:
        raise UnsupportedError(f"the size of {tap} is only known at run time")
    return Sliding(axis, tap, stride, terms[tap], position.offset, size, results, count)
