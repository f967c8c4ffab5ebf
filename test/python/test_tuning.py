"""Tuning: which schedules are tried, which task gets the time, what is learned."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from dense_chains import convolution, product
from simulated_measurer import SimulatedMeasurer, measured, truth

import covan_mlir
from covan_mlir import CompileOptions, InputError, TargetError
from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.database import Database, Measurement, Setting, Workload
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.measuring.measure import Outcome
from covan_mlir.lowering.kernels.measuring.messages import Candidate
from covan_mlir.lowering.kernels.recorded import Recorded
from covan_mlir.lowering.kernels.select import Selection, select
from covan_mlir.machine.description import PRESETS
from covan_mlir.machine.host import host
from covan_mlir.tuning import cost_model, in_program, scheduler, tune
from covan_mlir.tuning.cost_model import CostModel, Sample
from covan_mlir.tuning.search import Search
from covan_mlir.tuning.session import Load, Session, begin
from covan_mlir.tuning.sketches.derive import sketch_of
from covan_mlir.tuning.space import Space, space_of
from covan_mlir.tuning.tasks import Task, tasks_of
from covan_mlir.tuning.tune import Program, tune_programs

TARGET = CpuTarget(PRESETS["avx512"])
CHAINS = {
    "product": product("ik", "kj", "ij", "k", i=48, j=64, k=96),
    "convolution": convolution(32, 32, (3, 3), (14, 14)),
    "strided": convolution(32, 64, (1, 1), (14, 14), stride=2, pad=0),
}


@cache
def space(chain: Chain) -> Space:
    points = space_of(chain, TARGET)
    assert not isinstance(points, Refusal)
    return points


# Spaces


def test_a_space_begins_with_what_prediction_takes() -> None:
    points = space(CHAINS["product"])
    assert points.default.predicted == min(point.predicted for point in points.points)
    assert len({point.candidate for point in points.points}) == len(points.points) > 50
    assert {point.candidate.template for point in points.points} >= {"product"}


def test_all_algorithms_are_in_it() -> None:
    chain = CHAINS["convolution"]
    chain = replace(chain, inputs=tuple(replace(each, weight=each.name == "f") for each in chain.inputs))
    assert {point.candidate.template for point in space(chain).points} >= {"convolution", "winograd"}


def test_neighbours_differ_in_one_field() -> None:
    points = space(CHAINS["convolution"])
    for point in points.points[:20]:
        for other in points.neighbours(point):
            changed = [name for name, value in point.fields.items() if other.fields[name] != value]
            assert len(changed) == 1
            assert other.candidate.template == point.candidate.template


def test_crossed_points_have_fields_of_both() -> None:
    points = space(CHAINS["convolution"])
    first, second = points.points[0], points.points[9]
    for point in points.crossed(first, second):
        assert all(value in (first.fields[name], second.fields[name]) for name, value in point.fields.items())
    assert points.crossed(first, replace(second, candidate=Candidate("another", second.candidate.schedule))) == []


# Searches


def evolve(points: Space, chain: Chain, measurements: int, seed: int = 0) -> Search:
    search, model = Search(chain, points, seed), CostModel()
    while len(search.ratios) < measurements:
        batch = search.batch(min(12, measurements - len(search.ratios) + 1), model)
        if not batch:
            break
        search.know(measured(points, batch))
        model.learn(search.samples())
    return search


@pytest.mark.parametrize("name", CHAINS)
def test_a_tenth_of_the_measurements_finds_nearly_the_best_of_all(name: str) -> None:
    points = space(CHAINS[name])
    best = min(map(truth, points.points)) / truth(points.default)
    search = evolve(points, CHAINS[name], max(24, len(points.points) // 10))
    assert search.best[0][1] <= 1.05 * best


def test_it_needs_a_third_of_what_chance_needs() -> None:
    chain = CHAINS["convolution"]
    points = space(chain)
    count = max(24, len(points.points) // 20)
    reached = [evolve(points, chain, count, seed).best[0][1] for seed in range(3)]
    generator = random.Random(0)
    by_chance = [min(truth(p) for p in generator.sample(points.points, 3 * count)) for _ in range(31)]
    expected = sorted(by_chance)[15] / truth(points.default)
    assert sorted(reached)[1] <= expected


def test_nothing_is_measured_twice_and_all_of_it_at_last() -> None:
    chain = product("ik", "kj", "ij", "k", i=6, j=8, k=16)
    listed = Space(space(chain).points)
    search, seen = Search(chain, listed), set[Candidate]()
    while batch := search.batch(7, CostModel()):
        assert not seen.intersection(batch)
        assert len(set(batch)) == len(batch) <= 7
        seen.update(batch)
        search.know(measured(listed, batch))
    assert search.exhausted
    assert seen == {point.candidate for point in listed.points[1:]}


def test_what_is_not_listed_is_not_measured_twice_either() -> None:
    chain = product("ik", "kj", "ij", "k", i=6, j=8, k=16)
    points = space(chain)
    search, seen = Search(chain, points), set[Candidate]()
    for _ in range(12):
        batch = search.batch(7, CostModel())
        assert not seen.intersection(batch)
        assert len(set(batch)) == len(batch)
        seen.update(batch)
        search.know(measured(points, batch))
    assert not search.exhausted
    others = seen - {point.candidate for point in points.points}
    assert others
    known = Search(chain, points)  # of a later run
    known.know(measured(points, sorted(others, key=str)))
    assert {candidate for candidate, _ in known.best} >= others


def test_samples_are_whole_programs_of_all_sketches() -> None:
    chain = product("ik", "kj", "ij", "k", i=40, j=48, k=64)
    points, generator = space(chain), random.Random(0)
    samples = [point for _ in range(300) if (point := points.sampled(generator)) is not None]
    of = [sketch_of(point.structure, points.sketches) for point in samples if point.structure is not None]
    counts = [of.count(sketch) for sketch in points.written]
    assert sum(counts) == len(samples) > 250
    assert len(counts) >= 4
    expected = len(of) / len(counts)
    # A multinomial's largest deviation of a share is within four of its standard deviations; few samples are worthless.
    assert all(abs(count - expected) < 4 * expected**0.5 + 300 - len(of) for count in counts)
    assert {point.candidate.template for point in samples} >= {"product", "loop_nest"}


def test_changes_stay_in_the_sketch() -> None:
    points, generator = space(CHAINS["product"]), random.Random(0)
    parents = [point for point in points.points if point.candidate.template == "loop_nest"]
    for parent in parents[:20]:
        changed = points.changed(parent, generator)
        assert changed is not None
        assert sum(changed.fields[name] != value for name, value in parent.fields.items()) == 1
        assert sketch_of(changed.structure, points.sketches) == sketch_of(parent.structure, points.sketches)
        both = points.stages_of(parent, parents[-1], generator)
        assert both is None or all(
            value in (parent.fields[name], parents[-1].fields[name]) for name, value in both.fields.items()
        )
    assert points.changed(points.default, generator) is None  # all of its template's are listed
    assert points.stages_of(points.default, parents[0], generator) is None


def test_a_record_of_what_is_not_listed_is_taken() -> None:
    chain = CHAINS["product"]
    points, generator = space(chain), random.Random(0)
    parent = next(point for point in points.points if point.candidate.template == "loop_nest")
    changed = points.changed(parent, generator)
    assert changed is not None
    assert changed.candidate not in points.by_candidate
    record = Recorded("w", changed.candidate.template, changed.candidate.schedule, 1e-3)
    selection = select(chain, "k", TARGET, recorded=record)
    assert isinstance(selection, Selection)
    assert (selection.measured, selection.schedule) == (1e-3, changed.fields)


def test_what_has_no_time_is_neither_best_nor_learned_from() -> None:
    chain = CHAINS["product"]
    points = space(chain)
    search = Search(chain, points)
    (one, two) = (point.candidate for point in points.points[1:3])
    search.know([Outcome(points.default.candidate, 1e-3, 1.0, 5), Outcome(one, None, None, 0, "it crashed")])
    search.know([Outcome(two, 2e-3, 2.0, 5)])
    assert search.best == [(points.default.candidate, 1.0), (two, 2.0)]
    assert {sample.point.candidate for sample in search.samples()} == {points.default.candidate, two}
    assert one not in search.batch(12, CostModel())


# The cost model


def _rank_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    ranks = [sorted(range(len(values)), key=values.__getitem__) for values in (first, second)]
    places = [[order.index(n) for n in range(len(order))] for order in ranks]
    count = len(first)
    return 1.0 - 6.0 * sum((a - b) ** 2 for a, b in zip(*places, strict=True)) / (count * (count**2 - 1))


def test_it_learns_what_a_machine_likes() -> None:
    chain = CHAINS["convolution"]
    points = [point for point in space(chain).points if point.candidate.template == "convolution"]
    random.Random(1).shuffle(points)
    known, held_out = points[:200], points[200:400]
    model = CostModel()
    model.learn([Sample(chain, point, truth(point), 1.0) for point in known])
    right = [truth(point) for point in held_out]
    learned = _rank_correlation(model.seconds(chain, held_out), right)
    assert learned >= 0.75
    assert learned > _rank_correlation([point.predicted for point in held_out], right)


def test_without_the_library_templates_are_off_by_what_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_model, "_library", lambda: None)
    chain = CHAINS["product"]
    points = space(chain).points[:100]
    model = CostModel()
    assert model.seconds(chain, points) == [point.predicted for point in points]
    model.learn([Sample(chain, point, 3.0 * point.predicted, 1.0) for point in points[:60]])
    name = points[0].candidate.template
    for point, seconds in zip(points, model.seconds(chain, points), strict=True):
        if point.candidate.template == name:
            assert seconds == pytest.approx(3.0 * point.predicted)


# The scheduler


def run(
    tasks: list[scheduler.Progress],
    calls: Sequence[scheduler.Call],
    after: Sequence[Callable[[int], float]],
    slices: int,
) -> list[int]:
    order: list[int] = []
    while len(order) < slices and (number := scheduler.next_task(tasks, calls)) is not None:
        tasks[number].times.append(after[number](tasks[number].slices + 1))
        order.append(number)
    return order


def test_each_task_begins_then_the_heaviest_goes_on() -> None:
    tasks = [scheduler.Progress(1e6, "product flops", [1e-3]) for _ in range(3)]
    call = scheduler.Call({0: 1.0, 1: 20.0, 2: 1.0})
    order = run(tasks, [call], [lambda n: 1e-3 / n] * 3, 12)
    assert set(order[:3]) == set(order[3:6]) == {0, 1, 2}
    assert order[0] == 1
    assert order[6:].count(1) >= 4


def test_a_task_that_others_outrun_has_more_to_gain() -> None:
    slow = scheduler.Progress(1e6, "product flops", [4e-3, 4e-3, 4e-3])
    fast = scheduler.Progress(1e6, "product flops", [1e-3, 1e-3, 1e-3])
    other = scheduler.Progress(1e6, "rows bytes", [4e-3, 4e-3, 4e-3])
    tasks = [slow, fast, other]
    assert scheduler.gain(slow, tasks) > scheduler.gain(other, tasks) > scheduler.gain(fast, tasks)


def test_it_ends_when_little_is_left() -> None:
    tasks = [scheduler.Progress(1e6, "product flops", [1e-3]) for _ in range(3)]
    calls = [scheduler.Call(dict.fromkeys(range(3), 1.0))]
    order = run(tasks, calls, [lambda n: 1e-3] * 3, 1000)
    assert len(order) < 100
    tasks[0].done = tasks[1].done = tasks[2].done = True
    assert scheduler.next_task(tasks, calls) is None
    assert scheduler.next_task([], []) is None


def test_what_several_models_run_counts_for_all_of_them() -> None:
    tasks = [scheduler.Progress(1e6, "product flops", [1e-3, 1e-3, 1e-3]) for _ in range(3)]
    first, second = scheduler.Call({0: 2.0, 1: 3.0}, rest=1e-3), scheduler.Call({1: 1.0, 2: 3.0})
    assert scheduler.objective([first, second], tasks) == pytest.approx(6e-3 + 4e-3)
    assert scheduler.gradient([first, second], tasks) == [2.0, 4.0, 3.0]
    assert scheduler.next_task(tasks, [first, second]) == 1
    assert scheduler.next_task(tasks, [first, second], busy={1}) == 2


def test_a_model_under_its_limit_gets_no_more_time() -> None:
    tasks = [scheduler.Progress(1e6, "product flops", [1e-3]) for _ in range(2)]
    heavy, light = scheduler.Call({0: 9.0}, limit=10e-3), scheduler.Call({1: 1.0}, limit=0.6e-3)
    assert scheduler.objective([heavy, light], tasks) == pytest.approx(10e-3 + 1e-3)
    assert set(run(tasks, [heavy, light], [lambda n: 1e-3 / n] * 2, 50)) == {1}
    assert tasks[1].times[-1] == 0.5e-3, "under its limit, too"


# Sessions


def test_what_others_are_at_work_on_when_the_time_is_up_is_kept(tmp_path: Path) -> None:
    chain, now = CHAINS["product"], [0.0]
    late = SimulatedMeasurer(TARGET.machine, TARGET.winograd, "local-sync")

    class Several:
        slots = 2

        def measure(self, *given: Any) -> list[Outcome]:
            now[0] = 2.0  # while it measures, the time is up
            return late.measure(*given)

    setting = Setting.of("cpu", TARGET.machine)
    with Database(tmp_path / "records") as database:
        tuned = begin(Task("k", "w", chain, 1, "product", space(chain)), database, setting)
        loads, measurer = [Load({0: 1.0}, 1e-3)], Several()
        session = Session([tuned], loads, lambda _: measurer, database, setting, 1.0, lambda _: None, lambda: now[0])
        assert not session.run()
        assert len(database.measurements(setting, "w")) == len(tuned.search.ratios) > 1


# All of it


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(48, 64), torch.nn.Linear(64, 40)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return torch.softmax(self.second(self.first(x).relu()), -1)


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernels are built nor timed; of programs, few are."""
    monkeypatch.setattr(tune, "Measurer", SimulatedMeasurer)
    monkeypatch.setattr(in_program, "RANKS", 1)
    monkeypatch.setattr(in_program, "CALLS", 2)


def undecided(entries: Sequence[in_program.Entry], *_: object) -> tuple[tuple[()], list[in_program.Verdict]]:
    """In the place of the last choice, where that is not what is looked at: nothing is chosen."""
    return (), [in_program.Verdict(1e-3, 1.0, 1.0) for _ in entries]


def counting(step: float) -> Callable[[], float]:
    """A clock that goes on whenever it is looked at: how long things take here decides nothing."""
    ticks = itertools.count()
    return lambda: step * next(ticks)


@pytest.mark.usefixtures("simulated")
def test_a_model_is_tuned_and_compiled_with_what_was_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = Model().eval(), torch.randn(24, 48)
    records = tmp_path / "records.sqlite"
    options = CompileOptions(records=None)
    executable = covan_mlir.compile_module(model, (x,), options=options)
    assert executable.origin is not None
    steps: list[str] = []

    def tuned() -> covan_mlir.Tuning:
        assert executable.origin is not None
        (tuning,) = tune_programs(
            [Program(executable, executable.origin, ((x,), {}))],
            minutes=0.5,
            records=records,
            tell=steps.append,
            clock=counting(4.0),
        )
        return tuning

    tuning = tuned()
    assert {name for row in tuning.rows for name in row.what.split(", ")} >= {"linear", "linear_1", "softmax"}
    assert sum(row.tried for row in tuning.rows) > 0
    assert not any(row.failures for row in tuning.rows)
    assert "linear" in str(tuning)
    assert any("kernels" in step and "left" in step for step in steps)
    assert model.calls.item() == 0, "tuning calls the program, and not the model"
    assert tuning.ratio <= 1.0
    setting = Setting.of("cpu", host())
    with Database(records, "read") as database:
        before = database.measurements(setting)
        chosen = database.chosen(setting)
    assert {row.workload for row in before} >= {record.workload for record in chosen}
    monkeypatch.setattr(tune, "decide", undecided)
    again = tuned()
    with Database(records, "read") as database:
        after = database.measurements(setting)
    assert len(after) >= len(before)
    assert sum(row.tried for row in again.rows) >= sum(row.tried for row in tuning.rows)
    compiled = covan_mlir.compile_module(model, (x,), options=CompileOptions(records=records))
    torch.testing.assert_close(compiled(x), model(x))
    assert compiled.verify()


def test_times_beside_another_kernel_say_nothing_of_this_one(tmp_path: Path) -> None:
    model, x = torch.nn.Linear(48, 64), torch.randn(24, 48)
    executable = covan_mlir.compile_module(model, (x,), options=CompileOptions(records=None))
    assert executable.origin is not None
    ((task, *_), _) = tasks_of(executable.lineage, CpuTarget(host()))
    one, two, three = (point.candidate for point in task.space.points[1:4])
    setting = Setting.of("cpu", host())
    rows = [
        Measurement(task.workload, c.template, c.schedule, seconds, str(against), 1e-3, 5, failure)
        for c, against, seconds, failure in (
            (one, task.space.default.candidate, 2e-3, ""),
            (two, three, 1e-4, ""),
            (three, two, None, "it crashed"),
        )
    ]
    with Database(tmp_path / "records") as database:
        database.add(setting, Workload(task.workload, "{}"), rows)
        search = begin(task, database, setting).search
    assert search.ratios == {one: 2.0, three: None}


@pytest.mark.usefixtures("simulated")
def test_an_exported_program_brings_its_arguments(tmp_path: Path) -> None:
    program = torch.export.export(torch.nn.Linear(48, 64), (torch.randn(8, 48),))
    tuning = covan_mlir.tune(program, minutes=0.01, records=tmp_path / "records")
    assert [row.what for row in tuning.rows] == ["linear"]


@pytest.mark.usefixtures("simulated")
def test_what_models_share_is_one_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune, "decide", undecided)
    models = [torch.nn.Linear(48, 64), torch.nn.Sequential(torch.nn.Linear(48, 64), torch.nn.Linear(64, 40))]
    compiled = [
        covan_mlir.compile_module(m, (torch.randn(24, 48),), options=CompileOptions(records=None)) for m in models
    ]
    programs = [
        Program(each, each.origin, ((torch.randn(24, 48),), {})) for each in compiled if each.origin is not None
    ]
    steps: list[str] = []
    first, second = tune_programs(
        programs, minutes=0.2, records=tmp_path / "records", tell=steps.append, clock=counting(2.0)
    )
    assert ([row.what for row in first.rows], len(second.rows)) == (["linear"], 2)
    assert any("of 2 kernels" in step for step in steps)
    assert first.rows[0].seconds in [row.seconds for row in second.rows]


def test_what_cannot_be_tuned_is_told(tmp_path: Path) -> None:
    model, x = torch.nn.Linear(4, 4), torch.randn(2, 4)
    with pytest.raises(InputError, match="there is no model to tune"):
        covan_mlir.tune_models([])
    with pytest.raises(InputError, match="give one number of seconds for each model"):
        covan_mlir.tune_models([(model, (x,))], limits=[1.0, 2.0])
    with pytest.raises(InputError, match="give a positive number of minutes"):
        covan_mlir.tune(model, (x,), minutes=0)
    executable = covan_mlir.compile_module(model, (x,), target="cpu:znver4")
    assert executable.origin is not None
    with pytest.raises(TargetError, match="cpu:znver4 is not this machine's CPU"):
        tune_programs([Program(executable, executable.origin, ((x,), {}))], minutes=1.0, records=tmp_path / "records")
    bare = covan_mlir.compile_module(model, (x,), provenance=False)
    assert bare.origin is not None
    with pytest.raises(InputError, match="compile with provenance=True"):
        tune_programs([Program(bare, bare.origin, ((x,), {}))], minutes=1.0, records=tmp_path / "records")
    assert not (tmp_path / "records").exists()


def test_sizes_that_are_known_at_run_time_only_are_left_as_they_are(tmp_path: Path) -> None:
    batch = torch.export.Dim("batch", min=2, max=64)
    executable = covan_mlir.compile_module(
        torch.nn.Linear(48, 64),
        (torch.randn(8, 48),),
        dynamic_shapes=({0: batch},),
        options=CompileOptions(records=None),
    )
    assert executable.origin is not None
    program = Program(executable, executable.origin, ((torch.randn(8, 48),), {}))
    (tuning,) = tune_programs([program], minutes=0.1, records=tmp_path / "r", clock=counting(1.0))
    assert tuning.rows == ()
    assert list(tuning.left.values()) == ["it has sizes that are known at run time only"]
    assert "was not tuned: it has sizes that are known at run time only" in str(tuning)
