"""CPUs: this machine's, or any that LLVM knows, by name and triple."""

from __future__ import annotations

from covan_mlir.errors import TargetError
from covan_mlir.lowering.targets.target import Target

# First part of a triple -> architecture as Python's `platform.machine` spells it.
ARCHITECTURES = {
    "x86_64": "x86_64",
    "amd64": "x86_64",
    "aarch64": "aarch64",
    "arm64": "aarch64",
}

OPTIMIZED = (
    # All that is taken of --iree-opt-level=O3. Its other options drop assertions, with which sizes known at run time
    # are checked; fuse, and make products with a vector generic ops, so that IREE cannot generate some kernels; and
    # turn concatenations and operands of products around by transpositions that take longer than they save.
    "--iree-llvmcpu-reassociate-fp-reductions",
    # Convolutions as products; products over packed operands (`covan_mlir.lowering.data_tiling`), by microkernels.
    "--iree-global-opt-use-im2col-for-convs",
    "--iree-opt-data-tiling",
    "--iree-llvmcpu-enable-ukernels=all",
)
"""What is fastest of IREE's own options. Of two flags for one option the last counts: users' own come after these."""

FLAGS = (
    "--iree-hal-target-device=local",
    "--iree-hal-local-target-device-backends=llvm-cpu",
    # Kernels of fused reductions keep their tiles in the stack frame, 112 KiB at most.
    "--iree-llvmcpu-stack-allocation-limit=524288",
    *OPTIMIZED,
)

HOST = "--iree-llvmcpu-target-cpu=host"
"""This machine's, with all of its instructions."""


def cpu(rest: str) -> Target:
    """``""`` (this machine), ``NAME`` (a CPU of this machine's kind), ``TRIPLE`` or ``TRIPLE:NAME``.

    Whether LLVM knows the name is found out by the compiler.

    Raises:
        TargetError: the triple's architecture is not one of ours.
    """
    if not rest:
        return Target("cpu", "cpu", (*FLAGS, HOST), requires={"driver": "local"})
    first, _, name = rest.partition(":")
    architecture = first.partition("-")[0]
    flags: tuple[str, ...] = FLAGS
    if architecture in ARCHITECTURES:
        flags += (f"--iree-llvmcpu-target-triple={first}",)
    elif name or first.count("-") > 1:
        raise TargetError(
            f"unknown architecture {architecture!r} in target 'cpu:{rest}'; known: {', '.join(ARCHITECTURES)}. "
            "Write cpu:NAME, cpu:TRIPLE or cpu:TRIPLE:NAME, e.g. cpu:znver4 or cpu:aarch64-linux-gnu:neoverse-n1"
        )
    else:
        name = first
    if name:
        flags += (f"--iree-llvmcpu-target-cpu={name}",)
    return Target(f"cpu:{rest}", "cpu", flags, requires={"driver": "local"})
