"""Ways to search, beside each other: on small spaces of which every point was measured once, so that all see the same.

    python bench/tuning_search.py --measure table.json [--points 100]     measures each schedule of three kernels
    python bench/tuning_search.py --replay table.json [--seeds 20] [--json search.json]

Replays need no machine: a search is told what stands in the table. Ways: schedules at random; Q-learning, tabular, over
which field of a schedule is changed to what; evolution whose children are taken at random; evolution with the cost
model. Figures: measurements until within 5 % of the space's best, as the median over seeds (those that get there last
count as all points), and the best ratio after a tenth of the space. Then the scheduler: time by the gradient and in
turns, for a program that runs the kernels 1, 4 and 16 times.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import fmean, median

import common

from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.measuring.measure import Measurer, Outcome
from covan_mlir.lowering.kernels.measuring.messages import Candidate
from covan_mlir.machine.host import host
from covan_mlir.tuning import scheduler
from covan_mlir.tuning.cost_model import CostModel
from covan_mlir.tuning.search import Search
from covan_mlir.tuning.space import Point, Space, space_of

sys.path.insert(0, str(Path(__file__).parent.parent / "test" / "python"))
from dense_chains import convolution, product  # of the tests, which are no package

CLOSE = 1.05
BATCH = 6
COUNTS = (1.0, 4.0, 16.0)
ALPHA, DISCOUNT, EXPLORED = 0.5, 0.5, 0.2
"""Of Q-learning: the learning rate, what later rewards count, and the share of random moves."""


def chains() -> dict[str, Chain]:
    """Kernels with small spaces."""
    return {
        "product 40x64x48": product("ik", "kj", "ij", "k", i=40, j=48, k=64),
        "product 7x320x200": product("ik", "kj", "ij", "k", i=7, j=200, k=320),
        "convolution 16-32 3x3 at 14": convolution(16, 32, (3, 3), (14, 14)),
    }


def spaces(count: int) -> dict[str, tuple[Chain, Space]]:
    """Of each kernel, so many of the listed points: the one that is predicted to be the best, and others at random."""
    target, table = CpuTarget(host()), {}
    for name, chain in chains().items():
        space = space_of(chain, target)
        assert not isinstance(space, Refusal), space
        rest = list(space.points[1:])
        points = (space.default, *random.Random(0).sample(rest, min(count - 1, len(rest))))
        table[name] = (chain, Space(points))
    return table


def measure(path: Path, count: int) -> None:
    """Measures every point of the spaces; those without a time get none."""
    machine, rows = host(), []
    with Measurer(machine, CpuTarget(machine).winograd, "local-sync") as measurer:
        for name, (chain, space) in spaces(count).items():
            default, others = space.default.candidate, [point.candidate for point in space.points[1:]]
            ratios: list[list[object]] = [[default.template, default.schedule, 1.0]]
            for start in range(0, len(others), 12):
                batch = others[start : start + 12]
                outcomes = measurer.measure(chain, default, batch, 0.1 * len(batch))
                ratios += [[o.candidate.template, o.candidate.schedule, o.ratio] for o in outcomes[1:]]
            rows.append({"name": name, "ratios": ratios})
            print(f"{name}: {len(ratios)} schedules", file=sys.stderr, flush=True)
            path.write_text(json.dumps(rows))


Table = dict[Candidate, float | None]
Way = Callable[[Chain, Space, Table, int], Iterator[Candidate]]
"""Gives candidates, one after the other, none twice, and may look up those that it gave."""


def at_random(chain: Chain, space: Space, table: Table, seed: int) -> Iterator[Candidate]:
    """In any order."""
    yield from (p.candidate for p in random.Random(seed).sample(space.points[1:], len(space.points) - 1))


class Unknowing(CostModel):
    """Knows nothing: what comes first of some points is chance."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)

    def seconds(self, chain: Chain, points: Sequence[Point]) -> list[float]:
        """Random numbers."""
        return [self._random.random() for _ in points]


def evolution(learns: bool) -> Way:
    """As the tuner does, with what the model learned or by chance."""

    def way(chain: Chain, space: Space, table: Table, seed: int) -> Iterator[Candidate]:
        search, model = Search(chain, space, seed), CostModel() if learns else Unknowing(seed)
        while batch := search.batch(BATCH, model):
            yield from batch
            outcomes = [Outcome(c, table[c], table[c], 5, "" if table[c] else "it has none") for c in batch]
            search.know([Outcome(space.default.candidate, 1.0, 1.0, 5), *outcomes])
            if learns:
                model.learn(search.samples())

    return way


def q_learning(chain: Chain, space: Space, table: Table, seed: int) -> Iterator[Candidate]:
    """A walk over the space: a state is a schedule, an action changes one field to a value, its reward is the logarithm
    of what it gained; Q is kept by field and value, the walk begins anew at the best where nothing new is near."""
    generator, value = random.Random(seed), defaultdict[tuple[str, str], float](float)
    given, here, best = {space.default.candidate}, space.default, space.default
    while len(given) < len(space.points):
        near = [point for point in space.neighbours(here) if point.candidate not in given]
        if not near:
            here = best if here != best else generator.choice([p for p in space.points if p.candidate not in given])
            if here.candidate in given and not any(p.candidate not in given for p in space.neighbours(here)):
                here = generator.choice([p for p in space.points if p.candidate not in given])
            if here.candidate in given:
                continue
            near = [here]
        moves = {point.candidate: _move(here, point) for point in near}
        explore = generator.random() < EXPLORED
        point = generator.choice(near) if explore else max(near, key=lambda p: (value[moves[p.candidate]], p.predicted))
        given.add(point.candidate)
        yield point.candidate
        before, after = table[here.candidate] or 4.0, table[point.candidate] or 4.0
        following = max((value[_move(point, other)] for other in space.neighbours(point)), default=0.0)
        move = moves[point.candidate]
        value[move] += ALPHA * (before / after - 1.0 + DISCOUNT * following - value[move])
        here = point if after <= before or generator.random() < EXPLORED else here
        best = min((best, point), key=lambda p: table[p.candidate] or 4.0)


def _move(first: Point, second: Point) -> tuple[str, str]:
    for name, new in second.fields.items():
        if first.fields.get(name) != new:
            return name, str(new)
    return "", ""


WAYS: dict[str, Way] = {
    "random": at_random,
    "Q-learning": q_learning,
    "evolution without model": evolution(False),
    "evolution with model": evolution(True),
}


def replay(path: Path, seeds: int) -> list[common.Row]:
    """All ways on all spaces."""
    rows: list[common.Row] = []
    for name, (chain, space, table) in _tables(path).items():
        best, tenth = min(r for r in table.values() if r), max(1, len(table) // 10)
        for way, search in WAYS.items():
            needed, reached = [], []
            for seed in range(seeds):
                least, count = 1.0, 0
                curve: list[float] = []
                for candidate in search(chain, space, table, seed):
                    least = min(least, table[candidate] or least)
                    curve.append(least)
                count = next((n for n, ratio in enumerate(curve, 1) if ratio <= CLOSE * best), len(table))
                needed.append(count if best * CLOSE < 1.0 else 0)
                reached.append(curve[tenth - 1] / best)
            rows.append(
                {
                    "space": f"{name} ({len(table)})",
                    "best": best,
                    "way": way,
                    "measurements": median(needed),
                    "after a tenth": fmean(reached),
                }
            )
    return rows


def _tables(path: Path) -> dict[str, tuple[Chain, Space, Table]]:
    target, tables = CpuTarget(host()), {}
    for row in json.loads(path.read_text()):
        chain = chains()[row["name"]]
        whole = space_of(chain, target)
        assert not isinstance(whole, Refusal)
        table = {Candidate(template, schedule): ratio for template, schedule, ratio in row["ratios"]}
        points = [whole.point(candidate) for candidate in table]
        tables[row["name"]] = (chain, Space(tuple(point for point in points if point is not None)), table)
    return tables


def scheduled(path: Path, seeds: int) -> list[common.Row]:
    """What a program gains, by slices of time: for the kernel that the whole gains most from, and for each in turn."""
    tables, rows = list(_tables(path).values()), []
    calls = [scheduler.Call(dict(enumerate(COUNTS)))]
    for way in ("gradient", "in turns"):
        after: dict[int, list[float]] = defaultdict(list)
        for seed in range(seeds):
            walks = [evolution(True)(*each, seed) for each in tables]
            work = [float(chain.contraction_flops) for chain, _, _ in tables]
            # What the default takes is not in the table: like tasks reach like speeds.
            tasks = [scheduler.Progress(w, "flops", [w / 1e10]) for w in work]
            for number in range(24):
                turn = scheduler.next_task(tasks, calls) if way == "gradient" else number % len(tasks)
                if turn is not None:
                    batch = [c for _, c in zip(range(BATCH), walks[turn], strict=False)]
                    least = min((r for c in batch if (r := tables[turn][2][c])), default=1.0)
                    task = tasks[turn]
                    task.done = not batch
                    task.times.append(min(task.times[-1], task.times[0] * least))
                whole = scheduler.objective(calls, tasks)
                first = sum(count * task.times[0] for count, task in zip(COUNTS, tasks, strict=True))
                after[number + 1].append(whole / first)
        rows.append({"scheduler": way, **{f"after {n}": fmean(after[n]) for n in (6, 9, 12, 24)}})
    return rows


def main() -> None:
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measure", type=Path, metavar="TABLE")
    parser.add_argument("--points", type=int, default=100, help="of each space")
    parser.add_argument("--replay", type=Path, metavar="TABLE")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure, options.points)
    if options.replay:
        rows = replay(options.replay, options.seeds)
        print(common.table("Ways to search", ["space", "best", "way", "measurements", "after a tenth"], rows))
        turns = scheduled(options.replay, options.seeds)
        print(common.table("Time over what it was, by slices", list(turns[0]), turns))
        if options.json:
            common.write_json(options.json, "tuning_search", common.machine(), [*rows, *turns])


if __name__ == "__main__":
    main()
