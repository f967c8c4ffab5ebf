"""What became of tuning a program, as data and as a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A kernel.

    Attributes:
        what: the actions that it performs, of one place where it runs.
        count: how often a call runs it.
        default: the template that prediction takes.
        seconds: of the kernel that prediction takes, alone; None: it was not measured.
        tried: schedules that were timed.
        failures: schedules that have no time: refused, wrong, crashed.
        points: schedules that there are.
        best: time of the best one, alone, over that of the default.
        chosen: template and schedule that compilations take from now on; empty: what prediction takes.
        flops, moved: operations, and bytes that are read and written at least.
        curve: of this run, after each batch: seconds since its beginning, schedules that were tried by then, in all
            runs, and the best one's time over that of the default.
    """

    kernel: str
    what: str
    count: int
    default: str
    seconds: float | None
    tried: int
    failures: int
    points: int
    best: float
    chosen: str
    flops: float = 0.0
    moved: float = 0.0
    curve: tuple[tuple[float, int, float], ...] = ()


@dataclass(frozen=True)
class Tuning:
    """What became of tuning a program.

    Attributes:
        rows: its kernels.
        left: kernels that cannot be tuned, and why.
        seconds: of a call of the program without records.
        ratio: time of a call with what was chosen over that: measured in turns; 1 where nothing is.
        tried_ratio: of the program that was tried at last, also where it was not faster.
        enough: it ended since little more was to be gained, and not for lack of time.
        records: the file that knows it.
        peak, bandwidth: of the machine's roofline: operations of float32, and bytes of memory, a second, by the
            threads that the program runs on.
    """

    rows: tuple[Row, ...]
    left: Mapping[str, str]
    seconds: float
    ratio: float
    tried_ratio: float
    enough: bool
    records: str
    peak: float = 0.0
    bandwidth: float = 0.0

    def __str__(self) -> str:
        took = f"a call takes {self.seconds * 1e3:.3f} ms"
        head = f"{took} as predicted, {1 / self.ratio:.3f} times as fast with what was measured"
        if self.ratio == 1.0:
            head = f"{took}; nothing that was tried makes it faster"
        lines = [head, f"{sum(row.tried for row in self.rows)} schedules of {len(self.rows)} kernels were timed", ""]
        lines.append("     ms  runs  alone  tried/all  kernel")
        order = sorted(self.rows, key=lambda row: -(row.seconds or 0.0) * row.count)
        for row in order:
            took = f"{row.seconds * 1e3:7.3f}" if row.seconds is not None else "      -"
            gain = f"{1 / row.best:5.2f}{'' if row.chosen else ' '}"
            mark = "*" if row.chosen else ""
            lines.append(f"{took} {row.count:5} {gain}{mark} {row.tried:5}/{row.points:<5} {row.what}")
        lines += ["", "* taken by compilations from now on: it was faster inside of the program, too"]
        lines += [f"{kernel} was not tuned: {why}" for kernel, why in self.left.items()]
        return "\n".join(lines) + "\n"
