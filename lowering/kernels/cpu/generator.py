"""The kernels of a program for a CPU: which chains have one, and whether it pays."""

from __future__ import annotations

import logging
from functools import lru_cache

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.fuse import fuse
from covan_mlir.lowering.kernels.cpu.generate import generate
from covan_mlir.lowering.kernels.cpu.profitability import rates
from covan_mlir.lowering.kernels.kernel import Kernel, Refusal
from covan_mlir.lowering.kernels.reductions.profitability import does_not_pay
from covan_mlir.machine.description import Machine

log = logging.getLogger(__name__)


@lru_cache(256)
def kernel(machine: Machine, always: bool, chain: Chain, name: str) -> Kernel | Refusal:
    """The kernel of a chain under a name, or why there is none.

    Args:
        always: also where it is not predicted to pay.
    """
    try:
        same = chain.single_domain
        made = generate(chain, machine, fusion=None if same else fuse(chain), name=name)
    except Exception as error:  # a program can do without, and must not fail for it
        log.warning("code generation failed", exc_info=True)
        return Refusal(f"code generation failed: {error!r}")
    if isinstance(made, Refusal) or always:
        return made
    reason = does_not_pay(chain, rates(machine, made.schedule.lanes), made.seconds)
    return Refusal(reason) if reason else made
