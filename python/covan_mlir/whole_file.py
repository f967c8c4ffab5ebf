"""Files that are there as a whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets


def check(path: str | os.PathLike[str]) -> str:
    """The path as text.

    Raises:
        OSError: no file can have it: it holds a NUL, or characters that file names cannot have.
    """
    name = os.fspath(path)
    try:
        if b"\0" in os.fsencode(name):
            raise OSError(errno.EINVAL, "the path holds a NUL character")
    except UnicodeEncodeError:
        raise OSError(errno.EINVAL, "the path holds characters that no file name has") from None
    return name


def write(path: str | os.PathLike[str], data: bytes | memoryview, mode: int = 0o666) -> None:
    """Write a file: what was there before stays if that fails. A symbolic link stays one; devices and pipes are written
    as they are.

    Args:
        mode: of a new file, less the process's umask.

    Raises:
        OSError: it cannot be written; the error names the reason.
    """
    target = os.path.realpath(check(path))
    if os.path.isdir(target):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR))
    if os.path.exists(target) and not os.path.isfile(target):
        with open(target, "wb") as file:
            file.write(data)
        return
    # In the same folder, or it could not be renamed into place.
    temporary = os.path.join(os.path.dirname(target), f".{secrets.token_hex(8)}.tmp")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
            file.write(data)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
