"""Tuning Triton kernels with a simulated GPU: the same search and records as on CPUs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from fred_chains import attention, row_cases

from covan_mlir.errors import TargetError
from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels import taken
from covan_mlir.lowering.kernels.cuda.device import DEVICES
from covan_mlir.lowering.kernels.cuda.kernel import CudaKernel
from covan_mlir.lowering.kernels.cuda.schedule import TileSchedule
from covan_mlir.lowering.kernels.cuda.target import CudaTarget
from covan_mlir.lowering.kernels.database import Database, Setting
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.measuring.measure import MeasuringError
from covan_mlir.lowering.kernels.recorded import Recorded, workload
from covan_mlir.lowering.kernels.select import choices
from covan_mlir.tuning.gpu import CudaGpu, Gpu, SimulatedGpu, tune_chains
from covan_mlir.tuning.space import Space, space_of

pytest.importorskip("triton")
DEVICE = DEVICES["sm_90a"]
TARGET = CudaTarget(DEVICE)
CHAINS = {
    "attention": attention(16, 1024, 1024, 64, "causal", dtype="f16"),
    "softmax": row_cases(2048, 4096)["softmax"][0],
}


def space(chain: Chain) -> Space:
    points = space_of(chain, TARGET)
    assert not isinstance(points, Refusal)
    return points


def counting(step: float = 1.0) -> Callable[[], float]:
    ticks = itertools.count()
    return lambda: step * next(ticks)


def exhaustive(chain: Chain) -> float:
    """The best time of all that are listed over that of what is predicted to be the best, by the model alone."""
    device, points, listed = SimulatedGpu(DEVICE), space(chain), choices(chain, TARGET)
    assert not isinstance(listed, Refusal)
    times = {}
    for point in points.points:
        _, schedule = listed.scheduled(point.candidate.template, point.fields)
        assert isinstance(schedule, TileSchedule)
        kernel: Any = None
        try:
            device.timed(chain, kernel, schedule)
        except MemoryError:
            continue
        times[point.candidate] = device.seconds(chain, schedule)
    return min(times.values()) / times[points.default.candidate]


def test_the_best_of_a_device_is_reached_and_kept(tmp_path: Path) -> None:
    with Database(tmp_path / "records") as database:
        best = tune_chains(CHAINS, TARGET, SimulatedGpu(DEVICE), database, 120.0, lambda step: None, counting())
        for name, chain in CHAINS.items():
            assert best[name].ratio <= 1.05 * exhaustive(chain), name
        setting = Setting.of_gpu(DEVICE, "simulated")
        chosen = {record.workload for record in database.chosen(setting)}
        assert chosen == {workload(chain) for name, chain in CHAINS.items() if best[name].ratio < 0.98}
        assert not database.chosen(Setting.of_gpu(DEVICE)), "no compilation takes what no device ran"
        measured = len(database.measurements(setting))
        again = tune_chains(CHAINS, TARGET, SimulatedGpu(DEVICE), database, 120.0, lambda step: None, counting())
        assert all(again[name].tried >= best[name].tried for name in CHAINS)
        assert len(database.measurements(setting)) >= measured


def test_what_a_device_cannot_run_has_no_time_and_ends_nothing() -> None:
    class Failing(SimulatedGpu):
        def timed(self, chain: Chain, kernel: CudaKernel, schedule: TileSchedule) -> tuple[Callable[[], float], str]:
            if schedule.num_warps == 8:
                raise RuntimeError("an illegal memory access")
            call, _ = super().timed(chain, kernel, schedule)
            return call, "o is wrong at (0, 0)" if schedule.num_stages == 2 else ""

    chain, reasons = CHAINS["attention"], set()
    points = space(chain)
    good = next(p for p in points.points if p.fields["num_warps"] == 4 and p.fields["num_stages"] == 3)
    others = [point.candidate for point in points.points[:40]]
    for outcome in Gpu(TARGET, Failing(DEVICE)).measure(chain, good.candidate, others, 1e-3):
        fields = points.by_candidate[outcome.candidate].fields
        bad = fields["num_warps"] == 8 or fields["num_stages"] == 2 or "shared memory" in outcome.failure
        assert (outcome.seconds is None) == bad
        reasons.add(outcome.failure.split(":")[0])
    assert {"RuntimeError", "o is wrong at (0, 0)"} <= reasons
    bad_one = next(p for p in points.points if p.fields["num_warps"] == 8)
    with pytest.raises(MeasuringError, match="the predicted kernel cannot be timed: RuntimeError"):
        Gpu(TARGET, Failing(DEVICE)).measure(chain, bad_one.candidate, others, 1e-3)


def test_records_of_a_gpu_are_taken_for_its_architecture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = Recorded("w", "tiles", "{}", 1e-3)
    with Database(tmp_path / "records") as database:
        database.choose(Setting.of_gpu(DEVICE), [record])
    assert taken.schedules_for_gpu(tmp_path / "records", DEVICE) == (record,)
    assert taken.schedules_for_gpu(tmp_path / "records", DEVICES["sm_80"]) == ()
    assert taken.schedules_for_gpu(None, DEVICE) == ()
    monkeypatch.setenv("COVAN_RECORDS", str(tmp_path / "records"))
    assert taken.schedules_for_gpu("", DEVICE) == (record,)
    monkeypatch.setenv("COVAN_RECORDS", "off")
    assert taken.schedules_for_gpu("", DEVICE) == ()


def test_there_must_be_the_gpu_that_kernels_are_for() -> None:
    if torch.cuda.is_available():
        with pytest.raises(TargetError, match="stands for"):
            CudaGpu(replace(DEVICE, multiprocessors=1))
    else:
        with pytest.raises(TargetError, match="there is no CUDA device here"):
            CudaGpu(DEVICE)
