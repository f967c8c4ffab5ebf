"""How fast this machine is: measured once by `covan_mlir.machine.probe`, kept in the user's cache folder."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import subprocess
import sys
from dataclasses import dataclass, fields, replace
from pathlib import Path

import msgspec
import numpy as np

from covan_mlir.machine import probe
from covan_mlir.machine.description import Machine, Rate
from covan_mlir.machine.reading import model
from covan_mlir.support import user_cache
from covan_mlir.support.processes import leash

log = logging.getLogger(__name__)

_LIMIT = 60.0  # seconds; the probe takes about one
_THREADS = {f"{library}_NUM_THREADS": "1" for library in ("OPENBLAS", "OMP", "MKL", "VECLIB_MAXIMUM")}
_KERNELS = "OPENBLAS_CORETYPE"
"""Makes numpy's linear algebra use another processor's code."""


@dataclass(frozen=True)
class Speeds:
    """What is measured, as `Machine` calls it."""

    flops: Rate
    bandwidth: Rate
    cache_bandwidth: Rate
    elements: Rate
    flops_alone: Rate
    bandwidth_alone: Rate

    def higher(self, other: Speeds) -> Speeds:
        """Of each figure the higher: a busy machine makes it low, and nothing makes it high."""
        return Speeds(*(max(getattr(self, field.name), getattr(other, field.name)) for field in fields(self)))

    def of(self, machine: Machine) -> Machine:
        """A machine, as it was read, with these speeds.

        Cores do not get less of the memory together than one alone, and the clock is no less than what it was read to
        be: linear algebra reaches less than the peak. Two digits: more of them are noise.
        """
        flops, alone = self.flops, self.flops_alone
        if machine.speeds == "read":
            flops, alone = max(flops, machine.flops), max(alone, machine.flops_alone)
        bandwidth = max(self.bandwidth, self.bandwidth_alone / machine.cores)
        return replace(
            machine,
            flops=_rounded(flops),
            bandwidth=_rounded(bandwidth),
            cache_bandwidth=_rounded(max(self.cache_bandwidth, bandwidth)),
            elements=_rounded(self.elements),
            flops_alone=_rounded(max(alone, flops)),
            bandwidth_alone=_rounded(max(self.bandwidth_alone, bandwidth)),
            speeds="measured",
        )


@dataclass(frozen=True)
class Fingerprint:
    """What measured speeds are of.

    Attributes:
        probe: SHA-256 of what measures.
    """

    processor: str
    cores: int
    vector_bits: int
    caches: tuple[int, int, int]
    numpy: str
    probe: str


@dataclass(frozen=True)
class _Kept:
    fingerprint: Fingerprint
    speeds: Speeds


def fingerprint(machine: Machine) -> Fingerprint:
    """Of this machine as it was read."""
    return Fingerprint(
        model(),
        machine.cores,
        machine.vector_bits,
        (machine.l1, machine.l2, machine.llc),
        np.__version__,
        hashlib.sha256(Path(probe.__file__).read_bytes()).hexdigest(),
    )


def path(of: Fingerprint) -> Path:
    """Where the speeds are kept."""
    digest = hashlib.sha256(msgspec.json.encode(of)).hexdigest()
    return user_cache.folder() / f"machine-{digest[:16]}.json"


def kept(of: Fingerprint) -> Speeds | None:
    """The speeds that were measured before, if any."""
    with contextlib.suppress(OSError, RuntimeError, msgspec.MsgspecError):
        was = msgspec.json.decode(path(of).read_bytes(), type=_Kept)
        return was.speeds if was.fingerprint == of else None
    return None


def keep(of: Fingerprint, speeds: Speeds) -> None:
    """Keep speeds for later processes; one without a home keeps nothing."""
    with contextlib.suppress(OSError, RuntimeError):
        file = path(of)
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_suffix(f".{os.getpid()}")
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(_Kept(of, speeds))))
        os.replace(temporary, file)


def measure(machine: Machine) -> Speeds | None:
    """Measure this machine, in about a second; None, and a warning, if that fails.

    Args:
        machine: as it was read.
    """
    sizes = machine.cores, machine.l2, machine.llc
    environment = {**os.environ, **_THREADS}
    # Another processor's code may take twice as long. Whoever asks for it may know that the own does not run.
    own = {key: value for key, value in environment.items() if key != _KERNELS}
    attempts = [own] if _KERNELS not in environment else [own, environment]
    for variables in attempts:
        try:
            # -P: modules next to the probe may have names of the standard library's.
            command = [sys.executable, "-P", probe.__file__, *map(str, sizes)]
            ran = leash.run(command, _LIMIT, variables, session=True)  # Ctrl-C is the caller's
            ran.check_returncode()
            return msgspec.json.decode(ran.stdout, type=Speeds)
        except (OSError, subprocess.SubprocessError, msgspec.MsgspecError) as error:
            failure = error
    log.warning("the speed of this machine cannot be measured (%s): estimates are of processors of its kind", failure)
    return None


def _rounded(rate: float) -> float:
    return float(f"{rate:.2g}")
