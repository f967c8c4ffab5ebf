"""How well the tuner searches: small spaces are measured whole, and searches go over what was measured.

    python bench/tuning_search.py --measure spaces.json [--only product] [--seconds 0.12]
    python bench/tuning_search.py --replay spaces.json [--seeds 15]

`--measure` times every listed schedule of some kernels in turns with the predicted one, in an order that has nothing
to do with the schedules; some of them twice, which tells how far times can be trusted; at last the fastest once more
and for longer. What took the least at first may owe that to the machine: a search sees the first time, and is judged
by the last.

`--replay` lets each strategy choose what it measures next, and gives it the time that was measured: real times, many
runs of a search. A schedule's quality is the time of the best of all over its own.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from math import inf
from pathlib import Path
from statistics import fmean, median

import common
import torch
from scipy.stats import spearmanr
from searching import STRATEGIES, Strategy
from torch import nn

import covan_mlir
from covan_mlir import CompileOptions
from covan_mlir.fred import chain_json
from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.measuring.measure import Measurer, Outcome
from covan_mlir.lowering.kernels.measuring.messages import Candidate
from covan_mlir.machine.host import host
from covan_mlir.tuning import scheduler
from covan_mlir.tuning.cost_model import CostModel, Sample
from covan_mlir.tuning.search import Search
from covan_mlir.tuning.space import Point, Space
from covan_mlir.tuning.tasks import tasks_of

BATCH = 12
"""Schedules that are built and timed together."""
CONFIRMED = 24
"""The fastest of a space, which are timed once more."""
LONGER = 5.0
"""Times as long."""
AGAIN = 5
"""Of so many schedules, one is timed twice."""
COUNTS = {"depthwise": 12, "conv3d": 1, "product": 4, "attention": 2}
"""How often a call that is made up runs each of the kernels."""
SLICES = 5
"""For each kernel, until its tuning ends."""
AFTER = (0, 2, 4, 8, 12)
"""Slices after which calls are looked at, when each kernel had one."""
NEAR = (0.05, 0.02)
"""Of the best time, by how much more what is near it takes."""
DRIVER = "local-sync"
"""One thread: the other cores may be at work for others."""


class Product(nn.Module):
    """A batch of products, no factor of which is a weight."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x @ y


class Attention(nn.Module):
    """Some heads."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v)


def kernels() -> dict[str, tuple[nn.Module, tuple[torch.Tensor, ...]]]:
    """Models of one kernel each, and their arguments."""
    return {
        "depthwise": (nn.Conv2d(32, 32, 5, padding=2, groups=32), (torch.randn(1, 32, 56, 56),)),
        "conv3d": (nn.Conv3d(8, 16, 3, padding=1), (torch.randn(1, 8, 8, 14, 14),)),
        "product": (Product(), (torch.randn(4, 48, 64), torch.randn(4, 64, 80))),
        "attention": (Attention(), tuple(torch.randn(1, 4, 128, 32) for _ in range(3))),
    }


@dataclass(frozen=True)
class Row:
    """A schedule.

    Attributes:
        first: its time over that of the predicted one.
        second: the same once more; None: it was not asked again.
        last: the same at last, of the fastest; of others, `first`.
    """

    template: str
    schedule: str
    predicted: float
    first: float
    second: float | None
    last: float

    @property
    def candidate(self) -> Candidate:
        return Candidate(self.template, self.schedule)


@dataclass(frozen=True)
class Table:
    """A space that was measured whole.

    Attributes:
        seconds: of the predicted schedule, which comes first of the rows.
        failures: schedules without a time, and why.
    """

    name: str
    chain: Chain
    seconds: float
    rows: tuple[Row, ...]
    failures: Mapping[str, str] = field(default_factory=dict)

    @property
    def space(self) -> Space:
        return Space(tuple(Point(row.candidate, row.predicted) for row in self.rows))

    @cached_property
    def times(self) -> Mapping[Candidate, Row]:
        return {row.candidate: row for row in self.rows}

    @property
    def best(self) -> float:
        return min(row.last for row in self.rows)

    def to_json(self) -> common.Row:
        return {
            "name": self.name,
            "chain": chain_json.dump(self.chain),
            "seconds": self.seconds,
            "rows": [asdict(row) for row in self.rows],
            "failures": dict(self.failures),
        }

    @classmethod
    def from_json(cls, told: common.Row) -> Table:
        rows = tuple(Row(**row) for row in told["rows"])
        return cls(told["name"], chain_json.load(told["chain"]), told["seconds"], rows, told["failures"])


def measure(name: str, seconds: float) -> Table:
    """All listed schedules of a kernel.

    Args:
        seconds: that each is timed for, about.
    """
    torch.manual_seed(0)
    model, args = kernels()[name]
    with torch.no_grad():
        compiled = covan_mlir.compile_module(model.eval(), args, options=CompileOptions(records=None))
    machine = host()
    target = CpuTarget(machine)
    (task,), _ = tasks_of(compiled.lineage, target)
    points = {point.candidate: point for point in task.space.points}
    default = task.space.default.candidate
    others = [candidate for candidate in points if candidate != default]
    failures: dict[Candidate, str] = {}
    base: list[float] = []
    with Measurer(machine, target.winograd, DRIVER) as measurer:

        def timed(candidates: Sequence[Candidate], each: float) -> Iterator[tuple[Candidate, float]]:
            for begin in range(0, len(candidates), BATCH):
                batch = candidates[begin : begin + BATCH]
                print(f"{name}: {begin} of {len(candidates)}", file=sys.stderr, flush=True)
                for outcome in measurer.measure(task.chain, default, batch, each * len(batch)):
                    if outcome.candidate == default:
                        base.append(outcome.seconds or 0.0)
                    elif outcome.ratio is None:
                        failures[outcome.candidate] = outcome.failure
                    else:
                        yield outcome.candidate, outcome.ratio

        first = {default: 1.0, **dict(timed(random.Random(0).sample(others, len(others)), seconds))}
        known = [candidate for candidate in first if candidate != default]
        second = dict(timed(random.Random(1).sample(known, len(known) // AGAIN), seconds))
        finals = sorted(known, key=first.__getitem__)[:CONFIRMED]
        last = {**first, **dict(timed(finals, LONGER * seconds))}
    order = [candidate for candidate in points if candidate in first]
    rows = tuple(Row(c.template, c.schedule, points[c].predicted, first[c], second.get(c), last[c]) for c in order)
    return Table(name, task.chain, median(base), rows, {str(c): why for c, why in failures.items()})


@dataclass(frozen=True)
class Run:
    """What a search reached.

    Attributes:
        quality: after each measurement, of what it takes to be the best.
    """

    quality: tuple[float, ...]

    def near(self, share: float) -> int:
        """Measurements until what it takes to be the best is slower than the best by no more than a share of it; all of
        them if that never is."""
        return next(
            (n for n, quality in enumerate(self.quality, 1) if quality >= 1.0 / (1.0 + share)), len(self.quality)
        )


def replay(table: Table, strategy: Strategy, seed: int) -> Run:
    """A search over a measured space, until all of it was measured or asked for."""
    rows = table.times
    steps = strategy(table.chain, table.space, table.seconds, seed)
    least, quality = (inf, inf), list[float]()
    candidate: Candidate | None = next(steps)
    while candidate is not None:
        row = rows[candidate]
        least = min(least, (row.first, row.last))
        quality.append(table.best / least[1])
        try:
            candidate = steps.send(row.first)
        except StopIteration:
            candidate = None
    return Run(tuple(quality))


def compare(table: Table, seeds: int) -> list[common.Row]:
    """Each strategy on a space: what a tenth of the measurements reaches, and how many it takes to come near."""
    tenth = max(1, len(table.rows) // 10)
    rows: list[common.Row] = []
    for name, strategy in STRATEGIES.items():
        runs = [replay(table, strategy, seed) for seed in range(seeds)]
        reached = [run.quality[min(tenth, len(run.quality)) - 1] for run in runs]
        needed = {f"to {share:.0%}": fmean(run.near(share) for run in runs) for share in NEAR}
        rows.append(
            {"space": table.name, "strategy": name, "a tenth": median(reached), "least": min(reached), **needed}
        )
    return [
        {**row, **{f"{each} x": rows[0][each] / row[each] for each in (f"to {share:.0%}" for share in NEAR)}}
        for row in rows
    ]


def schedule(tables: Sequence[Table], seed: int, in_turns: bool) -> list[float]:
    """Kernels that a call runs `COUNTS` times, tuned as one by someone who knows no predictions.

    Args:
        in_turns: each has its turn; else the scheduler decides.

    Returns: time of a call, over the least that it can be, after each slice; only once each kernel had one.
    """
    tasks, searches, model = list[scheduler.Progress](), list[Search](), CostModel()
    for table in tables:
        points = random.Random(seed).sample(table.space.points, len(table.rows))
        first = table.times[points[0].candidate]
        space = Space(tuple(replace(point, predicted=1.0) for point in points))
        searches.append(Search(table.chain, space, seed))
        tasks.append(scheduler.Progress(1.0, table.name, [first.first * table.seconds]))
    call = scheduler.Call({n: float(COUNTS[table.name]) for n, table in enumerate(tables)})
    least = sum(COUNTS[table.name] * table.best * table.seconds for table in tables)
    reached = list[float]()
    for slices in range(SLICES * len(tables)):
        number = slices % len(tables) if in_turns else scheduler.next_task(tasks, [call])
        if number is None:
            reached.append(reached[-1])
            continue
        table, search, base = tables[number], searches[number], tasks[number].times[0]
        batch = search.batch(BATCH, model)
        rows = [table.times[candidate].first * table.seconds for candidate in batch]
        outcomes = [Outcome(c, seconds, seconds / base, 5) for c, seconds in zip(batch, rows, strict=True)]
        search.know([Outcome(search.space.default.candidate, base, 1.0, 5), *outcomes])
        tasks[number].times.append(base * search.best[0][1])
        tasks[number].done = not batch
        model.learn([sample for each in searches for sample in each.samples()])
        takes = sum(
            COUNTS[each.name] * each.times[one.best[0][0]].last * each.seconds
            for each, one in zip(tables, searches, strict=True)
        )
        reached.append(takes / least)
    return reached[len(tables) - 1 :]


def compare_schedulers(tables: Sequence[Table], seeds: int) -> list[common.Row]:
    """What the scheduler is worth: times of a call over the least, after some slices."""
    rows: list[common.Row] = []
    for name, in_turns in (("in turns", True), ("scheduler", False)):
        runs = [schedule(tables, seed, in_turns) for seed in range(seeds)]
        after = {f"{n + len(tables)} slices": fmean(run[n] for run in runs) for n in AFTER}
        rows.append({"who decides": name, **after})
    return rows


def correlations(table: Table, splits: int = 5) -> common.Row:
    """Rank correlations with times: of the predictions, of what was learned from four fifths of the schedules for the
    fifth that was held out, and of a second measurement, which nothing can be expected to surpass."""
    points = table.space.by_candidate
    samples = [
        Sample(table.chain, points[row.candidate], row.first * table.seconds, min(1.0, table.best / row.first))
        for row in table.rows
    ]
    last = [row.last for row in table.rows]
    twice = [(row.first, row.second) for row in table.rows if row.second is not None]
    learned: list[float] = []
    for seed in range(splits):
        order = random.Random(seed).sample(range(len(samples)), len(samples))
        cut = len(order) * 4 // 5
        model = CostModel()
        model.learn([samples[n] for n in order[:cut]])
        held = order[cut:]
        expected = model.seconds(table.chain, [samples[n].point for n in held])
        learned.append(rank_correlation(expected, [last[n] for n in held]))
    return {
        "space": table.name,
        "schedules": len(table.rows),
        "without a time": len(table.failures),
        "seconds": table.seconds,
        "best": table.best,
        "predicted": rank_correlation([row.predicted for row in table.rows], last),
        "learned": fmean(learned),
        "second time": rank_correlation([first for first, _ in twice], [second for _, second in twice]),
    }


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """Spearman's."""
    return float(spearmanr(first, second).statistic)


def load(path: Path) -> list[Table]:
    return [Table.from_json(told) for told in json.loads(path.read_text())["rows"]]


def main() -> None:
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", type=Path, metavar="FILE", help="measure spaces whole")
    parser.add_argument("--only", nargs="+", choices=kernels(), default=list(kernels()))
    parser.add_argument("--seconds", type=float, default=0.12, help="for each schedule")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="searches over what was measured")
    parser.add_argument("--seeds", type=int, default=15)
    options = parser.parse_args()
    tables: list[Table] = []
    if options.measure:
        for name in options.only:
            tables.append(measure(name, options.seconds))
            rows = [table.to_json() for table in tables]
            common.write_json(options.measure, "tuning_search", common.machine(), rows)
    if options.replay:
        tables = load(options.replay)
        near = [f"to {share:.0%}" for share in NEAR]
        columns = ["space", "strategy", "a tenth", "least", *near, *(f"{each} x" for each in near)]
        rows = [row for table in tables for row in compare(table, options.seeds)]
        print(
            common.table(
                "Quality after a tenth; measurements to come near, and how many times fewer than random",
                columns,
                rows,
            )
        )
        if len(tables) > 1:
            rows = compare_schedulers(tables, options.seeds)
            columns = ["who decides", *(f"{n + len(tables)} slices" for n in AFTER)]
            print(common.table("Time of a call that runs all of them, over the least", columns, rows))
    columns = ["space", "schedules", "without a time", "seconds", "best", "predicted", "learned", "second time"]
    print(common.table("Rank correlations with times", columns, [correlations(table) for table in tables]))


if __name__ == "__main__":
    main()
