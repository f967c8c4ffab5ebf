"""What the templates for windows share: convolutions, and pooling."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.cpu.convolution_roles import Convolution
from covan_mlir.lowering.kernels.cpu.dense import DenseMatch, DenseSchedule
from covan_mlir.lowering.kernels.cpu.prepared_filter import PreparedFilter
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.kernel import Preparation
from covan_mlir.lowering.kernels.structure import Structure

S = TypeVar("S", bound=DenseSchedule)


@dataclass(frozen=True)
class WindowMatch(DenseMatch[S]):
    """A convolution, or pooling, that a template takes.

    Attributes:
        prepared_filter: its filter, where that is held in another form.
    """

    task: Convolution
    target: CpuTarget
    prepared_filter: PreparedFilter | None = None

    @property
    def given(self) -> Chain:
        """See `DenseMatch`."""
        return self.task.chain if self.prepared_filter is None else self.prepared_filter.given

    def with_filter_held(self, structure: Structure) -> Structure:
        """The structure of a kernel whose filter is held in another form, where it is."""
        if self.prepared_filter is None:
            return structure
        name = self.prepared_filter.weight.name
        cached = tuple(one for one in structure.cached if one != self.prepared_filter.preparation.operand.name)
        return replace(structure, cached=cached, packed=(name,))

    def prepared(self, schedule: S) -> tuple[Preparation, ...]:
        """See `DenseMatch`."""
        return () if self.prepared_filter is None else (self.prepared_filter.preparation,)
