"""What a process that builds and times kernels is asked, and what it answers; frames are those of
`covan_mlir.support.processes.frames`."""

from __future__ import annotations

from typing import Any

import msgspec

from covan_mlir.machine.description import Machine


class Candidate(msgspec.Struct, frozen=True):
    """A schedule of a template, as JSON, keys in order."""

    template: str
    schedule: str

    def __str__(self) -> str:
        return f"{self.template} {self.schedule}"


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The process's imports are done."""


class Build(msgspec.Struct, frozen=True, tag="build"):
    """Write and compile the kernels of a chain.

    Attributes:
        chain: as JSON.
        machine: that they are for: this one.
        winograd: see `covan_mlir.lowering.kernels.cpu.target.CpuTarget`.
    """

    chain: str
    machine: Machine
    winograd: int
    candidates: tuple[Candidate, ...]


class Built(msgspec.Struct, frozen=True, tag="built"):
    """The program of those that can be had comes with it.

    Attributes:
        kernels: by candidate, `covan_mlir.lowering.kernels.kernel.Executable` as JSON without its code; None: there is
            none, for the reason in ``refusals``.
    """

    kernels: tuple[dict[str, Any] | None, ...]
    refusals: tuple[str, ...]


class Time(msgspec.Struct, frozen=True, tag="time"):
    """Time kernels in turns; their programs come with it.

    Attributes:
        kernels: of each program.
        reference: the kernel that all others are compared with, by its place among all of them.
        timed: the others.
        driver: that programs run on (`covan_mlir.runtime.choice`).
        seconds: that it may take, about.
        seed: of the operands.
        near: bytes of what the caches of all cores hold: weights come from farther away.
        slack: how many times as large as those of direct sums errors may be.
    """

    chain: str
    kernels: tuple[tuple[dict[str, Any], ...], ...]
    reference: int
    timed: tuple[int, ...]
    driver: str
    seconds: float
    seed: int
    near: int
    slack: float


class Timed(msgspec.Struct, frozen=True, tag="timed"):
    """What became of each kernel.

    Attributes:
        seconds: median of its calls; None: there is no time, for the reason in ``failures``.
        ratios: median of its calls over those of the reference in the same turns.
    """

    seconds: tuple[float | None, ...]
    ratios: tuple[float | None, ...]
    rounds: int
    failures: tuple[str, ...]


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """What was asked cannot be done."""

    reason: str


Request = Build | Time
Answer = Ready | Built | Timed | Failed

REQUESTS: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
ANSWERS: msgspec.json.Decoder[Answer] = msgspec.json.Decoder(Answer)
