"""What the caller and the process of a program say to each other, in frames of `covan_mlir.support.processes.frames`.

The caller sends `Load` once, which is answered with `Loaded` or `Refused`; then `Call`s, each answered with `Returned`
or `Refused`. Tensors lie in memory that both map (`covan_mlir.runtime.isolation.arena`).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from covan_mlir.support.typed_json import Constant, Natural

MESSAGE_LIMIT = 4 << 20
"""Bytes of a message from the program's process, at most: the program may have written it."""


class Tensor(msgspec.Struct, frozen=True, tag="tensor"):
    """A tensor in the arena.

    Attributes:
        start: of its first byte, a multiple of 64.
        size: in bytes.
        element: the runtime's number for the type of its elements.
    """

    start: Natural
    size: Natural
    shape: tuple[Natural, ...]
    element: int


class Number(msgspec.Struct, frozen=True, tag="number"):
    """A number that is passed by value."""

    value: Constant


class Same(msgspec.Struct, frozen=True, tag="same"):
    """A result that is an argument, memory and all."""

    argument: Natural


Passed = Tensor | Number
Given = Tensor | Number | Same


class Load(msgspec.Struct, frozen=True, tag="load"):
    """Load the artifact.

    Attributes:
        target: of the program in it that is to run.
        memory: see `covan_mlir.runtime.isolation.limits.Isolation`.
        version: of the program, where that is not the general one.
    """

    target: str
    memory: int | None
    version: Natural | None = None


class Call(msgspec.Struct, frozen=True, tag="call"):
    """Call the program.

    Attributes:
        results: how many it gives.
    """

    arguments: tuple[Passed, ...]
    results: Natural


class Loaded(msgspec.Struct, frozen=True, tag="loaded"):
    """The program is ready, on this device."""

    driver: str


class Returned(msgspec.Struct, frozen=True, tag="returned"):
    """What a call gave."""

    results: tuple[Given, ...]


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The program was not loaded, or the call failed; the process goes on.

    Attributes:
        kind: of the error: a program and its signature contradict each other, memory ran out, the file or the device is
            at fault, or anything else.
    """

    kind: Literal["contract", "memory", "artifact", "device", "other"]
    message: str


REQUESTS: msgspec.json.Decoder[Load | Call] = msgspec.json.Decoder(Load | Call)
ANSWERS: msgspec.json.Decoder[Loaded | Returned | Refused] = msgspec.json.Decoder(Loaded | Returned | Refused)
