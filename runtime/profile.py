"""Recording a program's calls with IREE's profiler, in a process of its own.

The runtime's Python bindings have no profiler; its benchmark tool has. It loads the same program, with the same weights
and arguments, and runs it on the same kind of device.
"""

from __future__ import annotations

import importlib
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from covan_mlir.artifacts.signature import PARAMETER_SCOPE
from covan_mlir.errors import ProfileError
from covan_mlir.runtime import profile_events
from covan_mlir.runtime.profile_events import Call
from covan_mlir.runtime.tool_files import ToolArgument, write_argument, write_weights
from covan_mlir.support.processes import leash
from covan_mlir.support.typed_json import JsonObject, SchemaError, decode

WARM_UP = 3
"""Calls before those that count: the first compiles pipelines (Vulkan) and touches memory."""

# What a driver can record of dispatches.
_HOST = "queue-events,host-execution,executable-metadata"
_DEVICE = "queue-events,dispatch-events,executable-metadata"


class _Benchmark(JsonObject, frozen=True, forbid_unknown_fields=False):
    """What is read of Google Benchmark's JSON about one benchmark."""

    iterations: int = 0
    error_occurred: bool = False
    error_message: str = ""


class _Report(JsonObject, frozen=True, forbid_unknown_fields=False):
    benchmarks: tuple[_Benchmark, ...]


def record(
    program: bytes | memoryview,
    function: str,
    driver: str,
    arguments: Sequence[ToolArgument],
    weights: Mapping[str, np.ndarray[Any, Any]],
    *,
    repeat: int,
    timeout: float = 600.0,
) -> list[Call]:
    """Call a program ``repeat`` times and record when which dispatch ran.

    Args:
        driver: of `covan_mlir.runtime.devices.DRIVERS`.
        weights: raw bytes of the tensors that the program reads from outside, by parameter name.
        timeout: seconds after which the recording is given up.

    Raises:
        ProfileError: the device gives no times, the program failed, or it took too long.
    """
    with tempfile.TemporaryDirectory(prefix="covan-profile-") as name:
        folder = Path(name)
        (folder / "program.vmfb").write_bytes(program)
        count = repeat + WARM_UP + 1  # nothing tells where the last one ends
        command = [
            tool("iree-benchmark-module"),
            f"--device={driver}",
            f"--module={folder / 'program.vmfb'}",
            f"--function={function}",
            f"--benchmark_min_time={count}x",
            "--benchmark_format=json",
            f"--device_profiling_mode={_HOST if driver.startswith('local') else _DEVICE}",
            f"--device_profiling_output={folder / 'calls.ireeprof'}",
        ]
        if weights:
            write_weights(folder / "weights.irpa", weights)
            command.append(f"--parameters={PARAMETER_SCOPE}={folder / 'weights.irpa'}")
        command += [f"--input={write_argument(folder, str(i), argument)}" for i, argument in enumerate(arguments)]
        _check(_run(command, timeout), driver, count)
        export = _run(
            [tool("iree-profile"), "export", "--format=ireeperf-jsonl", "--output=-", str(folder / "calls.ireeprof")],
            timeout,
        )
        if export.returncode:
            raise ProfileError(f"the recording cannot be read: {_words(export.stderr)}")
        return profile_events.calls(export.stdout.splitlines(), count)[WARM_UP:]


def tool(name: str) -> str:
    """Path of one of the programs that come with IREE's runtime.

    Raises:
        ProfileError: this installation has none.
    """
    for folder in importlib.import_module("iree._runtime_libs").__path__:
        path = Path(folder) / name
        if path.exists():
            return str(path)
    raise ProfileError(f"this installation of iree-base-runtime has no {name}: install the package from PyPI")


def _run(command: Sequence[str], timeout: float) -> subprocess.CompletedProcess[str]:
    try:
        return leash.run(command, timeout)
    except subprocess.TimeoutExpired:
        raise ProfileError(
            f"profiling took more than {timeout:g} s: repeat less often, or use smaller inputs"
        ) from None
    except OSError as error:
        raise ProfileError(f"{command[0]} cannot be run: {error.strerror or error}") from error


def _check(ran: subprocess.CompletedProcess[str], driver: str, count: int) -> None:
    if ran.returncode:
        if "UNIMPLEMENTED" in ran.stderr or "profiling" in ran.stderr.lower():
            raise ProfileError(f"the device of driver {driver!r} gives no times of dispatches: {_words(ran.stderr)}")
        raise ProfileError(f"the program failed while it was profiled: {_words(ran.stderr)}")
    try:
        benchmarks = decode(ran.stdout, _Report).benchmarks
    except SchemaError as error:
        raise ProfileError(f"the program failed while it was profiled: {_words(ran.stdout + ran.stderr)}") from error
    if len(benchmarks) != 1:
        raise ProfileError(f"{len(benchmarks)} functions were profiled instead of one")
    if benchmarks[0].error_occurred:
        raise ProfileError(f"the program failed while it was profiled: {_words(benchmarks[0].error_message)}")
    if benchmarks[0].iterations != count:
        raise ProfileError(f"the program ran {benchmarks[0].iterations} times instead of {count}")


def _words(text: str) -> str:
    """The status that matters, without the runtime's stack of source lines."""
    lines = [line for line in text.splitlines() if line.strip()]
    said = [
        line
        for line in lines
        if any(
            word in line for word in ("INVALID", "UNIMPL", "NOT_FOUND", "INTERNAL", "RESOURCE", "UNAVAILABLE", "FAILED")
        )
    ]
    return " ".join(" ".join(said[:1] or lines[-1:] or ["it ended without a word"]).split())[:400]
