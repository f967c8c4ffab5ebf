"""Who runs a program: which of IREE's drivers, or the caller with a team of threads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from covan_mlir.runtime import team

# Of one core of a recent x86 processor, by order of magnitude; measured crossover on two cores.
_FLOPS_PER_SECOND = 150e9
_ELEMENTS_PER_SECOND = 5e9
_WORTH_THREADS = 100e-6
_WORTH_TEAM = 5e-6  # a team that is awake starts and ends in about a microsecond


def driver(device: str, requires: Mapping[str, Any], info: Mapping[str, Any]) -> str:
    """The driver for a program.

    IREE's threads cost tens of microseconds a call: programs that take about as long on one core run on the caller's,
    and so do those that take as long without the kernels that the caller shares with threads of its own.

    Args:
        device: of `covan_mlir.CompileOptions`: what runs programs for CPUs.
        requires: of the program's target, see `covan_mlir.runtime.requirements`.
        info: ``flops`` and ``elements`` of a call, and what is ``shared`` of them.
    """
    name = str(requires.get("driver", "local"))
    if name != "local":
        return name
    if device != "auto":
        return device
    whole, shared = _seconds(info), _seconds(info.get("shared", {}))
    if shared > _WORTH_TEAM and whole - shared < _WORTH_THREADS and team.address():
        return team.DRIVER
    return "local-sync" if whole < _WORTH_THREADS else "local-task"


def _seconds(work: Mapping[str, Any]) -> float:
    return float(work.get("flops", 0) / _FLOPS_PER_SECOND + work.get("elements", 0) / _ELEMENTS_PER_SECOND)
