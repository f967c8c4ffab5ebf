"""Memory that two processes map: a file without a name, which ends with the last of them, however that ends."""

from __future__ import annotations

import fcntl
import mmap
import os

import numpy as np

from covan_mlir.errors import DeviceError
from covan_mlir.runtime.values import ALIGNMENT

Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]

_PIECE = 1 << 16


class Arena:
    """The memory, as one process sees it. It grows, and never shrinks: who maps it can always read what it maps.

    Attributes:
        descriptor: of the file.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._bytes: Bytes = np.empty(0, np.uint8)

    @staticmethod
    def new() -> Arena:
        """One that can be shared with a process that inherits its descriptor.

        Raises:
            DeviceError: this system has no such files.
            OSError: there are no file descriptors.
        """
        if not hasattr(os, "memfd_create"):
            raise DeviceError("isolated programs need memory files without names, which Linux has")
        descriptor = os.memfd_create("covan-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        # A program that cut the file short would end with SIGBUS whoever reads it.
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
        return Arena(descriptor)

    def bytes(self, end: int) -> Bytes:
        """All of the memory, which is made to hold ``end`` bytes; earlier arrays stay what they are.

        Raises:
            OSError: there is not so much, or more than this process may take.
        """
        if len(self._bytes) < end:
            size = max(os.fstat(self.descriptor).st_size, -(-end // _PIECE) * _PIECE)
            os.truncate(self.descriptor, size)
            self._bytes = np.frombuffer(mmap.mmap(self.descriptor, size), np.uint8)
        return self._bytes

    def held(self, start: int, size: int) -> Bytes | None:
        """A part of the memory; None if it is not there."""
        if len(self._bytes) < start + size <= os.fstat(self.descriptor).st_size:
            self.bytes(start + size)
        return self._bytes[start : start + size] if start + size <= len(self._bytes) else None

    def close(self) -> None:
        """Give the memory back, as far as no array lies in it."""
        self._bytes = np.empty(0, np.uint8)
        os.close(self.descriptor)


def aligned(place: int) -> int:
    """The next place at which a tensor may begin."""
    return -(-place // ALIGNMENT) * ALIGNMENT
