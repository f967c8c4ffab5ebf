"""A chain as launches, each of generated source, and what Triton compiles them to."""

from __future__ import annotations

from dataclasses import dataclass, field

from covan_mlir.lowering.kernels.cuda.device import CudaDevice
from covan_mlir.lowering.kernels.kernel import Operand


@dataclass(frozen=True)
class Launch:
    """One launch of a generated kernel.

    Attributes:
        name: of the function in ``source`` and of the entry point.
        source: a Python module that defines it; needs nothing but Triton.
        inputs: operands that it reads, in the order of its parameters.
        outputs: operands that it writes, the parameters after those.
        grid: number of programs.
        contracted: multiplications and additions may become one operation.
        lines: line of ``source`` (from 1) -> names of the chain's steps that it performs.
    """

    name: str
    source: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    grid: int
    num_warps: int
    num_stages: int
    contracted: bool
    lines: dict[int, tuple[str, ...]] = field(compare=False)

    @property
    def multiplies_f32(self) -> bool:
        """Whether it multiplies matrices of f32.

        Their operands are rounded, or taken apart, in registers. The asynchronous instructions of Hopper read the
        second one from shared memory, and it would go there and back.
        """
        return "input_precision=" in self.source


@dataclass(frozen=True)
class CudaKernel:
    """A chain as launches in order; what one writes and a later one reads is named by both.

    Attributes:
        name: of the kernel; those of its launches begin with it.
        inputs: operands, in the order of the chain's inputs.
        outputs: results, in the order of the chain's outputs.
    """

    name: str
    launches: tuple[Launch, ...]
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    device: CudaDevice


@dataclass(frozen=True)
class Binary:
    """A compiled launch.

    Attributes:
        ptx: text; its parameters are pointers to the operands, inputs first, and nothing else.
        threads: of a program.
        shared: bytes of dynamic shared memory of a program.
    """

    launch: Launch
    ptx: str
    threads: int
    shared: int
