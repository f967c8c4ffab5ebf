"""What a target is to the rest of covan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["cpu", "vulkan", "cuda"]

_NO_IM2COL = "--iree-global-opt-use-im2col-for-convs=false"
"""What a batch of halves becomes adds numbers of two types, which does not verify."""

_NO_ZIP = "--iree-vm-emit-polyglot-zip=false"
"""Programs need not be archives as well: the checksums of their weights would take two seconds per gigabyte."""


@dataclass(frozen=True)
class Target:
    """What to compile for.

    Attributes:
        name: as the user writes it, with what was left to covan filled in: ``vulkan:lavapipe``.
        kind: which driver runs the program, and which of our own code generators applies.
        flags: of IREE's compiler; `compiler_flags` gives all.
        devices: the element of the module's ``hal.device.targets``; empty: the flags say it all.
        requires: what a device must offer, in JSON; `covan_mlir.runtime.requirements` checks it before a program is
            loaded. For CPUs the compiler adds the instructions that it was allowed to use.
    """

    name: str
    kind: Kind
    flags: tuple[str, ...]
    devices: str = ""
    requires: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_host(self) -> bool:
        """Whether it is this machine's CPU."""
        return self.name == "cpu"

    @property
    def has_double(self) -> bool:
        """Whether the device computes in float64."""
        return self.kind != "vulkan" or "fp64" in self.requires["types"]

    def compiler_flags(self, double: bool, halves: bool = False) -> tuple[str, ...]:
        """Flags of IREE's compiler for a model.

        Args:
            double: the model computes in float64 somewhere. Where it does not, torch-mlir still takes variances in
                float64. CPUs do that well, and it stays. GPUs are slow at it or cannot, and IREE's code for them fails
                on it: there it becomes float32, in which torch's own kernels compute as well.
            halves: the model convolves batches in half precision, of which IREE cannot make products.
        """
        # Demoting would give results of the wrong size for arguments and results in float64.
        demoted = self.kind != "cpu" and not double
        flags = (f"--iree-input-demote-f64-to-f32={str(demoted).lower()}", _NO_ZIP, *self.flags)
        return (*flags, _NO_IM2COL) if halves and self.kind == "cpu" else flags
