"""A chain that is one window over a single channel, of an image whose channels lie side by side: what its axes are."""

from __future__ import annotations

from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.cpu.convolution_roles import Convolution, factors, position_on, sliding
from covan_mlir.lowering.kernels.dense.chain import only_reduction
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.reductions.hoist import Scope


def channels_last_of(chain: Chain) -> tuple[Convolution, str]:
    """The roles of a chain's axes, of which ``outer`` has the channels, too, and the axis of the channels.

    Raises:
        UnsupportedError: it is no such chain.
    """
    step = only_reduction(chain)
    window, scalars = factors(chain, step)
    lanes = {chain.values[name].axes[-1:] for name in chain.outputs}
    if len(lanes) != 1 or not (last := next(iter(lanes))):
        raise UnsupportedError("the results end in different axes")
    (channel,) = last
    if not window.at or window.at[-1].axis != channel or channel not in window.axes:
        raise UnsupportedError("the channels of its input do not lie side by side as those of its results do")
    if position_on(window, channel) is not window.at[-1]:
        raise UnsupportedError("its window slides along the channels")
    slides = []
    for at in window.at[-2:-4:-1]:
        along = [axis for axis in at.axes if axis in step.axes]
        one = sliding(chain, step, window, along[0]) if len(along) == 1 else None
        if one is None:
            break
        slides.append(one)
    if not slides:
        raise UnsupportedError("its window does not slide along the dimension before the channels")
    width, *above = slides
    height = above[0] if above else None
    taps = {one.tap for one in slides}
    slid = {one.axis for one in slides}
    outer = tuple(axis for axis in step.axes if axis not in slid)
    if {*step.over} - taps:
        raise UnsupportedError("a result takes more than one channel")
    if any(at.axis not in outer for at in window.at[: -1 - len(slides)]):
        raise UnsupportedError("its window slides along more than two dimensions")
    if scalars is not None and not Scope(chain, {}).axes(scalars) <= {*outer, *step.over}:
        raise UnsupportedError("its filter is another one at each position")
    neutral = 0.0 if scalars is not None else step.initial.value
    if window.outside.value != neutral:
        raise UnsupportedError("what is outside of the input counts")
    known = (channel, *slid, *step.over)
    if unknown := [axis for axis in known if chain.sizes[axis] is None]:
        raise UnsupportedError(f"the sizes of {', '.join(unknown)} are only known at run time")
    return Convolution(chain, step, scalars, window, outer, (), width, height, ()), channel
