"""What the compiler's own code reaches on a CPU.

Its contractions are vectorised; its other reductions take one element after the other (a sum over the rows of
2048 x 1024 takes 353 us on two cores, ours 91; 12 x 48 is the same either way).
"""

from __future__ import annotations

from covan_mlir.lowering.kernels.reductions.profitability import Rates
from covan_mlir.machine.description import Machine


def rates(machine: Machine, lanes: int) -> Rates:
    """What `covan_mlir.lowering.kernels.reductions.profitability` weighs a kernel against.

    Args:
        lanes: elements per vector.
    """
    each = machine.flops / (2 * lanes) * machine.cores  # vector instructions per second
    return Rates(machine.bandwidth * machine.cores, each * lanes, each, machine.dispatch)
