"""Measuring on several workers: one is killed, one is slow, one is wrong, and one is another machine."""

from __future__ import annotations

import asyncio
import hashlib
import math
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from dense_chains import product

from covan_mlir import InputError
from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.database import Setting
from covan_mlir.lowering.kernels.measuring.measure import MeasuringError, Outcome
from covan_mlir.lowering.kernels.measuring.messages import Candidate
from covan_mlir.machine.description import PRESETS
from covan_mlir.tuning import remote
from covan_mlir.tuning.remote import Answer, Batch, Remote, Workers

distributed = pytest.importorskip("distributed")
SETTING = Setting("cpu", "this machine", "these versions")
MACHINE = PRESETS["avx512"]
CHAIN = product("ik", "kj", "ij", "k", i=6, j=8, k=16)
DEFAULT = Candidate("t", "default")


def right(candidate: Candidate) -> float:
    """The time of a schedule over that of the default."""
    if candidate == DEFAULT:
        return 1.0
    return 0.5 + int(hashlib.sha256(candidate.schedule.encode()).hexdigest()[:4], 16) / 0xFFFF


class Fake:
    """What measures in a worker, with one behaviour or another."""

    def __init__(self, behaviour: str) -> None:
        self.behaviour = behaviour

    def measure(self, chain: Chain, reference: Candidate, candidates: Sequence[Candidate], _: float) -> list[Outcome]:
        if self.behaviour == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.behaviour == "slow":
            time.sleep(30.0)
        if self.behaviour == "broken":
            raise MeasuringError("the predicted kernel is wrong")
        off = 0.3 if self.behaviour == "wrong" else 1.0
        ratios = {c: right(c) * (1.0 if c == reference else off) for c in (reference, *candidates)}
        return [Outcome(c, 1e-3 * ratio, ratio, 5) for c, ratio in ratios.items()]


def _serve(address: str, behaviour: str, setting: Setting) -> None:
    remote.measurer_of = lambda *how: Fake(behaviour)  # type: ignore[assignment]  # it takes no part in a cache here
    asyncio.run(remote.serve(address, setting))


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of a scheduler."""
    with distributed.LocalCluster(
        n_workers=0, processes=False, protocol="tcp", dashboard_address=None, silence_logs=50
    ) as cluster:
        yield cluster.scheduler_address


@pytest.fixture
def workers(address: str) -> Iterator[Callable[..., Workers]]:
    """Starts a worker for each behaviour that is named; "other" is of another machine."""
    processes: list[Any] = []
    clients: list[Workers] = []

    def start(*behaviours: str) -> Workers:
        context = multiprocessing.get_context("spawn")
        for behaviour in behaviours:
            setting = replace(SETTING, machine="another") if behaviour == "other" else SETTING
            processes.append(context.Process(target=_serve, args=(address, behaviour, setting), daemon=True))
            processes[-1].start()
        with distributed.Client(address, set_as_default=False) as client:
            client.wait_for_workers(len(behaviours), timeout=60)
        clients.append(Workers.of(address, SETTING))
        return clients[-1]

    yield start
    for client in clients:
        client.client.close()
    for process in processes:
        process.kill()
        process.join()
    with distributed.Client(address, set_as_default=False) as client:
        end = time.monotonic() + 60
        while client.scheduler_info(n_workers=-1)["workers"] and time.monotonic() < end:
            time.sleep(0.05)


def batch(number: int) -> list[Candidate]:
    return [Candidate("t", f"{number} {each}") for each in range(6)]


def ratios(outcomes: Sequence[Outcome]) -> dict[Candidate, float | None]:
    return {outcome.candidate: outcome.ratio for outcome in outcomes}


def test_what_is_killed_slow_or_wrong_changes_no_time(
    workers: Callable[..., Workers], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "PATIENCE", 2.0)
    several = workers("good", "good", "good", "killed", "slow", "wrong", "other")
    measurer = Remote(several, MACHINE, 4, "local-sync")
    assert measurer.slots == 6, "another machine gets no work"
    with ThreadPoolExecutor(measurer.slots) as threads:  # so that each has some work
        answers = list(threads.map(lambda n: measurer.measure(CHAIN, DEFAULT, batch(n), 0.1), range(12)))
    for number, outcomes in enumerate(answers):
        assert ratios(outcomes) == {c: right(c) for c in (DEFAULT, *batch(number))}
    assert len(several.distrusted) == 1, "nobody but the one who is wrong"
    assert all("others do not find its time" in why for why in several.distrusted.values())
    assert measurer.slots == 4, "one is killed, one is wrong"


def test_a_worker_that_cannot_measure_is_left_to_itself(workers: Callable[..., Workers]) -> None:
    several = workers("broken")
    measurer = Remote(several, MACHINE, 4, "local-sync")
    with pytest.raises(MeasuringError, match=r"there is no worker left .*the predicted kernel is wrong"):
        measurer.measure(CHAIN, DEFAULT, batch(0), 0.1)


def test_no_worker_of_the_kind_is_told(workers: Callable[..., Workers], address: str) -> None:
    with pytest.raises(InputError, match="none of 1 workers is a machine like this one"):
        workers("other")
    with pytest.raises(InputError, match="start one with 'dask scheduler'"):
        Workers.of("no://address", SETTING)


@pytest.mark.parametrize(
    ("outcomes", "said"),
    [
        ([], "what it was not asked"),
        ([Outcome(DEFAULT, 1.0, 1.0, 5), Outcome(Candidate("t", "another"), 1.0, 1.0, 5)], "what it was not asked"),
        ([Outcome(DEFAULT, 1.0, 1.0, 5), Outcome(Candidate("t", "a"), math.nan, 1.0, 5)], "no time of t a"),
        ([Outcome(DEFAULT, None, None, 0, "it crashed"), Outcome(Candidate("t", "a"), 1.0, 1.0, 5)], "it crashed"),
        ([Outcome(DEFAULT, 1.0, 1.0, 5), Outcome(Candidate("t", "a"), None, None, 0, "it is refused")], ""),
    ],
)
def test_answers_that_make_no_sense_are_none(outcomes: list[Outcome], said: str) -> None:
    asked = Batch("{}", DEFAULT, (Candidate("t", "a"),), 1.0, MACHINE, 4, "local-sync", ())
    off = Answer("tcp://a", tuple(outcomes)).off(asked)
    assert said in off
    assert bool(said) == bool(off)
