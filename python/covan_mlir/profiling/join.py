"""The exact join of what ran with what the lineage lists: each command buffer is the program's, command by command."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from covan_mlir.errors import ProfileError
from covan_mlir.provenance.model import LineageData
from covan_mlir.runtime.profile_events import Call, Command, Submission

_OTHER_COPY = "Compile the model again, and profile what comes of it"

BufferSites = Sequence[int | None]
"""The sites of a command buffer's commands (`Lineage.commands`)."""


@dataclass(frozen=True)
class Event:
    """One dispatch of a site.

    Attributes:
        start: nanoseconds from the start of its call.
        duration: nanoseconds.
    """

    site: int
    start: int
    duration: int


def join(lineage: LineageData, calls: Sequence[Call]) -> list[list[Event]]:
    """The dispatches of each call, in order of their start, with their sites.

    Raises:
        ProfileError: what ran is not what the lineage lists: number, kind and entry point of the commands of each
            command buffer, and a time for each dispatch.
    """
    rows = [buffer for buffer in lineage.commands if _of_calls(lineage, buffer)]
    return [_call(lineage, rows, call) for call in calls]


def _of_calls(lineage: LineageData, buffer: BufferSites) -> bool:
    return all(lineage.sites[i].phase == "call" for i in buffer if i is not None)


def _call(lineage: LineageData, rows: Sequence[BufferSites], call: Call) -> list[Event]:
    fitting = [
        [
            k
            for k, buffer in enumerate(rows)
            if not _difference(lineage, _seen(lineage, buffer, submission), submission.commands)
        ]
        for submission in call.submissions
    ]
    for submission, buffers in zip(call.submissions, fitting, strict=True):
        if not buffers:
            raise ProfileError(_explain(lineage, rows, submission))
    # Like buffers are told apart by their order, if each runs once.
    often = Counter(tuple(buffers) for buffers in fitting)
    met: Counter[tuple[int, ...]] = Counter()
    events: list[Event] = []
    for submission, buffers in zip(call.submissions, fitting, strict=True):
        key = tuple(buffers)
        if submission.dispatches and len(buffers) > 1 and often[key] != len(buffers):
            raise ProfileError(
                f"{len(buffers)} command buffers of the program run the same kernels, and {often[key]} such ran: "
                "which ones cannot be told"
            )
        buffer = rows[buffers[met[key] % len(buffers)]]
        met[key] += 1
        events += _events(lineage, _seen(lineage, buffer, submission), submission, call.start)
    return sorted(events, key=lambda event: event.start)


def _seen(lineage: LineageData, buffer: BufferSites, submission: Submission) -> BufferSites:
    """What of a command buffer the device tells: all commands, or the dispatches only."""
    return buffer if submission.whole else [i for i in buffer if i is not None and lineage.sites[i].kind == "dispatch"]


def _events(lineage: LineageData, buffer: BufferSites, submission: Submission, origin: int) -> list[Event]:
    expected = {k: site for k, site in enumerate(buffer) if site is not None and lineage.sites[site].kind == "dispatch"}
    if [d.index for d in submission.dispatches] != sorted(expected):
        raise ProfileError(f"{len(expected)} dispatches were submitted, and {len(submission.dispatches)} have a time")
    events = []
    for dispatch in submission.dispatches:
        site = expected[dispatch.index]
        if dispatch.kernel != lineage.sites[site].kernel:
            raise ProfileError(f"site {site} runs {lineage.sites[site].kernel}; {dispatch.kernel} ran in its place")
        events.append(Event(site, dispatch.start - origin, dispatch.duration))
    return events


def _difference(lineage: LineageData, buffer: BufferSites, commands: Sequence[Command]) -> str:
    """Where commands are not those of a buffer, in words; empty: they are."""
    recorded = [command.kernel or command.kind for command in commands]
    for k, (index, command) in enumerate(zip(buffer, commands, strict=False)):
        if index is None:  # a barrier, or work that no site stands for: never a kernel
            if command.kind == "dispatch":
                return f"command {k} is no dispatch in the lineage; {recorded[k]} ran"
            continue
        site = lineage.sites[index]
        if site.kind == "dispatch" and (command.kind, command.kernel) != ("dispatch", site.kernel):
            return f"command {k} is {site.kernel} (site {index}) in the lineage; {recorded[k]} ran"
        if site.kind == "transfer" and command.kind not in ("fill", "copy", "update"):
            return f"command {k} is a {site.kernel} (site {index}) in the lineage; {recorded[k]} ran"
    if len(buffer) != len(commands):
        return f"the lineage lists {len(buffer)} commands; {len(commands)} were recorded"
    return ""


def _explain(lineage: LineageData, rows: Sequence[BufferSites], submission: Submission) -> str:
    if not rows:
        return f"the lineage lists no command buffer; one of {len(submission.commands)} commands ran\n{_OTHER_COPY}"
    near = min(
        (_seen(lineage, buffer, submission) for buffer in rows),
        key=lambda buffer: abs(len(buffer) - len(submission.commands)),
    )
    return f"what ran is not what the lineage lists: {_difference(lineage, near, submission.commands)}\n{_OTHER_COPY}"
