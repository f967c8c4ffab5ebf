"""Which task gets the next slice of time: the one that the objective is expected to gain most from.

After Zheng et al. 2020, section 6. With ``g_i(t)`` the time of task *i* after *t* slices, and ``w_mi`` how often a call
of model *m* runs it, that call takes ``l_m = r_m + sum_i w_mi g_i``, ``r_m`` being what is not tuned. The objective::

    f = sum_m max(l_m, L_m)

with ``L_m`` the latency that is enough for a model: 0 gives the sum of latencies (the paper's f1); a model under its
limit adds nothing to the gradient, and gets no more time (f2). What one more slice takes off it is estimated as::

    df/dg_i * (ALPHA * (g_i(t - 1) - g_i(t)) + (1 - ALPHA) * (g_i(t) - C_i / (BETA * max V_k)) / t ** 2)

where ``C_i`` is the task's work, and ``V_k`` the speed that like tasks reach: what was gained last, and what is left at
the optimist's. There the paper has the lesser of ``g_i(t) / t`` and what is left; but the best of *t* draws is expected
to improve by a share of ``1 / t ** 2`` of that with one more, and so the sum of all tells when it is enough.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
        work: what it computes, in operations or bytes: whatever like tasks are compared by.
        kind: tasks of one kind are alike.
        times: seconds: before the first slice, and after each.
        done: nothing is left to be tried.
    """

    work: float
    kind: str
    times: list[float] = field(default_factory=list)
    done: bool = False

    @property
    def slices(self) -> int:
        """That it had."""
        return len(self.times) - 1


@dataclass(frozen=True)
class Call:
    """A call of a model, to the scheduler.

    Attributes:
        counts: how often it runs tasks, by their numbers.
        rest: seconds of it that are not tuned.
        limit: seconds that are good enough; 0: none are.
    """

    counts: Mapping[int, float]
    rest: float = 0.0
    limit: float = 0.0

    def seconds(self, tasks: Sequence[Progress]) -> float:
        """That it takes now."""
        return self.rest + sum(count * tasks[n].times[-1] for n, count in self.counts.items() if tasks[n].times)


def objective(calls: Sequence[Call], tasks: Sequence[Progress]) -> float:
    """Seconds: what is to become less."""
    return sum(max(call.seconds(tasks), call.limit) for call in calls)


def gradient(calls: Sequence[Call], tasks: Sequence[Progress]) -> list[float]:
    """By task: seconds that the objective changes by for each second that the task's kernel does."""
    slopes = [0.0] * len(tasks)
    for call in calls:
        if call.seconds(tasks) > call.limit:
            for n, count in call.counts.items():
                slopes[n] += count
    return slopes


def gain(task: Progress, tasks: Sequence[Progress]) -> float:
    """Seconds that a further slice is expected to take off a run of a task's kernel; 0 if nothing is left."""
    if task.done or not task.times:
        return 0.0
    now, count = task.times[-1], max(1, task.slices)
    last = task.times[-2] - now if task.slices else 0.0
    fastest = max(other.work / other.times[-1] for other in tasks if other.kind == task.kind and other.times)
    left = max(0.0, now - task.work / (BETA * fastest))
    return ALPHA * last + (1 - ALPHA) * left / count**2


def next_task(tasks: Sequence[Progress], calls: Sequence[Call], busy: Collection[int] = ()) -> int | None:
    """The number of the task whose turn it is; None: there is none, or no more than `LEAST_GAIN` is expected of all.

    Args:
        calls: of the models, which the objective is made of.
        busy: tasks that somebody is at work on.
    """
    slopes = gradient(calls, tasks)
    begun = [n for n, task in enumerate(tasks) if slopes[n] and not task.done and task.slices < SLICES]
    free = [n for n in begun if n not in busy]
    if free:
        return min(free, key=lambda n: (tasks[n].slices, -slopes[n] * (tasks[n].times or [0.0])[-1], n))
    gains = [slope * gain(task, tasks) for slope, task in zip(slopes, tasks, strict=True)]
    if not begun and sum(gains) < LEAST_GAIN * objective(calls, tasks):
        return None
    idle = [n for n in range(len(tasks)) if n not in busy and gains[n] > 0.0]
    return max(idle, key=lambda n: gains[n], default=None)
