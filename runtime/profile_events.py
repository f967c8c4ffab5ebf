"""What IREE's profiler recorded, as data: commands of command buffers, and the times of dispatches, call by call.

Reads the rows that ``iree-profile export --format=ireeperf-jsonl`` writes. Host times are those of the runtime's
monotonic clock; device times are moved onto it with the clock samples that the device gives.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from covan_mlir.errors import ProfileError

_UNKNOWN = 0xFFFFFFFF  # index of a command that the device does not tell


@dataclass(frozen=True)
class Command:
    """One command of a command buffer, as it was recorded.

    Attributes:
        kind: ``dispatch``, ``fill``, ``copy``, ``update``, ``barrier``, ...
        kernel: entry point, of a dispatch.
    """

    kind: str
    kernel: str = ""


@dataclass(frozen=True)
class Dispatch:
    """One dispatch that ran.

    Attributes:
        index: of its command in the command buffer.
        kernel: entry point.
        start: nanoseconds on the host's clock.
        duration: nanoseconds, from its first workgroup's start to its last one's end.
    """

    index: int
    kernel: str
    start: int
    duration: int


@dataclass(frozen=True)
class Submission:
    """One execution of a command buffer.

    Attributes:
        commands: as they were recorded; where ``whole`` is false, the dispatches among them.
        dispatches: those that ran, in the order of their commands.
        whole: the device records commands. local-sync does not: it runs them one after the other as they are
            recorded, so that the order in which dispatches ran is that of their commands.
    """

    commands: tuple[Command, ...]
    dispatches: tuple[Dispatch, ...]
    whole: bool = True


@dataclass(frozen=True)
class Call:
    """One call of the program.

    Attributes:
        start: when its first work reached the queue, nanoseconds on the host's clock.
        total: nanoseconds until the next call's did: all that a call takes.
    """

    start: int
    total: int
    submissions: tuple[Submission, ...]


def calls(lines: Iterable[str], count: int) -> list[Call]:
    """The calls of a recording, in order. The last is left out: nothing tells where it ends.

    Args:
        lines: JSON rows.
        count: how many times the program was called, always with the same arguments.

    Raises:
        ProfileError: the rows are not those of ``count`` like calls.
    """
    buffers: dict[int, dict[int, Command]] = {}
    queue: list[Mapping[str, Any]] = []
    events: dict[int, list[Mapping[str, Any]]] = {}
    offset, samples = 0.0, 0
    for line in lines:
        row = json.loads(line)
        match row["record_type"]:
            case "command_operation":
                command = Command(row["op"], row["key"] if row["op"] == "dispatch" else "")
                buffers.setdefault(row["command_buffer_id"], {})[row["command_index"]] = command
            case "queue_event":
                queue.append(row)
            case "host_execution_event" | "dispatch_event" if row.get("op", "dispatch") == "dispatch":
                if not row["valid"]:
                    raise ProfileError(f"the device gave no time for a dispatch of {row['key']}")
                events.setdefault(row["submission_id"], []).append(row)
            case "clock_correlation":
                middle = (row["host_time_begin_ns"] + row["host_time_end_ns"]) / 2
                offset += middle - row["host_cpu_timestamp_ns"]
                samples += 1
            case "dropped_records" | "truncation":
                raise ProfileError("the profiler lost events: repeat less often")
    shift = round(offset / samples) if samples else 0
    recorded = {buffer: _in_order(commands) for buffer, commands in buffers.items()}
    queue.sort(key=lambda row: row["host_time_ns"])
    per_call, rest = divmod(len(queue), count)
    if not queue:
        raise ProfileError("a call gives the device no work: there is nothing to profile")
    chunks = [queue[i : i + per_call] for i in range(0, len(queue), per_call or 1)]
    if rest or any([row["op"] for row in chunk] != [row["op"] for row in chunks[0]] for chunk in chunks):
        raise ProfileError(
            "the program does not give the device the same work with every call: its calls cannot be told apart"
        )
    found = []
    for chunk, following in pairwise(chunks):
        start = chunk[0]["host_time_ns"]
        submissions = tuple(
            _submission(
                recorded.get(row["command_buffer_id"]),
                _dispatches(events.get(row["submission_id"], ()), row["command_buffer_id"], shift),
            )
            for row in chunk
            if row["op"] == "execute"
        )
        found.append(Call(start, following[0]["host_time_ns"] - start, submissions))
    return found


def _in_order(commands: Mapping[int, Command]) -> tuple[Command, ...]:
    if sorted(commands) != list(range(len(commands))):
        raise ProfileError("the profiler recorded a command buffer in part only")
    return tuple(commands[index] for index in range(len(commands)))


def _submission(commands: tuple[Command, ...] | None, dispatches: tuple[Dispatch, ...]) -> Submission:
    if commands is not None:
        return Submission(commands, dispatches)
    if any(it.index != _UNKNOWN for it in dispatches):
        raise ProfileError("the profiler did not record a command buffer that ran")
    ran = sorted(dispatches, key=lambda it: it.start)
    commands = tuple(Command("dispatch", it.kernel) for it in ran)
    return Submission(commands, tuple(replace(it, index=i) for i, it in enumerate(ran)), whole=False)


def _dispatches(rows: Iterable[Mapping[str, Any]], buffer: int, shift: int) -> tuple[Dispatch, ...]:
    found = []
    for row in rows:
        if row["command_buffer_id"] != buffer:
            raise ProfileError(f"a dispatch of {row['key']} ran in a command buffer that was not submitted")
        if "start_host_time_ns" in row:
            start, duration = row["start_host_time_ns"], row["duration_ns"]
        elif row.get("derived_time_available"):
            start, duration = row["start_driver_host_cpu_time_ns"] + shift, row["duration_ns"]
        else:
            raise ProfileError(f"the device's ticks have no unit: no time is known for {row['key']}")
        found.append(Dispatch(row["command_index"], row["key"], start, duration))
    repeated = [
        index for index, number in Counter(it.index for it in found).items() if number > 1 and index != _UNKNOWN
    ]
    if repeated:
        raise ProfileError(f"command {repeated[0]} ran more than once in one submission")
    return tuple(sorted(found, key=lambda it: it.index))
