"""What the CPU's templates for products and for convolutions share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeVar

from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.kernel import Executable, with_prepared
from covan_mlir.lowering.kernels.reductions.operands import operands
from covan_mlir.lowering.kernels.template import Cost, Match, Schedule
from covan_mlir.lowering.source_lines import SourceLines


@dataclass(frozen=True)
class DenseSchedule(Schedule):
    """A schedule of a chain of one reduction.

    Attributes:
        lanes: elements per register.
    """

    lanes: int


DIRECT = 8
"""Operations that are done on a tile in registers, written out for each of its vectors; more are done on scratch."""


class Writer(Protocol):
    """Writes the code of a workgroup."""

    def write(self) -> None:
        """The whole function."""

    def workgroups(self, sizes: Mapping[str, Size]) -> Size:
        """How many there are, of sizes that may be others than the writer's own."""


class Task(Protocol):
    """What a kernel computes."""

    @property
    def chain(self) -> Chain:
        """As it was given; its sizes may be known at run time only."""

    def cost(self, seconds: float) -> Cost:
        """What a kernel costs that takes this long."""


S = TypeVar("S", bound=DenseSchedule)


class DenseMatch(Match[S]):
    """A chain of products or a convolution that a template takes.

    Attributes:
        task: the chain.
    """

    task: Task
    target: CpuTarget

    @abstractmethod
    def legal(self) -> Iterator[S]:
        """The schedules that the target can hold, in any order, perhaps some of them twice."""

    @cached_property
    def ranked(self) -> list[S]:
        """Each legal schedule, the one that is predicted to be best first; there may be none."""
        return sorted(dict.fromkeys(self.legal()), key=self.predict)

    def schedules(self) -> Iterable[S]:
        """See `Match`."""
        return self.ranked

    @abstractmethod
    def writer(self, code: KernelBuilder, sizes: Mapping[str, Size], schedule: S) -> Writer:
        """Who writes the kernel."""

    @property
    def given(self) -> Chain:
        """The chain as it was given, where the task is another one."""
        return self.task.chain

    def cost(self, schedule: S) -> Cost:
        """See `Match`."""
        return self.task.cost(self.predict(schedule))

    def emit(self, schedule: S, name: str, lines: SourceLines) -> Executable:
        """See `Match`."""
        chain = self.task.chain
        inputs, outputs = operands(self.given)
        prepared = self.prepared(schedule)
        code = KernelBuilder(name, with_prepared(inputs, prepared), outputs, schedule.lanes, chain.extents)
        machine = self.target.machine
        code.masks, code.narrow_masks = machine.store_masks, machine.narrow_masks
        sizes = chain.nominal.known_sizes
        writer = self.writer(code, {**sizes, **code.extents}, schedule)
        text = code.write(writer.write, lambda given: writer.workgroups({**sizes, **given}))
        return Executable.single(name, text, inputs, outputs, sizes=chain.extents, preparations=prepared)
