"""What the templates for windows share: convolutions, and pooling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.cpu.convolution_roles import Convolution
from covan_mlir.lowering.kernels.cpu.dense import DenseMatch, DenseSchedule
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.cpu.widened_filter import WidenedFilter
from covan_mlir.lowering.kernels.kernel import Preparation

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

    def prepared(self, schedule: S) -> tuple[Preparation, ...]:
        """See `DenseMatch`."""
        return () if self.widened is None else (self.widened.preparation,)
