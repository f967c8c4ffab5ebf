"""What the axes of a fused chain with contractions are to each other."""

from __future__ import annotations

from dataclasses import dataclass

from covan_mlir.fred.chain import Reduce
from covan_mlir.fred.forms import Fusion, Rolling, Stage
from covan_mlir.lowering.kernels.errors import UnsupportedError


@dataclass(frozen=True)
class LoopRoles:
    """Roles of axes.

    Attributes:
        reduction_axis: the axis of the loop: keys.
        rows: axes of the statistics.
        free: those of them that some streamed input does not have: positions that share it. None: each row is alone.
        feature_axis: axis that some accumulators have besides the rows': features of the values.
        inner: reductions under the loop, for each position of it: the scores.
    """

    stage: Stage
    rolling: Rolling
    reduction_axis: str
    rows: tuple[str, ...]
    free: tuple[str, ...]
    feature_axis: str | None
    inner: tuple[Reduce, ...]


def loop_roles(fusion: Fusion) -> LoopRoles:
    """Roles of a chain that is one loop.

    Raises:
        UnsupportedError: it is not, or its axes are not laid out so.
    """
    swept = [stage for stage in fusion.stages if stage.axes]
    if len(swept) != 1:
        raise UnsupportedError(f"the chain takes {len(swept)} sweeps: " + "; ".join(s.why for s in swept[1:]))
    stage = swept[0]
    rolling = stage.rolling
    if rolling is None or len(stage.axes) != 1 or stage.writes:
        raise UnsupportedError("something is returned for each position of the loop")
    (reduction_axis,) = stage.axes
    inner = tuple(step for step in rolling.elements if isinstance(step, Reduce))
    narrow = min((state.axes for state in rolling.state), key=len)
    extra = {axis for state in rolling.state for axis in state.axes} - set(narrow)
    if len(extra) > 1:
        raise UnsupportedError(f"accumulators have the axes {sorted(extra)} besides the rows'")
    for step in inner:
        if beyond := sorted(set(step.axes) - {reduction_axis, *narrow}):
            raise UnsupportedError(f"{step.name} has values along {', '.join(beyond)} for each position of the loop")
    # Keys and values, not masks: what has features besides the loop's and the rows' axes.
    alone = {reduction_axis, *narrow}
    streamed = [v for v in fusion.chain.inputs if reduction_axis in v.axes and not alone.issuperset(v.axes)]
    free = tuple(axis for axis in narrow if any(axis not in value.axes for value in streamed))
    return LoopRoles(stage, rolling, reduction_axis, narrow, free, extra.pop() if extra else None, inner)
