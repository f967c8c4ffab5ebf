"""What the caller asks of the worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from covan_mlir.lowering.kernels.recorded import Recorded
from covan_mlir.machine.description import Machine

TO_LINALG = ("torch-backend", "torch-to-linalg")
"""The steps in which torch-mlir may find that it cannot lower a program."""
SUPEROPTIMISE = "torch-superoptimise"
"""The pass that applies rules."""
FUSING = ("fred-raise", "fred-kernels")
"""The steps in which chains of reductions become kernels of our own, with the checks of their traces."""


WINOGRAD = 4
"""How many times as large as that of a direct sum the error of a convolution by Winograd's filtering may be."""


@dataclass(frozen=True)
class Job:
    """What to compile and how.

    Attributes:
        frontend: ``linalg``, ``torch`` or ``auto`` (linalg, then torch if torch-mlir cannot lower the program).
        flags: of the IREE compiler, target's and user's.
        weights: names of the trailing arguments that are read from outside the program.
        changed: places of the parameters that the program gives new values.
        provenance: whether the module carries a ledger and sites are to be found.
        reproducer: where to keep the IR that entered the failing step, or None.
        trace: after what the history has an entry: ``phases`` or ``passes``.
        fuse: whether chains of reductions become kernels of their own: where it pays, or ``always``.
        winograd: the most that the rounding error of a convolution by Winograd's filtering may be, in that of the
            direct sum; 0: there are none.
        target: name of the target, for messages.
        kind: of the target: whose kernels are written for chains.
        devices: the element of ``hal.device.targets``; empty: the flags say it all.
        extensions: files of the user's own; see `covan_mlir.passes.framework.extensions`.
        extra: steps of the user's own; see `covan_mlir.lowering.extra_steps`.
        functions: that operators of covan's own stand for; see `covan_mlir.lowering.inlined`.
        attached: whether the program has such operators, or barriers.
        machine: that kernels are chosen for, where the target is this machine and it is known; see
            `covan_mlir.machine.host`.
        records: schedules that were measured to be the best on it.
        machine_code: folder where machine code of kernels is kept; empty: nowhere.
        superoptimise: seconds that programs are searched for that are predicted to be faster; 0: none is.
        rules: text of a file of the user's own rules for that, beside the shipped ones; proved, or assumed.
        assume: whether some of them are assumed.
        share: whether constants are given back beside the program, which reads them as parameters.
        layouts: of weights that other versions of the program hold (`covan_mlir.lowering.kernels.layouts`); empty:
            there are none.
        others: what other versions take sizes for that are known at run time only: their kernels are to read weights as
            this program holds them.
        usual: what kernels take sizes for that are known at run time only; 0: `covan_mlir.fred.chain.NOMINAL`.
    """

    frontend: Literal["auto", "linalg", "torch"]
    flags: tuple[str, ...]
    weights: tuple[str, ...] = ()
    changed: tuple[int, ...] = ()
    provenance: bool = True
    reproducer: str | None = None
    trace: Literal["phases", "passes"] = "phases"
    fuse: bool | Literal["always"] = False
    winograd: int = WINOGRAD
    target: str = "cpu"
    kind: str = "cpu"
    devices: str = ""
    extra: tuple[tuple[str, str], ...] = ()
    extensions: tuple[str, ...] = ()
    functions: tuple[tuple[str, str, str], ...] = ()
    attached: bool = False
    machine: Machine | None = None
    records: tuple[Recorded, ...] = ()
    machine_code: str = ""
    superoptimise: int = 0
    rules: str = ""
    assume: bool = False
    share: bool = False
    layouts: tuple[str, ...] = ()
    usual: int = 0
    others: tuple[int, ...] = ()
