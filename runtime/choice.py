"""Who runs a program: which of IREE's drivers, or the caller with a team of threads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from covan_mlir.machine.description import COMPILER_SHARE, Machine
from covan_mlir.machine.host import host
from covan_mlir.runtime import team

SLOWER = 0.1
"""Part of their time that kernels for a team take longer on IREE's threads, at least: ViT-B takes 102 ms there and 88
with a team, a product of 197 x 768 x 3072 3.5 ms and 2.2."""


def driver(device: str, requires: Mapping[str, Any], info: Mapping[str, Any], machine: Machine | None = None) -> str:
    """The driver for a program.

    IREE's threads cost tens of microseconds a call, and some at each dispatch that waits for others. Programs that they
    would save less run on the caller's, and so do those of which that holds without the kernels that the caller shares
    with threads of its own.

    Args:
        device: of `covan_mlir.CompileOptions`: what runs programs for CPUs.
        requires: of the program's target, see `covan_mlir.runtime.requirements`.
        info: ``flops`` and ``elements`` of a call, and what is ``shared`` of them, with the ``dispatches`` of that.
        machine: that runs it; this one as far as it is known, if not given: nothing is measured here.

    Raises:
        TargetError: ``COVAN_MACHINE`` describes no machine.
    """
    name = str(requires.get("driver", "local"))
    if name != "local":
        return name
    if device != "auto":
        return device
    machine = machine or host(measure=False)
    saved = 1.0 - 1.0 / machine.cores  # of what one core takes
    together = info.get("shared", {})
    whole, shared = _seconds(info, machine), _seconds(together, machine)
    waits = machine.wake + together.get("dispatches", 0) * (machine.barrier - machine.team)
    waits += SLOWER * shared / machine.cores
    if saved * shared > machine.team and saved * (whole - shared) < waits and team.address():
        return team.DRIVER
    return "local-sync" if saved * whole < machine.wake else "local-task"


def _seconds(work: Mapping[str, Any], machine: Machine) -> float:
    """On one core."""
    flops, elements = work.get("flops", 0), work.get("elements", 0)
    return float(flops / (COMPILER_SHARE * machine.flops_alone) + elements / machine.elements)
