"""The CPU's writers as functions from a schedule to a kernel.

They write with whatever builder they are given. Vulkan's templates come in here, too: with a builder whose vectors have
one element, what a workgroup does becomes what an invocation does (`covan_mlir.lowering.kernels.vulkan.invocation`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder
from covan_mlir.lowering.kernels.cpu.contraction import Contraction, check_stack
from covan_mlir.lowering.kernels.cpu.executable import joined
from covan_mlir.lowering.kernels.cpu.few_rows import FewRowsWriter
from covan_mlir.lowering.kernels.cpu.many_rows import ManyRowsWriter
from covan_mlir.lowering.kernels.cpu.merge import MergeWriter, part_operands, read_after
from covan_mlir.lowering.kernels.cpu.rows import RowsWriter
from covan_mlir.lowering.kernels.cpu.schedule import VectorSchedule
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.kernel import Dispatch, Executable, Operand
from covan_mlir.lowering.kernels.reductions.operands import operands
from covan_mlir.machine.description import Machine


@dataclass(frozen=True)
class Emitter:
    """What writers write for, and with.

    Attributes:
        builder: a schedule has to suit it.
    """

    machine: Machine
    builder: type[KernelBuilder] = KernelBuilder

    def _begin(
        self,
        name: str,
        inputs: tuple[Operand, ...],
        outputs: tuple[Operand, ...],
        schedule: VectorSchedule,
        sizes: tuple[str, ...],
    ) -> KernelBuilder:
        code = self.builder(name, inputs, outputs, schedule.lanes, sizes)
        code.masks = self.machine.store_masks
        return code

    def rows(self, chain: Chain, schedule: VectorSchedule, name: str) -> Executable:
        """Sweeps over rows, one after the other.

        Args:
            chain: all its reductions run over the same axes.

        Raises:
            UnsupportedError: there is no code for it.
        """
        sizes = chain.nominal.known_sizes
        inputs, outputs = operands(chain)
        code = self._begin(name, inputs, outputs, schedule, chain.extents)
        writer = RowsWriter(code, chain, {**sizes, **code.extents}, schedule)
        text = code.write(writer.write, lambda given: writer.workgroups({**sizes, **given}))
        return Executable.single(name, text, inputs, outputs, sizes=chain.extents)

    def few_rows(self, task: Contraction, schedule: VectorSchedule, name: str) -> Executable:
        """A loop with contractions, lanes along the keys; of one part, or of several whose states are merged.

        Raises:
            UnsupportedError: there is no code for it.
        """
        if schedule.split == 1:
            return self._contraction(task, schedule, name, FewRowsWriter)
        inputs, outputs = operands(task.chain)
        states = part_operands(task.roles, task.chain.sizes, schedule.split)
        parts = Dispatch(name, inputs, states)
        text = self._loop(task, schedule, parts, FewRowsWriter)
        merging, merge = self._merge(task, schedule, parts, outputs)
        return Executable(name, joined(text, merging), inputs, outputs, (parts, merge), task.chain.extents)

    def many_rows(self, task: Contraction, schedule: VectorSchedule, name: str) -> Executable:
        """A loop with contractions, lanes along the rows.

        Raises:
            UnsupportedError: there is no code for it.
        """
        return self._contraction(task, schedule, name, ManyRowsWriter)

    def _contraction(
        self, task: Contraction, schedule: VectorSchedule, name: str, writer: type[FewRowsWriter] | type[ManyRowsWriter]
    ) -> Executable:
        inputs, outputs = operands(task.chain)
        text = self._loop(task, schedule, Dispatch(name, inputs, outputs), writer)
        return Executable.single(name, text, inputs, outputs, sizes=task.chain.extents)

    def _loop(
        self,
        task: Contraction,
        schedule: VectorSchedule,
        dispatch: Dispatch,
        writer_class: type[FewRowsWriter] | type[ManyRowsWriter],
    ) -> str:
        check_stack(task, self.machine, schedule)
        sizes: Mapping[str, int] = task.chain.nominal.known_sizes
        code = self._begin(dispatch.name, dispatch.inputs, dispatch.outputs, schedule, task.chain.extents)
        writer = writer_class(code, task.fusion, {**sizes, **code.extents}, schedule, task.roles)
        return code.write(writer.write, lambda given: writer.workgroups({**sizes, **given}))

    def _merge(
        self, task: Contraction, schedule: VectorSchedule, parts: Dispatch, outputs: tuple[Operand, ...]
    ) -> tuple[str, Dispatch]:
        """The executable that merges what the parts leave -> (text, its dispatch)."""
        split = task.roles.stage.split
        if split is None:
            raise UnsupportedError("nobody knows how the states of two parts merge")
        wanted = read_after(task.fusion, task.roles)
        read = (*(operand for operand in parts.inputs if operand.name in wanted), *parts.outputs)
        merge = Dispatch(f"{parts.name}_merge", read, outputs)
        sizes = task.chain.nominal.known_sizes
        code = self._begin(merge.name, read, outputs, schedule, task.fusion.chain.extents)
        writer = MergeWriter(code, task.fusion, {**sizes, **code.extents}, schedule, task.roles, split)
        return code.write(writer.write, lambda given: writer.workgroups({**sizes, **given})), merge
