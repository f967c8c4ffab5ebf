"""Targets by name, as flags of the IREE compiler. Data, no behaviour."""

from __future__ import annotations

import difflib

from covan_mlir.errors import TargetError

# f64 stays f64: IREE's default demotes it, and the results come back with the wrong size.
COMMON = ("--iree-input-demote-f64-to-f32=false",)

TARGETS: dict[str, tuple[str, ...]] = {
    "cpu": (
        "--iree-hal-target-device=local",
        "--iree-hal-local-target-device-backends=llvm-cpu",
        "--iree-llvmcpu-target-cpu=host",
        # Kernels of fused reductions keep their tiles in the stack frame, 112 KiB at most.
        "--iree-llvmcpu-stack-allocation-limit=524288",
    ),
}


def flags(target: str) -> tuple[str, ...]:
    """IREE flags of a target.

    Raises:
        TargetError: there is no such target.
    """
    if target not in TARGETS:
        near = difflib.get_close_matches(target, TARGETS, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise TargetError(f"unknown target {target!r}; {hint}known: {', '.join(TARGETS)}")
    return COMMON + TARGETS[target]
