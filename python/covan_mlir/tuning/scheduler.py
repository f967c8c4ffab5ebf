"""Which task gets the next slice of time: the one that the whole is expected to gain most from.

After Zheng et al. 2020, section 6.2. With ``g_i(t)`` the time of task *i* after *t* slices and ``w_i`` how often it
runs, the latency of a call is ``f = sum w_i g_i``, and what one more slice takes off it is estimated as::

    w_i * (ALPHA * (g_i(t - 1) - g_i(t)) + (1 - ALPHA) * (g_i(t) - C_i / (BETA * max V_k)) / t ** 2)

where ``C_i`` is the task's work, and ``V_k`` the speed that like tasks reach: what was gained last, and what is left at
the optimist's. There the paper has the lesser of ``g_i(t) / t`` and what is left; but the best of *t* draws is expected
to improve by a share of ``1 / t ** 2`` of that with one more, and so the sum of all tells when it is enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

ALPHA = 0.2
BETA = 2.0
LEAST_GAIN = 0.01
"""Of the whole: when less than that is expected of all tasks together, it is enough."""
SLICES = 2
"""Of each task, before the formula decides."""


@dataclass
class Progress:
    """A task, to the scheduler.

    Attributes:
        weight: how often it runs.
        work: what it computes, in operations or bytes: whatever like tasks are compared by.
        kind: tasks of one kind are alike.
        times: seconds: before the first slice, and after each.
        done: nothing is left to be tried.
    """

    weight: float
    work: float
    kind: str
    times: list[float] = field(default_factory=list)
    done: bool = False

    @property
    def slices(self) -> int:
        """That it had."""
        return len(self.times) - 1


def gain(task: Progress, tasks: Sequence[Progress]) -> float:
    """Seconds that a further slice is expected to take off the whole; 0 if nothing is left."""
    if task.done or not task.times:
        return 0.0
    now, count = task.times[-1], max(1, task.slices)
    last = task.times[-2] - now if task.slices else 0.0
    fastest = max(other.work / other.times[-1] for other in tasks if other.kind == task.kind and other.times)
    left = max(0.0, now - task.work / (BETA * fastest))
    return task.weight * (ALPHA * last + (1 - ALPHA) * left / count**2)


def next_task(tasks: Sequence[Progress]) -> int | None:
    """The number of the task whose turn it is; None: no more than `LEAST_GAIN` is expected of any."""
    begun = [n for n, task in enumerate(tasks) if not task.done and task.slices < SLICES]
    if begun:
        return min(
            begun, key=lambda n: (tasks[n].slices, -tasks[n].weight * tasks[n].times[-1] if tasks[n].times else 0.0, n)
        )
    total = sum(task.weight * task.times[-1] for task in tasks if task.times)
    gains = [gain(task, tasks) for task in tasks]
    if not gains or sum(gains) < LEAST_GAIN * total:
        return None
    return max(range(len(tasks)), key=lambda n: gains[n])
