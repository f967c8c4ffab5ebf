"""A CPU as a target of kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.cpu.schedule import lanes
from covan_mlir.lowering.kernels.cpu.words import integer_words
from covan_mlir.lowering.kernels.overrides import IllegalError, changes
from covan_mlir.lowering.kernels.reductions.profitability import Rates
from covan_mlir.lowering.kernels.target import KernelTarget
from covan_mlir.lowering.request import WINOGRAD
from covan_mlir.machine.description import PRESETS, Machine
from covan_mlir.machine.host import host


@dataclass(frozen=True)
class CpuTarget(KernelTarget):
    """A CPU.

    Attributes:
        winograd: the most that the rounding error of a convolution by Winograd's filtering may be, in that of the
            direct sum, as `covan_mlir.lowering.kernels.cpu.winograd_algebra` predicts it; 0: there are none.
        held: layouts of weights that kernels are to read, see `KernelTarget.holding`.
    """

    kind: ClassVar[str] = "cpu"

    machine: Machine
    winograd: int = WINOGRAD
    held: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """Of the machine."""
        return self.machine.name

    def allowing(self, winograd: int) -> CpuTarget:
        """See `KernelTarget`."""
        return replace(self, winograd=winograd)

    def holding(self, layouts: frozenset[str]) -> CpuTarget:
        """See `KernelTarget`."""
        return replace(self, held=layouts)

    @property
    def layouts(self) -> frozenset[str]:
        """See `KernelTarget`."""
        return self.held

    @property
    def integer_lanes(self) -> int | None:
        """Those of a vector, where an instruction multiplies a word of such integers for each."""
        return self.machine.lanes("f32") if integer_words(self.machine) else None

    def rates(self, chain: Chain) -> Rates:
        """The compiler's contractions are vectorised; its other reductions take one element after the other (a sum over
        the rows of 2048 x 1024 takes 353 us on two cores, ours 91; 12 x 48 is the same either way). Its products and
        convolutions reach 0.06 to 0.35 of the peak on the layers of ResNet-50, ViT-B and BERT-base. Of
        distances between rows it computes 26 G operations a second on one core, of minima of sums 6."""
        machine, width = self.machine, lanes(chain, self.machine)
        each = machine.flops / (2 * width) * machine.cores  # vector instructions per second
        return Rates(
            machine.bandwidth * machine.cores,
            each * width,
            each,
            machine.dispatch,
            dense=each * width / 2,
            combining=each * width / 5,
        )


def named(name: str, override: Mapping[str, str]) -> CpuTarget:
    """A machine by name, ``host`` (also if there is no name) or a preset, changed in the numbers that are overridden.

    Raises:
        IllegalError: there is none of this name, or it has no such number.
    """
    name = name or "host"
    if name != "host" and name not in PRESETS:
        raise IllegalError(f"there is no machine {name!r}: host, {', '.join(PRESETS)}")
    machine = host() if name == "host" else PRESETS[name]
    return CpuTarget(replace(machine, **changes(vars(machine), override, "a machine")))
