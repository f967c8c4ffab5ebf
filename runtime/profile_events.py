"""What IREE's profiler recorded, as data: commands of command buffers, and the times of dispatches, call by call.

Reads the lines that ``iree-profile export --format=ireeperf-jsonl`` writes. Host times are those of the runtime's
monotonic clock; device times are moved onto it with the clock samples that the device gives.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from covan_mlir.errors import ProfileError
from covan_mlir.support.typed_json import JsonObject, SchemaError, decode

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
class TimedDispatch:
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
    dispatches: tuple[TimedDispatch, ...]
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


class _Line(JsonObject, frozen=True, forbid_unknown_fields=False):
    """What all lines of the export have, and what some have besides: the profiler's own names."""

    record_type: str
    op: str | None = "dispatch"


class _CommandOperation(JsonObject, frozen=True, forbid_unknown_fields=False):
    op: str
    command_buffer_id: int
    command_index: int
    key: str | None = None


class _QueueEvent(JsonObject, frozen=True, forbid_unknown_fields=False):
    op: str
    submission_id: int
    command_buffer_id: int
    host_time_ns: int


class _DispatchEvent(JsonObject, frozen=True, forbid_unknown_fields=False):
    submission_id: int
    command_buffer_id: int
    command_index: int
    key: str
    valid: bool
    duration_ns: int | None = None
    start_host_time_ns: int | None = None
    start_driver_host_cpu_time_ns: int | None = None
    derived_time_available: bool = False


class _ClockCorrelation(JsonObject, frozen=True, forbid_unknown_fields=False):
    host_time_begin_ns: int
    host_time_end_ns: int
    host_cpu_timestamp_ns: int


def calls(lines: Iterable[str], count: int) -> list[Call]:
    """The calls of a recording, in order. The last is left out: nothing tells where it ends.

    Args:
        lines: JSON objects.
        count: how many times the program was called, always with the same arguments.

    Raises:
        ProfileError: the lines are not those of ``count`` like calls, or not the profiler's.
    """
    recording = _Recording()
    try:
        for line in lines:
            recording.add(line)
    except SchemaError as error:
        raise ProfileError(f"the recording cannot be read: {error}") from error
    return recording.calls(count)


class _Recording:
    """The lines of an export, as far as they were read."""

    def __init__(self) -> None:
        self._buffers: dict[int, dict[int, Command]] = {}
        self._queue: list[_QueueEvent] = []
        self._events: dict[int, list[_DispatchEvent]] = {}
        self._offsets: list[float] = []

    def add(self, text: str) -> None:
        """Raises SchemaError for a line that is not as it must be, ProfileError for one that says that something is
        missing."""
        line = decode(text, _Line)
        match line.record_type:
            case "command_operation":
                operation = decode(text, _CommandOperation, line.record_type)
                command = Command(operation.op, (operation.key or "") if operation.op == "dispatch" else "")
                self._buffers.setdefault(operation.command_buffer_id, {})[operation.command_index] = command
            case "queue_event":
                self._queue.append(decode(text, _QueueEvent, line.record_type))
            case "host_execution_event" | "dispatch_event" if line.op == "dispatch":
                event = decode(text, _DispatchEvent, line.record_type)
                if not event.valid:
                    raise ProfileError(f"the device gave no time for a dispatch of {event.key}")
                self._events.setdefault(event.submission_id, []).append(event)
            case "clock_correlation":
                clock = decode(text, _ClockCorrelation, line.record_type)
                middle = (clock.host_time_begin_ns + clock.host_time_end_ns) / 2
                self._offsets.append(middle - clock.host_cpu_timestamp_ns)
            case "dropped_records" | "truncation":
                raise ProfileError("the profiler lost events: repeat less often")

    def calls(self, count: int) -> list[Call]:
        """Raises ProfileError: this is not a recording of ``count`` like calls."""
        shift = round(sum(self._offsets) / len(self._offsets)) if self._offsets else 0
        recorded = {buffer: _in_order(commands) for buffer, commands in self._buffers.items()}
        queue = sorted(self._queue, key=lambda event: event.host_time_ns)
        per_call, rest = divmod(len(queue), count)
        if not queue:
            raise ProfileError("a call gives the device no work: there is nothing to profile")
        chunks = [queue[i : i + per_call] for i in range(0, len(queue), per_call or 1)]
        if rest or any([event.op for event in chunk] != [event.op for event in chunks[0]] for chunk in chunks):
            raise ProfileError(
                "the program does not give the device the same work with every call: its calls cannot be told apart"
            )
        return [
            Call(
                chunk[0].host_time_ns,
                following[0].host_time_ns - chunk[0].host_time_ns,
                tuple(
                    _submission(
                        recorded.get(event.command_buffer_id),
                        _dispatches(self._events.get(event.submission_id, ()), event.command_buffer_id, shift),
                    )
                    for event in chunk
                    if event.op == "execute"
                ),
            )
            for chunk, following in pairwise(chunks)
        ]


def _in_order(commands: Mapping[int, Command]) -> tuple[Command, ...]:
    if sorted(commands) != list(range(len(commands))):
        raise ProfileError("the profiler recorded a command buffer in part only")
    return tuple(commands[index] for index in range(len(commands)))


def _submission(commands: tuple[Command, ...] | None, dispatches: tuple[TimedDispatch, ...]) -> Submission:
    if commands is not None:
        return Submission(commands, dispatches)
    if any(dispatch.index != _UNKNOWN for dispatch in dispatches):
        raise ProfileError("the profiler did not record a command buffer that ran")
    ran = sorted(dispatches, key=lambda dispatch: dispatch.start)
    commands = tuple(Command("dispatch", dispatch.kernel) for dispatch in ran)
    return Submission(commands, tuple(replace(dispatch, index=i) for i, dispatch in enumerate(ran)), whole=False)


def _dispatches(events: Sequence[_DispatchEvent], buffer: int, shift: int) -> tuple[TimedDispatch, ...]:
    dispatches = []
    for event in events:
        if event.command_buffer_id != buffer:
            raise ProfileError(f"a dispatch of {event.key} ran in a command buffer that was not submitted")
        start = event.start_host_time_ns
        if event.derived_time_available and event.start_driver_host_cpu_time_ns is not None:
            start = event.start_driver_host_cpu_time_ns + shift
        if start is None or event.duration_ns is None:
            raise ProfileError(f"the device's ticks have no unit: no time is known for {event.key}")
        dispatches.append(TimedDispatch(event.command_index, event.key, start, event.duration_ns))
    numbers = Counter(dispatch.index for dispatch in dispatches)
    repeated = [index for index, number in numbers.items() if number > 1 and index != _UNKNOWN]
    if repeated:
        raise ProfileError(f"command {repeated[0]} ran more than once in one submission")
    return tuple(sorted(dispatches, key=lambda dispatch: dispatch.index))
