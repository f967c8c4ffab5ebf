"""Files that are there as a whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
from collections.abc import Iterator
from typing import IO

_OWN = re.compile(r"/dev/(stdout|stderr|fd/(\d{1,9}))")  # such a path may lead to a file, which is not replaced
_NUMBERS = {"stdout": 1, "stderr": 2}


def check(path: str | os.PathLike[str]) -> str:
    """The path as text.

    Raises:
        OSError: no file can have it: it holds a NUL, or characters that file names cannot have.
    """
    name = os.fspath(path)
    try:
        if b"\0" in os.fsencode(name):
            raise OSError(errno.EINVAL, "it holds a NUL character, which no path does")
    except UnicodeEncodeError:
        raise OSError(errno.EINVAL, "it holds characters that no path has") from None
    return name


@contextlib.contextmanager
def writing(path: str | os.PathLike[str], mode: int = 0o666) -> Iterator[IO[bytes]]:
    """A file to write to, which takes the place of the one at ``path`` at the end; what was there before stays if
    anything fails. A symbolic link stays one; devices and pipes are written as they are.

    Args:
        mode: of a new file, less the process's umask.

    Raises:
        OSError: it cannot be written; the error names the reason.
    """
    name = os.path.abspath(check(path))
    target = os.path.realpath(name)
    if os.path.isdir(target):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    if (own := _OWN.fullmatch(name)) or (os.path.exists(target) and not os.path.isfile(target)):
        # A pipe that nobody reads is an error, and no wait.
        descriptor = (
            os.dup(_NUMBERS.get(own[1]) or int(own[2])) if own else os.open(target, os.O_WRONLY | os.O_NONBLOCK)
        )
        os.set_blocking(descriptor, True)
        with open(descriptor, "wb") as file:
            yield file
        return
    # In the same folder, or it could not be renamed into place.
    temporary = os.path.join(os.path.dirname(target), f".{secrets.token_hex(8)}.tmp")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
            yield file
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def write(path: str | os.PathLike[str], data: bytes | memoryview, mode: int = 0o666) -> None:
    """Write a file; see `writing`.

    Raises:
        OSError: it cannot be written; the error names the reason.
    """
    with writing(path, mode) as file:
        file.write(data)
