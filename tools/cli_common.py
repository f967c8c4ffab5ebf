"""What covan's commands share: errors with hints, and progress of slow steps."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import threading
import time
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from covan_mlir.errors import (
    ArtifactError,
    CompileError,
    CovanError,
    DivisionError,
    ExportError,
    InputError,
    OutOfRangeError,
    TagError,
)

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

DELAY = 2.0


class CliError(Exception):
    """What the user asked for cannot be done.

    Attributes:
        hint: what to do; one line, may be empty.
        code: exit code: 1, or 2 when the command line itself is wrong.
    """

    def __init__(self, message: str, hint: str = "", *, code: int = 1) -> None:
        super().__init__(message)
        self.hint = hint
        self.code = code


def describe(error: Exception) -> CliError:
    """An error of covan or of the system as one line and a hint."""
    if isinstance(error, CliError):
        return error
    first, _, rest = str(error).strip().partition("\n")
    if isinstance(error, ArtifactError):
        return CliError(first, rest)
    if isinstance(error, CompileError):
        if error.reproducer:
            return CliError(first, f"{error.reproducer} reproduces it; --debug shows what the compiler said")
        return CliError(
            first, "--reproducer failing.mlir keeps what the compiler failed on; --debug shows what it said"
        )
    if isinstance(error, ExportError):
        return CliError(first, "--debug shows where in the model torch.export failed")
    if isinstance(error, TagError):
        message, _, near = first.partition("; ")
        return CliError(message, near or "--tag WHAT=TAG takes the names that 'covan explain' shows")
    if isinstance(error, InputError) and first.startswith("attach: "):
        message, _, near = first.removeprefix("attach: ").partition("; ")
        return CliError(message, near or "--attach takes the names that 'covan explain' shows (docs/attaching.md)")
    if isinstance(error, InputError) and (first.startswith(("argument ", "dimension ")) or "compiled for (" in first):
        return CliError(first, "give one --input per tensor, in the order of the arguments")
    if isinstance(error, InputError) and first.startswith("this is not the model"):
        return CliError(first, "give --model what 'covan compile' was given")
    if isinstance(error, OutOfRangeError | DivisionError):
        return CliError(first, "give other values with --input")
    if isinstance(error, CovanError):
        return CliError(first, rest.partition("\n")[0])
    if isinstance(error, MemoryError):
        return CliError("out of memory", "use smaller inputs")
    what = f"{type(error).__name__}: {first}" if first else type(error).__name__
    return CliError(f"unexpected {what}", "--debug shows the traceback; please report it")


@contextlib.contextmanager
def torch_is_quiet(debug: bool) -> Iterator[None]:
    """When an export fails torch prints graphs and advice at length: all that is in the error, or for ``--debug``.

    What the user's code writes to stderr meanwhile is shown when it is over.
    """
    if debug:
        yield
        return
    import torch

    loggers: Any = torch._logging  # its stubs hide what torch documents
    loggers.set_logs(all=logging.CRITICAL)
    held = io.StringIO()
    with contextlib.redirect_stderr(held):
        yield
    sys.stderr.write(held.getvalue())


class Progress:
    """Tells on stderr what goes on, but only once it has gone on for two seconds.

    A terminal gets one line that changes and vanishes; a pipe or a file gets a line every two seconds at most.
    """

    def __init__(self, step: str, stream: TextIO | None = None, delay: float = DELAY) -> None:
        self._stream = stream or sys.stderr
        self._step = step
        self._delay = delay
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __call__(self, step: str) -> None:
        """A new step begins."""
        self._step = step

    def __enter__(self) -> Progress:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        if self._done.wait(self._delay):
            return
        if self._stream.isatty():
            with _bar(self._stream) as bar:
                task = bar.add_task(self._step, total=None)
                bar.tasks[0].start_time = time.monotonic() - self._delay
                while not self._done.wait(0.1):
                    bar.update(task, description=self._step)
            return
        start, told = time.monotonic() - self._delay, ""
        while not self._done.is_set():
            if self._step != told:
                told = self._step
                print(f"covan: {told} ({time.monotonic() - start:.0f} s)", file=self._stream, flush=True)
            self._done.wait(self._delay)


def _bar(stream: TextIO) -> Bar:
    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    return Bar(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
        console=Console(file=stream),
        transient=True,
        redirect_stdout=False,  # what the user's code prints goes where it would go without us
        redirect_stderr=False,
    )


def amount(size: int) -> str:
    """Bytes, in words."""
    for shift, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 1 << shift:
            return f"{size / (1 << shift):.1f} {unit}"
    return f"{size} bytes"
