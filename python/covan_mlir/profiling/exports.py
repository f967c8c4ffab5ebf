"""A profile in the formats of other tools: Chrome trace events, speedscope, collapsed stacks, CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

from covan_mlir.profiling import views
from covan_mlir.profiling.model import By, ProfileData

_COLUMNS = (
    "ns", "own_ns", "estimated_ns", "fraction", "min_ns", "median_ns", "p90_ns", "flops", "bytes", "intensity",
    "of_peak", "of_bandwidth", "sites", "kernel", "actions",
)  # fmt: skip


def chrome_trace(profile: ProfileData) -> dict[str, Any]:
    """The median call: one track for the call, others for its kernels, more than one where kernels run at once.

    Format: Trace Event Format (Chromium), complete events, times in microseconds.
    """
    lineage = profile.lineage
    names = views.lines_of(profile)
    median = profile.statistics().median
    last = max((event.start + event.duration for event in profile.timeline), default=0)
    events: list[dict[str, Any]] = [
        {
            "ph": "M",
            "name": "process_name",
            "pid": 1,
            "tid": 0,
            "args": {"name": f"{profile.target} on {profile.driver}"},
        },
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 0, "args": {"name": "call"}},
        {"ph": "X", "name": "call", "cat": "call", "pid": 1, "tid": 0, "ts": 0, "dur": max(median, last) / 1e3},
    ]
    free: list[int] = []  # when each track's last kernel ends
    for event in profile.timeline:
        track = next((k for k, end in enumerate(free) if end <= event.start), len(free))
        if track == len(free):
            free.append(0)
            events.append(
                {"ph": "M", "name": "thread_name", "pid": 1, "tid": track + 1, "args": {"name": f"kernels {track + 1}"}}
            )
        free[track] = event.start + event.duration
        site = lineage.sites[event.site]
        actions = lineage.why(site)
        events.append(
            {
                "ph": "X",
                "name": ", ".join(action.name for action in actions) or site.kernel,
                "cat": "kernel",
                "pid": 1,
                "tid": track + 1,
                "ts": event.start / 1e3,
                "dur": event.duration / 1e3,
                "args": {
                    "site": site.id,
                    "kernel": site.kernel,
                    "ops": sorted({action.op for action in actions}),
                    "modules": sorted({action.module for action in actions if action.module}),
                    "lines": sorted({names[action.id] for action in actions}),
                },
            }
        )
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def stacks(profile: ProfileData) -> Iterator[tuple[tuple[str, ...], float]]:
    """Module path, action and kernel, outermost first, with nanoseconds per call; they add up to the total."""
    actions = profile.lineage.actions
    for site in profile.times:
        time, kernel = profile.time(site), profile.lineage.sites[site].kernel
        shares = profile.shares(site)
        for i, share in shares.items():
            modules = actions[i].module.split(".") if actions[i].module else []
            yield (views.MODEL, *modules, actions[i].name, kernel), time * share
        if not shares:
            yield (views.NO_ACTION, kernel), time
    yield (views.OUTSIDE,), profile.outside


def speedscope(profile: ProfileData) -> dict[str, Any]:
    """Format: https://www.speedscope.app/file-format-schema.json, one sampled profile with weights."""
    frames: dict[str, int] = {}
    samples, weights = [], []
    for stack, time in stacks(profile):
        samples.append([frames.setdefault(name, len(frames)) for name in stack])
        weights.append(time)
    whole = sum(weights)
    return {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": "covan",
        "name": f"{profile.target} on {profile.driver}",
        "activeProfileIndex": 0,
        "shared": {"frames": [{"name": name} for name in frames]},
        "profiles": [
            {
                "type": "sampled",
                "name": "one call",
                "unit": "nanoseconds",
                "startValue": 0,
                "endValue": whole,
                "samples": samples,
                "weights": weights,
            }
        ],
    }


def collapsed(profile: ProfileData) -> str:
    """Format of Brendan Gregg's FlameGraph: frames with semicolons between, a blank, whole nanoseconds."""
    lines = []
    for stack, time in stacks(profile):
        if round(time) > 0:
            lines.append(f"{';'.join(' '.join(name.replace(';', ':').split()) for name in stack)} {round(time)}\n")
    return "".join(lines)


def csv_text(profile: ProfileData, by: By) -> str:
    """One line per row; times in nanoseconds; columns that a row has no value for are empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([by, *_COLUMNS])
    for row in views.rows(profile, by):
        s, r = row.statistics, row.roofline
        actions = " ".join(profile.lineage.actions[i].name for i in row.actions)
        times = [s.min, s.median, s.p90] if s else [""] * 3
        roof = [r.flops, r.bytes, r.intensity, r.peak, r.bandwidth] if r else [""] * 5
        shares = [row.time, row.own, row.estimated, row.time / profile.total]
        writer.writerow([row.name, *shares, *times, *roof, " ".join(map(str, row.sites)), row.kernel, actions])
    return out.getvalue()
