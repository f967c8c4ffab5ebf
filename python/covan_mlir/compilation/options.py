"""Options of a compilation."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from numbers import Real
from types import NoneType
from typing import Any, Literal, get_args, get_type_hints

import msgspec

from covan_mlir.artifacts.attachment import Attach, attachments
from covan_mlir.artifacts.schema import DEVICES
from covan_mlir.compilation.specialise import Specialise, checked
from covan_mlir.lowering.request import WINOGRAD
from covan_mlir.support import typed_json

Frontend = Literal["auto", "linalg", "torch"]
Trace = Literal["phases", "passes"]
_MIB = 1 << 20
_NOT_STORED = ("timeout", "reproducer", "attach", "cache", "records", "specialise")
_RUN = ("iree_flags", "extra_steps", "extensions", "rules")
_KINDS = {bool: "True or False", int: "a whole number", Real: "a number", NoneType: "None"}


@dataclass(frozen=True)
class CompileOptions:
    """How to compile; the defaults are right for nearly everybody.

    Attributes:
        iree_flags: passed to the IREE compiler as they are, e.g. ``("--iree-opt-data-tiling=false",)``; they overrule
            those of the target (docs/targets.md).
        frontend: how torch reaches IREE. ``linalg``: through torch-mlir's lowering; ``torch``: through IREE's own
            torch input; ``auto``: ``linalg``, and ``torch`` for the whole program when torch-mlir cannot lower it
            (logged at INFO level).
        external_weight_bytes: tensors of at least this size are neither copied into the compiler nor into the
            program: the executable reads them where torch holds them. They stay shared with the model.
        timeout: seconds after which the compiler is stopped and ``CompileError`` raised; None: never.
        reproducer: path to which the IR that entered the failing phase is written when compilation fails.
        device: who runs the program: ``local-task`` (IREE's threads), ``local-sync`` (the calling thread), ``openmp``
            (the calling thread, which shares fused kernels with the process's OpenMP threads: torch's), or ``auto``:
            whichever of them is predicted to take least.
        trace: how finely the lineage records what became of the model: after each phase of the compiler, or also
            after each pass (``passes``: slower, same machine code).
        fuse_reductions: chains of reductions (softmax, norms, attention) become one kernel each, where one can be
            written, is proved to compute the same, and is predicted to pay; ``"always"``: also where it is not. What
            is not fused, and why, is logged at INFO level.
        winograd: convolutions of 3 x 3 weights may be computed by Winograd's filtering where its rounding error is
            predicted to be at most so many times that of the direct sum; 0: never (docs/dense-kernels.md).
        random_numbers: a model may draw random numbers: the program then draws its own, which do not follow
            ``torch.manual_seed``. Without, such a model is refused.
        check_indices: indices out of range raise `OutOfRangeError`, as they are errors in eager. Without, a program
            reads or writes wherever they point (docs/security.md). The same goes for divisions of integers by zero
            and `DivisionError`; without, ``x // 0`` is ``x``, and ``x % 0`` is 0.
        extra_steps: the user's own steps of the compiler, ``("torch-to-linalg", "/path/to/steps.py:function")``: the
            function is called after the step of that name, in the compiler's process; see
            `covan_mlir.lowering.extra_steps`.
        extensions: Python files of the user's own that the compiler's process runs before it compiles: they define
            passes, or register templates that write kernels (docs/extending.md).
        attach: operators of the user's own on tensors of the model: ``{"features.3.conv": fn}``, by action name or id,
            module path or source line; a torch function or module of one tensor, an `MlirFunction`, or an `Attachment`
            that says more, or several of these (docs/attaching.md).
        cache: a program that was compiled before, on such a machine by the same compilers, is taken from disk
            (docs/cli.md). Programs with extra steps are not kept, nor are those with flags that have IREE print
            something, read or write files. Of ``extensions`` the files are compared, not what they import.
        records: a file of schedules that were measured to be the best on this machine (`covan_mlir.tune`); by default
            the user's own, if there is one; None: kernels are chosen by prediction alone (docs/tuning.md).
        superoptimise: seconds that the compiler searches for a program that is predicted to be faster, by rules that
            are proved for all sizes (docs/superoptimiser.md); False: it compiles the program as it is.
        rules: a file of rules of your own for that, beside the shipped ones. Those that cannot be proved are refused.
        assume: unless this is set: they are applied all the same, and the lineage says so.
        specialise: versions of the program for some sizes of dimensions that ``dynamic_shapes`` leaves open, by the
            names that these have in `torch.export.Dim`: ``{"batch": [1, 8, (16, 64)]}``; True: for those that are
            usual. A version that is not predicted to be faster than the general one is left out (docs/sizes.md).
    """

    iree_flags: tuple[str, ...] = ()
    frontend: Frontend = "auto"
    external_weight_bytes: int = 16 * _MIB
    timeout: float | None = None
    reproducer: str | None = None
    device: str = "auto"
    trace: Trace = "phases"
    fuse_reductions: bool | Literal["always"] = True
    winograd: int = WINOGRAD
    random_numbers: bool = False
    check_indices: bool = True
    extra_steps: tuple[tuple[str, str], ...] = ()
    extensions: tuple[str, ...] = ()
    attach: Attach = field(default_factory=dict, hash=False)
    cache: bool = True
    records: str | os.PathLike[str] | None = ""
    superoptimise: int | Literal[False] = False
    rules: str | None = None
    assume: bool = False
    specialise: Specialise = field(default=False, hash=False)

    def __post_init__(self) -> None:
        for name, kinds in _plain().items():
            value = getattr(self, name)
            if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
                raise TypeError(f"{name} is {' or '.join(_KINDS[kind] for kind in kinds)}, not {value!r}")
        flags: object = self.iree_flags  # callers without a type checker pass one string, or a list
        if isinstance(flags, str):
            raise TypeError("iree_flags is a tuple of flags, not one string: write iree_flags=('--flag',)")
        object.__setattr__(self, "iree_flags", tuple(self.iree_flags))
        steps: object = self.extra_steps  # as above
        if isinstance(steps, str) or any(isinstance(pair, str) or len(pair) != 2 for pair in self.extra_steps):
            raise TypeError("extra_steps is a tuple of pairs: extra_steps=(('torch-to-linalg', 'steps.py:function'),)")
        object.__setattr__(self, "extra_steps", tuple((after, _absolute(what)) for after, what in self.extra_steps))
        files: object = self.extensions  # as above
        if isinstance(files, str):
            raise TypeError("extensions is a tuple of files, not one string: write extensions=('template.py',)")
        object.__setattr__(self, "extensions", tuple(os.path.abspath(path) for path in self.extensions))
        if self.rules is not None:
            object.__setattr__(self, "rules", os.path.abspath(self.rules))
            if not self.superoptimise:
                raise ValueError("rules are applied by superoptimise: say how many seconds, superoptimise=60")
        if self.assume and self.rules is None:
            raise ValueError("assume is about rules of your own: say which, rules='FILE'")
        if self.superoptimise is True or self.superoptimise < 0:
            raise ValueError(f"superoptimise is a number of seconds or False, not {self.superoptimise!r}")
        if self.frontend not in ("auto", "linalg", "torch"):
            raise ValueError(f"frontend is 'auto', 'linalg' or 'torch', not {self.frontend!r}")
        if self.external_weight_bytes < 0:
            raise ValueError(f"external_weight_bytes is a size in bytes, not {self.external_weight_bytes}")
        if self.timeout is not None and self.timeout <= 0:
            raise ValueError(f"timeout is a positive number of seconds or None, not {self.timeout}")
        if self.device not in DEVICES:
            raise ValueError(f"device is {', '.join(map(repr, DEVICES[:-1]))} or {DEVICES[-1]!r}, not {self.device!r}")
        attachments(self.attach)
        object.__setattr__(self, "specialise", checked(self.specialise))
        if self.fuse_reductions not in (True, False, "always"):
            raise ValueError(f"fuse_reductions is True, False or 'always', not {self.fuse_reductions!r}")
        if self.winograd < 0:
            raise ValueError(f"winograd is a number of times that an error may be larger, or 0, not {self.winograd}")
        if self.trace not in ("phases", "passes"):
            raise ValueError(f"trace is 'phases' or 'passes', not {self.trace!r}")

    def to_json(self) -> dict[str, Any]:
        """What decides on the program; `from_json` gives options that compile the same model to the same program.

        Attached operators are no option that a file can hold: the executable lists them (`Executable.attachments`).
        """
        return {option.name: getattr(self, option.name) for option in fields(self) if option.name not in _NOT_STORED}

    @staticmethod
    def from_json(options: Mapping[str, Any]) -> CompileOptions:
        """Raises SchemaError, TypeError or ValueError for what `to_json` did not write."""
        return CompileOptions(**msgspec.structs.asdict(typed_json.convert(dict(options), _stored())))

    def running_code(self) -> str:
        """Those by which somebody else's word would run code, read or write files here, as text; empty: none does."""
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in _RUN if getattr(self, name))


@cache
def _plain() -> dict[str, tuple[type, ...]]:
    """The classes of the values that options of plain types may have; callers may have no type checker."""
    taken = {name: get_args(hint) or (hint,) for name, hint in get_type_hints(CompileOptions).items()}
    classes = {name: tuple(Real if kind is float else kind for kind in kinds) for name, kinds in taken.items()}
    return {name: kinds for name, kinds in classes.items() if all(kind in _KINDS for kind in kinds)}


@cache
def _stored() -> type[msgspec.Struct]:
    """What `CompileOptions.to_json` writes."""
    hints = get_type_hints(CompileOptions)
    options = [option for option in fields(CompileOptions) if option.name not in _NOT_STORED]
    stored = [(option.name, hints[option.name], option.default) for option in options]
    return msgspec.defstruct("StoredOptions", stored, forbid_unknown_fields=True)


def _absolute(what: str) -> str:
    """The compiler's process may have another folder as its current one."""
    path, colon, name = what.rpartition(":")
    return f"{os.path.abspath(path)}{colon}{name}" if path else what
