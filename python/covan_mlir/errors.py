"""What covan raises. Every error says what is wrong, where in the user's code, and what to do."""

from __future__ import annotations

from dataclasses import dataclass

MESSAGE = 2000
"""Characters of a message, at most: what it quotes may come from a file or a compiler. The middle is left out."""


class CovanError(Exception):
    """Base of all errors that covan raises on purpose."""

    def __init__(self, message: object = "") -> None:
        text = str(message)
        if len(text) > MESSAGE:
            text = f"{text[: MESSAGE * 2 // 3]} [...] {text[-MESSAGE // 4 :]}"
        super().__init__(text)


class ExportError(CovanError):
    """The model could not be exported or imported. torch's own exception is the ``__cause__``."""


class InputError(CovanError, TypeError):
    """The arguments of a call do not fit the compiled signature (arity, structure, dtype, shape, device)."""


class OutOfRangeError(CovanError, IndexError):
    """An index of a call is outside of the tensor that it counts places of."""


class DivisionError(CovanError, ZeroDivisionError):
    """An integer of a call is divided by zero."""


class TagError(CovanError, ValueError):
    """A tag or a group's name is malformed, or a tag is for something that the model does not have."""


class TargetError(CovanError, ValueError):
    """The requested target or device is unknown or not to be had on this machine."""


class DeviceError(TargetError):
    """A device is not here, does not fit the program, ran out of memory, or failed while it ran the program."""


class RecordsError(CovanError):
    """A file of measured schedules is not there, cannot be read or written, or holds something else."""


class IsolationError(CovanError):
    """The process of an isolated program died, or took more time or memory than it was allowed. The caller is not
    harmed, and the next call starts another process."""


class ProfileError(CovanError):
    """There are no times, or they do not belong to the program: the device gives none, what ran is not what the
    lineage lists, a saved profile is of another program."""


class ArtifactError(CovanError):
    """A ``.covan`` file is truncated, tampered with, foreign, too new, or cannot be written."""


@dataclass(frozen=True)
class Diagnostic:
    """One message of a compiler underneath.

    Attributes:
        severity: ``error``, ``warning``, ``remark`` or ``note``.
        message: the compiler's words.
        action: id of the source action whose location the message carries, or None.
        file: user's source file of the innermost location, or None.
        line: 1-based line in ``file``, or None.
    """

    severity: str
    message: str
    action: int | None = None
    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}: " if self.file else ""
        return f"{where}{self.severity}: {self.message}"


class CompileError(CovanError):
    """Compilation failed in the worker: a diagnostic, a crash, a time-out, or it ran out of memory.

    Attributes:
        phase: the step of the pipeline that failed, e.g. ``torch-to-linalg`` or ``iree:executable-targets``.
        diagnostics: what the compilers said, in order.
        action: name of the source action a diagnostic points at (``softmax_1``), or None.
        file, line: the user's source line a diagnostic points at, or None.
        reproducer: path of the ``.mlir`` file that reproduces the failure, when one was asked for.
        log: the end of the worker's stderr (a stack dump after a crash).
    """

    def __init__(
        self,
        message: str,
        *,
        phase: str = "",
        diagnostics: tuple[Diagnostic, ...] = (),
        action: str | None = None,
        file: str | None = None,
        line: int | None = None,
        reproducer: str | None = None,
        log: str = "",
    ) -> None:
        super().__init__(message)
        self.phase = phase
        self.diagnostics = diagnostics
        self.action = action
        self.file = file
        self.line = line
        self.reproducer = reproducer
        self.log = log
