"""A folder of files by name: bounded, checked when read, shared by any number of processes.

A file has a head and a body, and appears whole or not at all: it is written under a name of its own and then renamed.
It begins with a checksum over its name and what follows. When the files together exceed the limit, those go first that
were read or written the longest time ago.

What is read here becomes machine code that is run. So a folder or a file that is not the user's own, or that others may
write to, is refused; both are looked at once they are open, and files are opened in the folder that was looked at.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import secrets
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger(__name__)

LIMIT = 2 << 30
"""Bytes of all files together."""
KERNELS_LIMIT = 256 << 20
"""The same of kernels, some 10 KB each."""
_OURS = re.compile(r"[0-9a-f]{64}(\.[0-9a-f]{16})?\.answer")
"""Finished files, and files that are being written; the folder may be one that others keep files in, too."""
_START = struct.Struct("<32sQ")  # checksum, bytes of the head

_logged: set[str] = set()
"""What was said about folders and files that cannot be used: once is enough."""


class _RefusedError(PermissionError):
    """A folder or file that somebody else may have written."""


@dataclass(frozen=True)
class Store:
    """Files in a folder, each called by 64 hexadecimal digits.

    Attributes:
        limit: bytes of all files together.
    """

    folder: Path
    limit: int = LIMIT

    def read(self, name: str) -> tuple[bytes, bytes] | None:
        """Head and body of what was written under a name; None: nothing, or nothing to be trusted, which is logged."""
        file_name = f"{name}.answer"
        try:
            with self._opened() as folder:
                descriptor = os.open(file_name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
                with os.fdopen(descriptor, "rb") as file:
                    status = os.fstat(descriptor)
                    _trust(status, self.folder / file_name)
                    start = file.read(_START.size).ljust(_START.size)
                    checksum, size = _START.unpack(start)
                    # Exactly what there is, whatever the file says: a large body is then read without a copy.
                    head = file.read(min(size, status.st_size))
                    body = file.read(max(0, status.st_size - _START.size - len(head)))
                    with contextlib.suppress(OSError):  # it can be read where it cannot be touched
                        os.utime(descriptor)
                if checksum == _checksum(name, head, body):
                    return head, body
                log.warning("%s is damaged: it is removed, and not used", self.folder / file_name)
                os.unlink(file_name, dir_fd=folder)
        except FileNotFoundError:
            pass
        except OSError as error:
            self._log(error)
        return None

    def write(self, name: str, head: bytes, body: bytes) -> None:
        """Keep something under a name, and remove what exceeds the limit; what cannot be written is logged."""
        size = _START.size + len(head) + len(body)
        if size > self.limit:
            log.info("not kept: %d bytes are more than all programs together may have (%d)", size, self.limit)
            return
        temporary = f"{name}.{secrets.token_hex(8)}.answer"
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._opened() as folder:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                descriptor = os.open(temporary, flags, 0o600, dir_fd=folder)
                try:
                    with os.fdopen(descriptor, "wb") as file:
                        file.write(_START.pack(_checksum(name, head, body), len(head)))
                        file.write(head)
                        file.write(body)
                    os.replace(temporary, f"{name}.answer", src_dir_fd=folder, dst_dir_fd=folder)
                except BaseException:
                    with contextlib.suppress(OSError):
                        os.unlink(temporary, dir_fd=folder)
                    raise
                _shrink(folder, self.limit)
        except OSError as error:
            self._log(error)

    def sizes(self) -> list[int]:
        """Bytes of each file.

        Raises:
            OSError: the folder cannot be read, or is refused.
        """
        try:
            with self._opened() as folder:
                return [size for _, _, size in _files(folder)]
        except FileNotFoundError:
            return []

    def clear(self) -> None:
        """Remove all files.

        Raises:
            OSError: the folder cannot be changed, or is refused.
        """
        with contextlib.suppress(FileNotFoundError), self._opened() as folder:
            _shrink(folder, 0)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _trust(os.fstat(folder), self.folder)
            yield folder
        finally:
            os.close(folder)

    def _log(self, error: OSError) -> None:
        said = str(error) if isinstance(error, _RefusedError) else f"{self.folder}: {error.strerror or error}"
        if said not in _logged:
            _logged.add(said)
            log.warning("compiled programs are not kept: %s", said)


def _trust(status: os.stat_result, path: Path) -> None:
    """Raises `_RefusedError` for what is not the user's own, or what others may write to."""
    if status.st_uid != os.geteuid():
        raise _RefusedError(f"{path} belongs to another user")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _RefusedError(f"others may write to {path}; chmod go-w allows it to be used")


def _checksum(name: str, head: bytes, body: bytes) -> bytes:
    digest = hashlib.sha256(f"{name} {len(head)} ".encode("ascii"))
    digest.update(head)
    digest.update(body)
    return digest.digest()


def _files(folder: int) -> list[tuple[int, str, int]]:
    """When each was last used, its name, and its bytes; the one that was not used for longest is first."""
    files = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if _OURS.fullmatch(entry.name):
                with contextlib.suppress(FileNotFoundError):  # another process removes files, too
                    status = entry.stat(follow_symlinks=False)
                    files.append((status.st_mtime_ns, entry.name, status.st_size))
    return sorted(files)


def _shrink(folder: int, limit: int) -> None:
    files = _files(folder)
    excess = sum(size for _, _, size in files) - limit
    for _, name, size in files:
        if excess <= 0:
            break
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
        excess -= size
