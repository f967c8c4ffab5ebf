"""What the worker found out: a program and what was seen of its compilation, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from covan_mlir.provenance.fusion import FusionRecord, LeftOverRecord
from covan_mlir.provenance.observed import Observed
from covan_mlir.provenance.substitution import SubstitutedGraph

Severity = Literal["note", "warning", "error", "remark"]


@dataclass(frozen=True)
class CompilerDiagnostic:
    """A message of torch-mlir's or IREE's compiler.

    Attributes:
        ids: parts and actions that its location names.
        file, line: where the user wrote what it is about, where that is known.
    """

    severity: Severity
    message: str
    ids: tuple[int, ...] = ()
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True)
class StepFailure:
    """A step that failed.

    Attributes:
        phase: the step.
        message: what happened.
        reproducer: where the step's input was kept, or None.
        log: end of what the worker printed: after a crash, or a bug of ours.
        own_pass: the pass of covan's that failed, where it was one; empty for passes of torch-mlir's and IREE's.
    """

    phase: str
    message: str
    diagnostics: tuple[CompilerDiagnostic, ...] = ()
    reproducer: str | None = None
    log: str = ""
    own_pass: str = ""


@dataclass(frozen=True)
class SharedConstant:
    """A constant that several programs may read from one place.

    Attributes:
        name: of the parameter: constants of one name are equal.
        dtype: as torch spells it.
        start, size: of its bytes, behind the program's, which end where the first of them begins.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    size: int


@dataclass(frozen=True)
class JobResult:
    """What is known of a compilation that gave a program.

    Attributes:
        frontend: the way that the program took to linalg.
        seconds: wall time of each step.
        observed: what a lineage is made of; None without provenance.
        unseen: per step, how many parts changed in passes that could not be seen.
        requires: what the machine must have; see `covan_mlir.lowering.targets.resolve`.
        shared: dispatches whose work the caller shares with a team of threads.
        fusions: what was decided about chains of reductions, in the order in which they were looked at.
        why_torch: why the program did not go through torch-mlir's lowering, if that was tried first.
        why_unfused: why no chain became a kernel of our own, if a pass of ours failed.
        why_unsubstituted: why no rule was applied, if the pass that does failed.
        substituted: what rules made of the program; None: nobody asked for that.
        constants: that the program reads as parameters, with `Job.share`: their bytes follow those of the program.
        broken: after which step kernels were not one to one with operators, and how; empty: they always were.
        left_over: the operators that no kernel was written for.
    """

    frontend: Literal["linalg", "torch"]
    seconds: dict[str, float]
    observed: Observed | None = field(default=None, repr=False)
    unseen: dict[str, int] = field(default_factory=dict)
    requires: dict[str, Any] = field(default_factory=dict)
    shared: int = 0
    fusions: tuple[FusionRecord, ...] = field(default=(), repr=False)
    why_torch: StepFailure | None = None
    why_unfused: StepFailure | None = None
    why_unsubstituted: StepFailure | None = None
    substituted: SubstitutedGraph | None = field(default=None, repr=False)
    broken: str = ""
    left_over: tuple[LeftOverRecord, ...] = field(default=(), repr=False)
    constants: tuple[SharedConstant, ...] = field(default=(), repr=False)
