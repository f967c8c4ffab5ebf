"""What devices of Vulkan cannot compute, or not to the end, and what they take for the rest."""

from __future__ import annotations

from math import prod

from covan_mlir.fred.chain import Chain, Step
from covan_mlir.fred.expression import Apply, walk
from covan_mlir.lowering.kernels.cpu.contraction import Contraction
from covan_mlir.lowering.kernels.cpu.schedule import VectorSchedule
from covan_mlir.lowering.kernels.reductions.plan import plan
from covan_mlir.lowering.kernels.vulkan.device import Speed, VulkanDevice
from covan_mlir.machine.elements import bits

BLOCK = 1
"""Positions of the loop at a time, whose scores an invocation keeps."""
TOGETHER = 1
"""Of them, and of features, so many are under way at the same time."""

_WITHOUT = {
    "math.erfc": "SPIR-V has no such function",
    "math.log1p": "SPIR-V has no such function, and log(1 + x) is wrong for small x",
}


def unsupported(chain: Chain, device: VulkanDevice) -> str | None:
    """Why a device cannot compute a chain, whatever the code, or None."""
    for value in chain.values.values():
        if value.dtype == "f64":
            return f"{value.name} is in f64, which SPIR-V has no functions for"
        needed = {"f16": "fp16", "i64": None, "i16": "int16", "i8": "int8", "i1": "int8"}.get(value.dtype)
        if needed is not None and needed not in device.types:
            return f"{value.name} is in {value.dtype}, which the device does not store"
        if isinstance(value, Step):
            for node in walk(value.expr):
                if isinstance(node, Apply) and node.op in _WITHOUT:
                    return f"no code for {node.op}: {_WITHOUT[node.op]}"
    return None


def endless(count: int | None, device: VulkanDevice) -> str | None:
    """Why a device would not run an invocation to its end, or None.

    Args:
        count: most iterations of all its loops; None where sizes known at run time only decide.
    """
    limit = device.speed.iterations
    if not limit or (count is not None and count <= limit):
        return None
    said = "as many iterations as sizes known at run time only say" if count is None else f"{count} iterations"
    return f"an invocation takes {said}, and {device.name} leaves loops after {limit}"


def iterations_of_rows(chain: Chain) -> int | None:
    """Most iterations of all loops that an invocation runs for a row; None where sizes known at run time only
    decide."""
    length = 1
    for axis in chain.reductions[0].over:
        size = chain.sizes[axis]
        if size is None:
            return None
        length *= size + 1  # the loop around the next one counts, too
    return (len(chain.reductions) + 2) * length


def iterations_of_contractions(task: Contraction) -> int | None:
    """Most iterations of all loops that an invocation runs; None where sizes known at run time only decide."""
    roles, sizes = task.roles, task.fusion.chain.sizes
    laid = plan(task.fusion, roles, roles.rows)
    length = sizes[roles.reduction_axis]
    depths = [sizes[axis] for step in roles.inner for axis in step.over]
    wide = sizes[roles.feature_axis] if roles.feature_axis else 0
    if length is None or wide is None or None in depths:
        return None
    depth = sum(size or 0 for size in depths)
    if not roles.free:
        return length * (depth + len(laid.passes) * (wide + 2 * BLOCK) + 4 * BLOCK) + 4 * (wide + depth)
    groups = -(-wide // TOGETHER) * (BLOCK + 1)
    # One position after the other where a mask or the length leaves less than a block.
    block = BLOCK * depth + len(laid.passes) * (groups + 2 * BLOCK) + 4 * BLOCK
    whole = depth + len(laid.passes) * (groups + 2 * BLOCK) + 4 * BLOCK
    return -(-length // BLOCK) * whole + 2 * block + 4 * (wide + depth)


def seconds(chain: Chain, schedule: VectorSchedule, computing: float, flops: int, speed: Speed) -> float:
    """Predicted time of a kernel.

    Invocations side by side are rows side by side: where these are not next to each other in memory, each takes a line
    for an element.

    Args:
        computing: seconds that the invocations take together, if memory is read in order.
        flops: of the contractions.
    """
    chain = chain.nominal
    sizes = chain.known_sizes
    rows = {axis for value in chain.values.values() for axis in value.axes}
    rows -= chain.swept
    moved = 0.0
    for name in (*(value.name for value in chain.inputs), *chain.outputs):
        value = chain.values[name]
        element = bits(value.dtype) // 8
        strided = value.axes and value.axes[-1] not in rows and rows & set(value.axes)
        waste = max(1.0, speed.line / element) if strided and schedule.shape == "rows" else 1.0
        sweeps = len(chain.reductions) + 1 if schedule.shape in ("rows", "columns") else 1
        moved += prod(sizes[axis] for axis in value.axes) * element * (1 if name in chain.outputs else sweeps) * waste
    return max(moved / speed.bandwidth, computing, flops / (speed.flops * speed.own))
