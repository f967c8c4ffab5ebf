"""Chains that are written as tiles, whatever sweeps over which axes: from roles and a schedule to an executable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.forms import Fusion
from covan_mlir.lowering.kernels.cuda.compile import compile_kernel
from covan_mlir.lowering.kernels.cuda.executables import module_text
from covan_mlir.lowering.kernels.cuda.kernel import Binary, CudaKernel
from covan_mlir.lowering.kernels.cuda.layout import SweepRoles
from covan_mlir.lowering.kernels.cuda.lines import renamed, with_source_lines
from covan_mlir.lowering.kernels.cuda.schedule import TileSchedule
from covan_mlir.lowering.kernels.cuda.target import CudaTarget
from covan_mlir.lowering.kernels.cuda.writer import LaunchWriter
from covan_mlir.lowering.kernels.kernel import Dispatch, Executable
from covan_mlir.lowering.kernels.reductions.operands import operands
from covan_mlir.lowering.kernels.template import Match
from covan_mlir.lowering.source_lines import SourceLines

_NAME = "fred_kernel_"
"""Stands for the name of a kernel where it is only known later."""


@dataclass(frozen=True, eq=False)
class TileMatch(Match[TileSchedule]):
    """A chain as sweeps over tiles; equal to itself only.

    Attributes:
        chain: as it was given.
        fusion: its sweeps, with the repairs.
        roles: of its axes.
    """

    chain: Chain
    fusion: Fusion
    roles: SweepRoles
    target: CudaTarget

    def write(self, schedule: TileSchedule, name: str, actions: Mapping[str, str] | None = None) -> CudaKernel:
        """Source of the launches.

        Args:
            actions: what to call steps of the chain in the source, instead of their own names.

        Raises:
            UnsupportedError: there is no code for the chain; says why.
        """
        inputs, outputs = operands(self.chain)
        steps = (*self.chain.inputs, *self.chain.steps, *self.fusion.chain.steps)
        called = {step.name: step.name for step in steps} | dict(actions or {})
        launches = LaunchWriter(name, self.fusion, self.roles, schedule, self.chain.known_sizes, called).launches()
        return CudaKernel(name, launches, inputs, outputs, self.target.device)

    def emit(self, schedule: TileSchedule, name: str, lines: SourceLines) -> Executable:
        """See `Match`. What Triton compiled is remembered, whatever it is called."""
        kernel, compiled = _compiled(self, schedule)
        where = dict(lines)
        binaries = [renamed(with_source_lines(binary, where), _NAME, name) for binary in compiled]
        launches = [binary.launch for binary in binaries]
        dispatches = tuple(Dispatch(launch.name, launch.inputs, launch.outputs) for launch in launches)
        text = module_text(binaries, kernel.device)
        return Executable(name, text, kernel.inputs, kernel.outputs, dispatches)


@lru_cache(256)
def _compiled(match: TileMatch, schedule: TileSchedule) -> tuple[CudaKernel, tuple[Binary, ...]]:
    kernel = match.write(schedule, _NAME)
    return kernel, compile_kernel(kernel)
