"""What code generation returns."""

from __future__ import annotations

from dataclasses import dataclass

from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.cpu.schedule import Schedule


@dataclass(frozen=True)
class Operand:
    """A tensor that a kernel reads or writes.

    Attributes:
        shape: sizes of its dimensions.
        dtype: element type as chains call it (``f32``, ``i1``).
    """

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def tensor(self) -> str:
        """Its type on the side of the program."""
        return f"tensor<{'x'.join([*map(str, self.shape), self.dtype])}>"


@dataclass(frozen=True)
class Kernel:
    """One dispatch that computes a chain.

    Attributes:
        name: symbol of the ``hal.executable.source`` and, in it, of its only export.
        text: a module that holds nothing but that executable source.
        workgroups: workgroups along x, y, z.
        inputs: operands of the dispatch, in the order of the chain's inputs.
        outputs: results of the dispatch, in the order of the chain's outputs.
        seconds: predicted time.
        flops: floating-point operations of the contractions, those skipped by masks left out.
        bytes: bytes of inputs and outputs.
    """

    name: str
    text: str
    workgroups: tuple[int, int, int]
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    chain: Chain
    schedule: Schedule
    seconds: float
    flops: int
    bytes: int

    @property
    def dispatch(self) -> str:
        """Symbol of the export, as ``flow.dispatch`` names it."""
        return f"@{self.name}::@{self.name}"


@dataclass(frozen=True)
class Refusal:
    """Why there is no kernel for a chain."""

    reason: str
