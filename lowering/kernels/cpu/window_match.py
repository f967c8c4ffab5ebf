"""What the templates for windows share: convolutions, and pooling."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.cpu.convolution_roles import Convolution
from covan_mlir.lowering.kernels.cpu.dense import DenseMatch, DenseSchedule
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.cpu.widened_filter import WidenedFilter
from covan_mlir.lowering.kernels.kernel import Preparation
from covan_mlir.lowering.kernels.structure import Structure

S = TypeVar("S", bound=DenseSchedule)


@dataclass(frozen=True)
class WindowMatch(DenseMatch[S]):
    """A convolution, or pooling, that a template takes.

    Attributes:
        widened: its filter, where that is widened ahead of time.
    """

    task: Convolution
    target: CpuTarget
    widened: WidenedFilter | None = None

    @property
    def given(self) -> Chain:
        """See `DenseMatch`."""
        return self.task.chain if self.widened is None else self.widened.given

    def widening(self, structure: Structure) -> Structure:
        """The structure of a kernel whose filter is widened ahead of time, where it is."""
        if self.widened is None:
            return structure
        name = self.widened.weight.name
        cached = tuple(one for one in structure.cached if one != self.widened.preparation.operand.name)
        return replace(structure, cached=cached, packed=(name,))

    def prepared(self, schedule: S) -> tuple[Preparation, ...]:
        """See `DenseMatch`."""
        return () if self.widened is None else (self.widened.preparation,)
