"""Whether a kernel pays: its prediction, against what the compiler would make of the same ops.

IREE makes one dispatch of each reduction, with the element-wise ops before it and, of the last one, those after it. Its
contractions are vectorised; its other reductions take one element after the other (a sum over the rows of 2048 x 1024
takes 353 us on two cores, ours 91; 12 x 48 is the same either way).
"""

from __future__ import annotations

from math import prod

from covan_mlir.fred.chain import Chain, Map, Reduce
from covan_mlir.fred.expression import reads
from covan_mlir.lowering.cpu.analysis import cost
from covan_mlir.lowering.cpu.kernel import Kernel
from covan_mlir.lowering.cpu.machine import Machine, bits
from covan_mlir.lowering.cpu.schedule import nominal

DISPATCH = 1e-6
"""Seconds that a dispatch takes besides its work."""

LEAST = 0.5e-6
"""Seconds that a kernel must save in a call to be worth the time that it takes to compile."""


def does_not_pay(chain: Chain, machine: Machine, kernel: Kernel) -> str | None:
    """Why a kernel is not worth it, or None: with nominal sizes, where they are known at run time only."""
    chain = nominal(chain)
    own = DISPATCH + kernel.seconds
    theirs = _compiled(chain, machine, kernel.schedule.lanes)
    if theirs - own >= LEAST:
        return None
    count = len(chain.reductions)
    dispatches = "a dispatch" if count == 1 else f"{count} dispatches"
    return (
        f"it does not pay: predicted to take {own * 1e6:.2f} us, and {dispatches} of the compiler's own "
        f"{theirs * 1e6:.2f} us"
    )


def _compiled(chain: Chain, machine: Machine, lanes: int) -> float:
    """Seconds that the compiler's dispatches take."""
    sizes = {axis.name: axis.size or 1 for axis in chain.axes}
    swept = {axis for step in chain.reductions for axis in step.over}
    rate = machine.flops / (2 * lanes) * machine.cores  # vector instructions per second
    total = 0.0
    for name in dict.fromkeys((*(step.name for step in chain.reductions), *chain.outputs)):
        step = chain.values[name]
        if isinstance(step, Map) and not swept & set(step.axes):
            continue  # done by the dispatch of what it reads
        if not isinstance(step, Map | Reduce):
            continue
        work, read = _alone(chain, step)
        axes = {*step.axes, *getattr(step, "over", ())}
        moved = sum(
            prod(sizes[a] for a in chain.values[n].axes) * bits(chain.values[n].dtype) // 8 for n in (name, *read)
        )
        instructions = float(prod(sizes[a] for a in axes) * work)
        contracts = sum(bool(swept & set(chain.values[n].axes)) and set(chain.values[n].axes) != axes for n in read) > 1
        if isinstance(step, Map) or contracts:
            instructions /= lanes
        total += max(moved / (machine.bandwidth * machine.cores), instructions / rate)
        total += DISPATCH if isinstance(step, Reduce) else 0.0
    return total


def _alone(chain: Chain, step: Map | Reduce) -> tuple[int, set[str]]:
    """-> (instructions per element, values that are read), with the element-wise steps before it computed along."""
    work, found, stack, seen = cost(step.expr) + 1, set[str](), list(reads(step.expr)), set[str]()
    while stack:
        name = stack.pop()
        value = chain.values[name]
        if name in seen:
            continue
        seen.add(name)
        if isinstance(value, Map):
            work += cost(value.expr)
            stack += reads(value.expr)
        else:
            found.add(name)
    return work, found
