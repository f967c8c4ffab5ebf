"""Standard streams of a command line that are closed, full, or that nobody reads."""

from __future__ import annotations

import errno
import io
import os
import sys

_LOST = (errno.EBADF, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def prepare() -> None:
    """Make standard streams usable: paths may have bytes that are no text, and streams may be closed.

    A closed one is replaced by one that cannot be used either, so that no other file takes its number: reading and
    writing it fail, and what is told on a closed standard error is lost.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            unusable = os.open(os.devnull, os.O_RDONLY if name == "stdout" else os.O_WRONLY)
            os.dup2(unusable, number)
            if unusable != number:
                os.close(unusable)
            setattr(sys, name, open(number, mode, errors="backslashreplace", closefd=False))  # noqa: SIM115  # stays
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def unwritable(error: BaseException) -> str | None:
    """Why standard output cannot be written, if it is that which failed; files' errors name the file."""
    if isinstance(error, OSError) and error.filename is None and error.errno in _LOST:
        return f"standard output cannot be written: {os.strerror(error.errno)}"
    return None


def discard() -> None:
    """What is left of the output goes nowhere; Python would complain once more when it exits."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
