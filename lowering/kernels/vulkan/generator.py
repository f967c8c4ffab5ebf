"""The kernels of a program for Vulkan: which chains have one, and whether it pays."""

from __future__ import annotations

import logging
from functools import lru_cache
from math import prod

from covan_mlir.fred.chain import Chain, Step
from covan_mlir.fred.expression import Apply, walk
from covan_mlir.lowering.kernels.kernel import Kernel, Refusal
from covan_mlir.lowering.kernels.reductions.profitability import Rates, does_not_pay
from covan_mlir.lowering.kernels.vulkan.device import Device, Speed
from covan_mlir.lowering.kernels.vulkan.generate import generate, iterations
from covan_mlir.machine.elements import bits

log = logging.getLogger(__name__)

_WITHOUT = {
    "math.erfc": "SPIR-V has no such function",
    "math.log1p": "SPIR-V has no such function, and log(1 + x) is wrong for small x",
}


@lru_cache(256)
def kernel(device: Device, always: bool, chain: Chain, name: str) -> Kernel | Refusal:
    """The kernel of a chain under a name, or why there is none.

    Args:
        always: also where it is not predicted to pay.
    """
    if (reason := _not_to_be_had(chain, device)) is not None:
        return Refusal(reason)
    try:
        made = generate(chain, device.invocation, name=name)
    except Exception as error:  # a program can do without, and must not fail for it
        log.warning("code generation failed", exc_info=True)
        return Refusal(f"code generation failed: {error!r}")
    if isinstance(made, Refusal):
        return made
    if (limit := device.speed.iterations) and ((count := iterations(chain)) is None or count > limit):
        said = "as many iterations as sizes known at run time only say" if count is None else f"{count} iterations"
        return Refusal(f"an invocation takes {said}, and {device.name} leaves loops after {limit}")
    if always:
        return made
    reason = does_not_pay(chain, rates(device.speed), seconds(made, device.speed), len(made.dispatches))
    return Refusal(reason) if reason else made


def _not_to_be_had(chain: Chain, device: Device) -> str | None:
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


def rates(speed: Speed) -> Rates:
    """What IREE's own code reaches: it distributes reductions over the invocations of a workgroup."""
    return Rates(speed.bandwidth, speed.flops / 2, speed.flops / 2, speed.dispatch, speed.units)


def seconds(made: Kernel, speed: Speed) -> float:
    """Predicted time of a kernel.

    Invocations side by side are rows side by side: where these are not next to each other in memory, each takes a line
    for an element.
    """
    chain = made.chain.nominal
    sizes = chain.known_sizes
    rows = {axis for value in chain.values.values() for axis in value.axes}
    rows -= {axis for step in chain.reductions for axis in step.over}
    moved = 0.0
    for name in (*(value.name for value in chain.inputs), *chain.outputs):
        value = chain.values[name]
        element = bits(value.dtype) // 8
        strided = value.axes and value.axes[-1] not in rows and rows & set(value.axes)
        waste = max(1.0, speed.line / element) if strided and made.schedule.shape == "rows" else 1.0
        sweeps = len(chain.reductions) + 1 if made.schedule.shape in ("rows", "columns") else 1
        moved += prod(sizes[axis] for axis in value.axes) * element * (1 if name in chain.outputs else sweeps) * waste
    return max(moved / speed.bandwidth, made.seconds, made.flops / (speed.flops * speed.own))
