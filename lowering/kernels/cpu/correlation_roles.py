"""A chain that correlates two images at a few shifts, as the CPU's template for correlations sees it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from covan_mlir.fred.chain import Chain, Map
from covan_mlir.fred.expression import Affine, Apply, Index, Read, Window, walk
from covan_mlir.lowering.kernels.dense.chain import DenseChain, check_sum, only_reduction
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.reductions.hoist import Scope


@dataclass(frozen=True)
class Shifted:
    """A dimension of the image that is shifted: ``stride * position + dilation * shift + offset``.

    Attributes:
        axis: of the positions, which are summed over.
        tap: axis of the shifts; None where there is one.
        inside: size of the image's dimension.
        positions, taps: of the axes.
    """

    axis: str
    tap: str | None
    stride: int
    dilation: int
    offset: int
    inside: int
    positions: int
    taps: int

    def extent(self, positions: int) -> int:
        """Elements from the first to the last that so many positions read at all shifts."""
        return (positions - 1) * self.stride + (self.taps - 1) * self.dilation + 1


@dataclass(frozen=True)
class Correlation(DenseChain):
    """``step[outer, row, channel, taps] = sum over images, positions of still[outer, image, row, positions] *
    shifted[outer, image, channel, stride * positions + dilation * taps + offset]``, and maps of it. That is what the
    gradient of a convolution's weight is: of what it was given, and of the gradient of what it gave.

    Attributes:
        chain: as it was given; all of its sizes are known.
        shifted: the image that is read at several shifts.
        still: the other one.
        outer: axes of both.
        row: the axis of ``still`` alone.
        channel: the axis of ``shifted`` alone.
        image: the axis that is summed over at one position of both; None where there is none.
        slides: the dimensions along which one is shifted, the last ones of both.
    """

    shifted: Window
    still: Read
    outer: tuple[str, ...]
    row: str
    channel: str
    image: str | None
    slides: tuple[Shifted, ...]

    @cached_property
    def rows(self) -> int:
        """Positions of the row's axis."""
        return self.sizes[self.row]

    @cached_property
    def channels(self) -> int:
        """Positions of the channels' axis."""
        return self.sizes[self.channel]

    @cached_property
    def images(self) -> int:
        """Positions of the images' axis."""
        return self.sizes[self.image] if self.image else 1

    @cached_property
    def taps(self) -> int:
        """Shifts."""
        return self.count(slides.tap for slides in self.slides if slides.tap)

    @cached_property
    def run(self) -> tuple[str, ...]:
        """The axes of a row of results, which lie together."""
        return (self.channel, *(slides.tap for slides in self.slides if slides.tap))


def correlation_of(chain: Chain) -> Correlation:
    """The roles of a chain's axes.

    Raises:
        UnsupportedError: it is no such chain, or a size is known at run time only.
    """
    step = only_reduction(chain)
    check_sum(step)
    if chain.extents:
        raise UnsupportedError(f"the sizes of {', '.join(chain.extents)} are only known at run time")
    term = Scope(chain, {}).inlined(step.expr)
    if not isinstance(term, Apply) or term.op != "arith.mulf":
        raise UnsupportedError("its terms are no products")
    shifted = next((arg for arg in term.args if isinstance(arg, Window)), None)
    still = next((arg for arg in term.args if isinstance(arg, Read)), None)
    if shifted is None or still is None:
        raise UnsupportedError("not one factor is an input that is read through a window, and the other one an input")
    if any(chain.values[factor.name].dtype not in ("f32", "f64") for factor in (shifted, still)):
        raise UnsupportedError("halves are widened by others")
    if shifted.outside.value != 0.0:
        raise UnsupportedError("what is outside of the input counts")
    axes = chain.values[still.name].axes
    slides = _slides(chain, step.over, shifted, axes)
    slid = {slide.axis for slide in slides}
    taps = {slide.tap for slide in slides if slide.tap}
    own = {position.axis for position in shifted.at[: -len(slides)] if position != Affine(())}
    if None in own:
        raise UnsupportedError("its window slides along more than its last dimensions")
    images = [axis for axis in step.over if axis not in slid]
    if len(images) > 1 or any(axis not in own or axis not in axes for axis in images):
        raise UnsupportedError("it sums over more than images and positions")
    row = [axis for axis in step.axes if axis in axes and axis not in own]
    channel = [axis for axis in step.axes if axis in own and axis not in axes]
    outer = tuple(axis for axis in step.axes if axis in own and axis in axes)
    if len(row) != 1 or len(channel) != 1 or {*step.axes} != {*row, *channel, *outer, *taps} or not taps:
        raise UnsupportedError("each image has not one axis of its own")
    image = images[0] if images else None
    correlation = Correlation(chain, step, shifted, still, outer, row[0], channel[0], image, slides)
    _check_runs(correlation)
    return correlation


def _slides(chain: Chain, over: tuple[str, ...], window: Window, still: tuple[str, ...]) -> tuple[Shifted, ...]:
    """The last dimensions of what is shifted, as many as have positions that are summed over and are the last ones of
    the other image, in the same order."""
    slides: list[Shifted] = []
    inside = chain.values[window.name].axes
    for n in range(1, min(len(window.at), len(still)) + 1):
        slide = _slide(chain, over, window.at[-n], still[-n], inside[-n])
        if slide is None:
            break
        slides.insert(0, slide)
    if not slides or all(slide.tap is None for slide in slides):
        raise UnsupportedError("its window does not slide along the last dimensions of both images")
    return tuple(slides)


def _slide(chain: Chain, over: tuple[str, ...], at: Affine, axis: str, inside: str) -> Shifted | None:
    terms = dict(at.terms)
    if axis not in over or axis not in terms:
        return None
    stride = terms.pop(axis)
    if stride < 1 or len(terms) > 1 or any(by < 1 or tap in over for tap, by in terms.items()):
        return None
    sizes = chain.known_sizes
    tap, dilation = next(iter(terms.items()), (None, 1))
    return Shifted(axis, tap, stride, dilation, at.offset, sizes[inside], sizes[axis], sizes[tap] if tap else 1)


def _check_runs(correlation: Correlation) -> None:
    """Raises UnsupportedError: the results of a row do not lie together, or what is done to them tells them apart."""
    chain, run = correlation.chain, correlation.run
    factors = {correlation.shifted.name, correlation.still.name}
    values = [value for value in chain.inputs if value.name not in factors]
    for value in (*values, *(chain.values[name] for name in chain.outputs)):
        if {*run} & {*value.axes} and value.axes[-len(run) :] != run:
            raise UnsupportedError("the channels and shifts of its results do not lie together")
    maps = [step.expr for step in chain.steps if isinstance(step, Map)]
    if any(isinstance(node, Index) and node.axis in run for expr in maps for node in walk(expr)):
        raise UnsupportedError("what is done to its sums tells them apart")
