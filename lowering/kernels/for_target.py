"""What passes that ask for kernels have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch_mlir import ir

from covan_mlir.errors import TargetError
from covan_mlir.lowering.request import WINOGRAD
from covan_mlir.passes.framework.interface import PassFailure

if TYPE_CHECKING:
    from covan_mlir.lowering.kernels.choice import Chooser

FUSE = ("pays", "always")


@dataclass(frozen=True)
class ForTarget:
    """Options of a pass that asks which kernels there are.

    Attributes:
        target: what the kernels are for, as ``covan compile --target`` takes it.
        fuse: where a chain becomes a kernel: where it ``pays``, or ``always``.
        winograd: how many times as large as that of a direct sum the rounding error of a convolution by Winograd's
            filtering may be; 0: there are none.
        demote_f64: kernels compute in float32 what the program has in float64.
    """

    target: str = ""
    fuse: str = "pays"
    winograd: int = WINOGRAD
    demote_f64: bool = False

    def __post_init__(self) -> None:
        if self.fuse not in FUSE:
            raise ValueError(f"fuse is {self.fuse!r}: write {' or '.join(FUSE)}")

    def chooser(self, op: ir.Operation) -> Chooser | None:
        """Who chooses the kernels for the program that ``op`` is or stands in; None where the target takes none.

        Raises:
            PassFailure: there is no such target.
        """
        # Here, for these are the code generators of all targets, and covan-opt starts without.
        from covan_mlir.lowering.kernels.choice import chooser

        try:
            always = self.fuse == "always"
            return chooser(op, self.target, always=always, winograd=self.winograd, demote=self.demote_f64)
        except TargetError as error:
            raise PassFailure(str(error), op.location) from error
