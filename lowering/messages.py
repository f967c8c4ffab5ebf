"""Frames between the caller and the worker: a JSON header and binary blobs, length first. No pickle."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import IO, Any

_HEAD = struct.Struct("<II")  # bytes of JSON, number of blobs
_SIZE = struct.Struct("<Q")


def send(stream: IO[bytes], header: dict[str, Any], blobs: Sequence[bytes | memoryview] = ()) -> None:
    """Write one message and flush.

    Raises:
        OSError: the other side is gone.
    """
    text = json.dumps(header).encode()
    stream.write(_HEAD.pack(len(text), len(blobs)))
    stream.write(text)
    for blob in blobs:
        stream.write(_SIZE.pack(len(blob)))
        stream.write(blob)
    stream.flush()


def receive(stream: IO[bytes]) -> tuple[dict[str, Any], list[bytes]]:
    """Read one message.

    Raises:
        EOFError: the other side is gone.
    """
    length, count = _HEAD.unpack(_exactly(stream, _HEAD.size))
    header = json.loads(_exactly(stream, length))
    blobs = []
    for _ in range(count):
        (size,) = _SIZE.unpack(_exactly(stream, _SIZE.size))
        blobs.append(_exactly(stream, size))
    return header, blobs


def _exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if data is None or len(data) < size:
        raise EOFError(f"{len(data or b'')} of {size} bytes")
    return data
