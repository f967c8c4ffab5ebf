"""What this machine's processor reaches: peak and bandwidth, measured once, kept on disk."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from covan_mlir.errors import ProfileError
from covan_mlir.machine import probe
from covan_mlir.typed_json import JsonObject, SchemaError, decode

Rate = Annotated[float, msgspec.Meta(gt=0)]
_LIBRARIES = ("OPENBLAS", "OMP", "MKL", "VECLIB_MAXIMUM")


class Rates(JsonObject, frozen=True):
    """What the probe prints: float32 operations and bytes per second."""

    flops: Rate
    bandwidth: Rate


class Machine(JsonObject, frozen=True):
    """Ceilings of a roofline (Williams, Waterman and Patterson 2009).

    Attributes:
        flops: float32 operations per second of a matrix product.
        bandwidth: bytes per second read and written by a copy of more than the caches hold.
        threads: that ran at once.
    """

    flops: Rate
    bandwidth: Rate
    threads: int

    def seconds(self, flops: float, moved: float) -> float:
        """The least time in which so much can be computed and moved."""
        return max(flops / self.flops, moved / self.bandwidth)


def measured(threads: int, *, again: bool = False) -> Machine:
    """This machine's ceilings with a number of threads: measured once (a second), then read from the user's cache.

    Args:
        again: measure anew, and keep the higher: what was kept was measured on a busy machine.

    Raises:
        ProfileError: they cannot be measured.
    """
    path = _cache(threads)
    kept = None
    with contextlib.suppress(OSError, SchemaError):
        kept = decode(path.read_bytes(), Machine)
    if kept is not None and not again:
        return kept
    machine = _measure(threads)
    if kept is not None:
        machine = Machine(max(kept.flops, machine.flops), max(kept.bandwidth, machine.bandwidth), threads)
    with contextlib.suppress(OSError):  # a machine without a home is measured every time
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}")
        temporary.write_text(json.dumps(machine.to_json()))
        os.replace(temporary, path)
    return machine


def _measure(threads: int) -> Machine:
    limits = {f"{library}_NUM_THREADS": "1" for library in _LIBRARIES}
    # -P: modules next to the probe have names of the standard library's
    command = [sys.executable, "-P", probe.__file__, str(threads)]
    try:
        ran = subprocess.run(
            command, env={**os.environ, **limits}, capture_output=True, text=True, timeout=120, check=True
        )
        rates = decode(ran.stdout, Rates)
    except (OSError, subprocess.SubprocessError, SchemaError) as error:
        raise ProfileError(f"this machine's peak and bandwidth cannot be measured: {error}") from error
    return Machine(rates.flops, rates.bandwidth, threads)


def _cache(threads: int) -> Path:
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = "-".join([platform.node(), _processor(), f"{threads}-threads", f"numpy-{np.__version__}"])
    return folder / "covan" / f"{''.join(c if c.isalnum() or c in '.-' else '_' for c in name)}.json"


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
