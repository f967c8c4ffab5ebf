"""Frames between the caller and the worker: a typed JSON message and binary blobs, length first. No pickle.

The caller sends a `Job` with the module's bytecode. The worker greets with `Ready`; each job is answered with any
number of `Entered`, and then either `Done`, with the program, or `Failed`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import IO, TypeVar

import msgspec

from covan_mlir.lowering.request import Job
from covan_mlir.lowering.result import JobResult, StepFailure

_HEAD = struct.Struct("<II")  # bytes of JSON, number of blobs
_SIZE = struct.Struct("<Q")


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The worker's imports are done."""


class Entered(msgspec.Struct, frozen=True, tag="step"):
    """A step is about to run."""

    step: str


class Failed(msgspec.Struct, frozen=True, tag="error"):
    """The job gave no program."""

    failure: StepFailure


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The job gave the program that comes with this."""

    result: JobResult


Answer = Ready | Entered | Failed | Done
Message = TypeVar("Message")

JOBS: msgspec.json.Decoder[Job] = msgspec.json.Decoder(Job)
ANSWERS: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(Answer)
_encoder = msgspec.json.Encoder()


def send(stream: IO[bytes], message: Job | Answer, blobs: Sequence[bytes | memoryview] = ()) -> None:
    """Write one message and flush.

    Raises:
        OSError: the other side is gone.
    """
    text = _encoder.encode(message)
    stream.write(_HEAD.pack(len(text), len(blobs)))
    stream.write(text)
    for blob in blobs:
        stream.write(_SIZE.pack(len(blob)))
        stream.write(blob)
    stream.flush()


def receive(stream: IO[bytes], kind: msgspec.json.Decoder[Message]) -> tuple[Message, list[bytes]]:
    """Read one message of a kind (`JOBS`, `ANSWERS`).

    Raises:
        EOFError: the other side is gone.
        msgspec.ValidationError: it is another kind of message.
    """
    length, count = _HEAD.unpack(_exactly(stream, _HEAD.size))
    message = kind.decode(_exactly(stream, length))
    blobs = []
    for _ in range(count):
        (size,) = _SIZE.unpack(_exactly(stream, _SIZE.size))
        blobs.append(_exactly(stream, size))
    return message, blobs


def _exactly(stream: IO[bytes], size: int) -> bytes:
    data = stream.read(size)
    if data is None or len(data) < size:
        raise EOFError(f"{len(data or b'')} of {size} bytes")
    return data
