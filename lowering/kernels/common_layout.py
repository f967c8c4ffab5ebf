"""In which layout a weight is held that kernels for several sizes read: the one with which they lose least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import inf

from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.layouts import layouts
from covan_mlir.lowering.kernels.select import choices
from covan_mlir.lowering.kernels.target import KernelTarget

_Times = dict[frozenset[str], float]


@lru_cache(256)
def common_layout(chain: Chain, target: KernelTarget, sizes: tuple[int, ...]) -> frozenset[str]:
    """The layouts of a chain's weights with which the worst of its kernels is nearest to what it would be with any;
    empty: there is no choice.

    Args:
        chain: some of whose sizes are known at run time only.
        sizes: what other versions take these for.
    """
    nominal = _times(chain, target)
    others = [times for size in sizes if (times := _times(_sized(chain, size), target))]
    if len(nominal) < 2 or not others:
        return frozenset()
    return min(nominal, key=lambda held: (_worst(held, [nominal, *others]), nominal[held]))


def _worst(held: frozenset[str], each: Sequence[_Times]) -> float:
    return max(times.get(held, inf) / min(times.values()) for times in each)


def _sized(chain: Chain, size: int) -> Chain:
    return replace(chain, axes=tuple(replace(axis, size=axis.size or size) for axis in chain.axes))


def _times(chain: Chain, target: KernelTarget) -> _Times:
    """Seconds that the fastest kernel is predicted to take, by the layouts that it reads."""
    listed = choices(chain, target)
    times: _Times = {}
    if isinstance(listed, Refusal):
        return times
    for candidate, schedule in listed.schedules():
        read = frozenset(layouts(chain, candidate.match, schedule))
        seconds = candidate.match.predict(schedule)
        if seconds < times.get(read, inf):
            times[read] = seconds
    return times
