"""Frames between a process and one that it started: a typed JSON message and binary blobs, length first. No pickle."""

from __future__ import annotations

import os
import select
import struct
import time
from collections.abc import Sequence
from typing import Protocol, TypeVar

import msgspec

_HEAD = struct.Struct("<II")  # bytes of JSON, number of blobs
_SIZE = struct.Struct("<Q")
_PIECE = 1 << 20

Message = TypeVar("Message")

_encoder = msgspec.json.Encoder()


class Reader(Protocol):
    """What frames are read from."""

    def read(self, size: int, /) -> bytes:
        """That many bytes; fewer where the stream ends."""


class Writer(Protocol):
    """What frames are written to."""

    def write(self, data: bytes | memoryview, /) -> object:
        """Write all of it."""

    def flush(self) -> object:
        """See that the other side gets it."""


class Pipe:
    """Both directions to another process, with a deadline: a process that hangs holds nobody up.

    Attributes:
        deadline: on `time.monotonic`; None: there is none. Past it, reading and waiting raise `TimeoutError`.

    Args:
        incoming, outgoing: descriptors of pipes, which stay the caller's; they no longer block.
    """

    def __init__(self, incoming: int, outgoing: int) -> None:
        self.deadline: float | None = None
        self._incoming, self._outgoing = incoming, outgoing
        self._polls = []
        for descriptor, event in ((incoming, select.POLLIN), (outgoing, select.POLLOUT)):
            os.set_blocking(descriptor, False)
            poll = select.poll()
            poll.register(descriptor, event)
            self._polls.append(poll)

    def read(self, size: int, /) -> bytes:
        pieces = []
        while size:
            if self._late():
                raise TimeoutError
            try:
                piece = os.read(self._incoming, min(size, _PIECE))
            except BlockingIOError:
                self._wait(0)
                continue
            if not piece:
                break
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)

    def write(self, data: bytes | memoryview, /) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._outgoing, rest[:_PIECE]) :]
            except BlockingIOError:
                self._wait(1)

    def flush(self) -> None:
        """Nothing is held back."""

    def _late(self) -> bool:
        return self.deadline is not None and time.monotonic() > self.deadline

    def _wait(self, direction: int) -> None:
        rest = None if self.deadline is None else max(0.0, self.deadline - time.monotonic()) * 1000.0
        if not self._polls[direction].poll(rest):
            raise TimeoutError


def send(stream: Writer, message: object, blobs: Sequence[bytes | memoryview] = ()) -> None:
    """Write one message and flush.

    Raises:
        OSError: the other side is gone.
    """
    text = _encoder.encode(message)
    stream.write(_HEAD.pack(len(text), len(blobs)) + text)
    for blob in blobs:
        stream.write(_SIZE.pack(len(blob)))
        stream.write(blob)
    stream.flush()


def receive(
    stream: Reader, kind: msgspec.json.Decoder[Message], limit: int | None = None
) -> tuple[Message, list[bytes]]:
    """Read one message of a kind.

    Args:
        limit: bytes of JSON that a message without blobs may have, of a process that is not trusted.

    Raises:
        EOFError: the other side is gone.
        msgspec.ValidationError: it is another kind of message, or longer than the limit.
    """
    length, count = _HEAD.unpack(_exactly(stream, _HEAD.size))
    if limit is not None and (length > limit or count):
        raise msgspec.ValidationError(f"a message of {length} bytes and {count} blobs")
    message = kind.decode(_exactly(stream, length))
    blobs = []
    for _ in range(count):
        (size,) = _SIZE.unpack(_exactly(stream, _SIZE.size))
        blobs.append(_exactly(stream, size))
    return message, blobs


def _exactly(stream: Reader, size: int) -> bytes:
    data = stream.read(size)
    if data is None or len(data) < size:
        raise EOFError(f"{len(data or b'')} of {size} bytes")
    return data
