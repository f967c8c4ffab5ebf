"""Measuring kernels: what is right, turns, and processes that survive what they measure."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dense_chains import convolution, product
from fred_chains import attention, row_cases
from hypothesis import given
from hypothesis import strategies as st
from plain_chains import Writer

from covan_mlir.fred.chain import Axis, Chain
from covan_mlir.fred.expression import Apply
from covan_mlir.fred.interpret import interpret
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.measuring import measure, reference, timing
from covan_mlir.lowering.kernels.measuring.measure import Measurer, MeasuringError
from covan_mlir.lowering.kernels.measuring.messages import Candidate
from covan_mlir.lowering.kernels.recorded import compact
from covan_mlir.lowering.kernels.select import choices
from covan_mlir.machine.host import host

MACHINE = replace(host(), cores=2)
FAULTS = str(Path(__file__).parent / "measured_templates.py")
CHAIN = product("ik", "kj", "ij", "k", i=20, j=24, k=32)
CHAINS = {
    "product": CHAIN,
    "halves": product("ik", "kj", "ij", "k", dtype="bf16", i=20, j=24, k=32),
    "convolution": convolution(6, 9, (3, 3), (8, 8)),
    "attention": attention(2, 12, 12, 8, 8),
    **{name: chain for name, (chain, _) in list(row_cases(9, 33).items())[:4]},
}


def scheduled(chain: Chain, count: int) -> list[Candidate]:
    listed = choices(chain, CpuTarget(MACHINE))
    assert not isinstance(listed, Refusal)
    pairs = [(c, schedule) for c, schedule in listed.schedules()][:count]
    return [Candidate(c.template.name, compact(schedule.to_json())) for c, schedule in pairs]


# References


@pytest.mark.parametrize("name", CHAINS)
def test_a_part_of_the_reference_is_that_part(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chain = CHAINS[name]
    chain = replace(chain, axes=tuple(Axis(axis.name, axis.size or 7) for axis in chain.axes))
    arrays = reference.operands(chain, 3)
    whole = interpret(chain, arrays, "f64")
    monkeypatch.setattr(reference, "ENOUGH", 64)
    part = reference.reference(chain, arrays)
    assert part.differs(whole) == ""
    assert part.places, "some axis need not be looked at as a whole"
    for output, array in part.outputs.items():
        axes = chain.values[output].axes
        assert array.shape == tuple(
            len(part.places.get(axis, range(whole[output].shape[n]))) for n, axis in enumerate(axes)
        )


@given(st.integers(0, 19), st.integers(0, 23), st.sampled_from([1e-2, -1.0, np.nan, np.inf]))
def test_an_element_that_is_off_is_told(i: int, j: int, by: float) -> None:
    arrays = reference.operands(CHAIN, 1)
    right = reference.reference(CHAIN, arrays)
    results = {"y": interpret(CHAIN, arrays)["y"]}
    assert right.differs(results) == ""
    results["y"][i, j] += by
    assert f"at ({i}, {j})" in right.differs(results)


def test_a_sum_in_single_precision_is_no_better_for_being_held_in_double() -> None:
    """As a variance of torch's is."""
    w = Writer("f32", i=4, k=32)
    w.reduce("s", "i", "add", "k", w.input("x", "ik"))
    w.map("y", "i", Apply("arith.extf", (w.read("s"),), "f64"))
    chain = w.chain("y")
    right = reference.reference(chain, reference.operands(chain, 1))
    single = np.nextafter(right.outputs["y"].astype(np.float32), np.float32(np.inf))
    assert right.differs({"y": single.astype(np.float64)}) == ""
    assert right.differs({"y": right.outputs["y"] + 1e-2}) != ""


def test_a_reference_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "MOST", 1000)
    chain = convolution(6, 9, (3, 3), (8, 8))
    with pytest.raises(reference.NoReferenceError, match="positions at once"):
        reference.reference(chain, reference.operands(chain, 1))


# Turns


class Clock:
    """Time as calls say that it passes."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def takes(self, seconds: Callable[[float], float]) -> Callable[[], None]:
        def call() -> None:
            self.now += seconds(self.now)

        return call


def test_a_machine_that_slows_down_changes_no_ratio() -> None:
    clock = Clock()
    slower = lambda base: lambda now: base * (1.0 + now)  # noqa: E731
    own, (same, faster) = timing.in_turns(
        clock.takes(slower(1e-3)), [clock.takes(slower(1e-3)), clock.takes(slower(0.5e-3))], 2.0, clock
    )
    assert own.ratio == 1.0
    assert same.ratio == pytest.approx(1.0, abs=0.01)
    assert faster.ratio == pytest.approx(0.5, abs=0.01)
    assert same.rounds == faster.rounds == own.rounds >= timing.ROUNDS


def test_what_is_hopeless_is_not_timed_any_longer() -> None:
    clock = Clock()
    calls = [clock.takes(lambda now, each=each: each) for each in (1.0, 0.9)]
    own, (slow, fast) = timing.in_turns(clock.takes(lambda now: 0.75), calls, 60.0, clock)
    assert slow.rounds == timing.ROUNDS < fast.rounds == own.rounds


def test_what_others_do_between_a_threads_turns_is_not_counted() -> None:
    assert timing.clock_of("local-sync") is time.thread_time, "what it waits for a turn takes none of it"
    assert timing.clock_of("local-task") is time.perf_counter, "threads of the runtime compute"


def test_what_is_hopeless_takes_part_for_a_while() -> None:
    clock = Clock()
    calls = [clock.takes(lambda now, each=each: each) for each in (0.4, 0.9e-3)]
    own, (slow, fast) = timing.in_turns(clock.takes(lambda now: 1e-3), calls, 60.0, clock)
    assert timing.ROUNDS < slow.rounds < fast.rounds == own.rounds


def test_short_calls_are_timed_many_at_once() -> None:
    clock = Clock()
    counted = 0

    def call() -> None:
        nonlocal counted
        counted += 1
        clock.now += 1e-6

    own, _ = timing.in_turns(call, [], 1e-3, clock)
    assert own.seconds == pytest.approx(1e-6)
    assert counted > 50 * own.rounds


# Processes


@pytest.fixture(scope="module")
def measurer() -> Iterator[Measurer]:
    with Measurer(MACHINE, 4, "local-sync", [FAULTS]) as measurer:
        yield measurer


@pytest.mark.parametrize("name", ["product", "halves", "convolution", "attention"])
def test_kernels_get_their_times(measurer: Measurer, name: str) -> None:
    candidates = scheduled(CHAINS[name], 4)
    outcomes = measurer.measure(CHAINS[name], candidates[0], candidates, 0.1)
    assert [outcome.candidate for outcome in outcomes] == candidates
    assert [outcome.failure for outcome in outcomes] == [""] * len(candidates)
    assert outcomes[0].ratio == 1.0
    assert all(outcome.seconds and outcome.ratio and outcome.rounds for outcome in outcomes)


def fault(how: str) -> Candidate:
    return Candidate("faulty", compact({"how": how}))


def test_each_fault_is_its_own_kernels(measurer: Measurer, monkeypatch: pytest.MonkeyPatch) -> None:
    """All in one batch: who is wrong, crashes, or cannot be built has no time, and everybody else has one."""
    (first, second, *_) = scheduled(CHAIN, 2)
    how = ["wrong", "crashes", "refuses", "no code", "aborts"]
    outcomes = measurer.measure(CHAIN, first, [second, *map(fault, how)], 0.1)
    said = {outcome.candidate: outcome for outcome in outcomes}
    assert said[first].failure == said[second].failure == ""
    assert said[second].ratio is not None
    assert all(said[fault(each)].seconds is None for each in how)
    assert "y is " in said[fault("wrong")].failure
    assert "crashed with SIGSEGV" in said[fault("crashes")].failure
    assert said[fault("refuses")].failure == "there is no code for it"
    assert "no_such_operation" in said[fault("no code")].failure
    assert "crashed with SIGABRT" in said[fault("aborts")].failure
    # Its processes are there again.
    assert measurer.measure(CHAIN, first, [second], 0.05)[1].failure == ""


def test_what_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    (first, *_) = scheduled(CHAIN, 1)
    with Measurer(replace(MACHINE, cores=1), 4, "local-sync", [FAULTS]) as measurer:
        measurer.measure(CHAIN, first, [], 0.05)  # it has started
        monkeypatch.setattr(measure, "START", 5.0)
        monkeypatch.setattr(measure, "EACH", 0.0)
        outcomes = measurer.measure(CHAIN, first, [fault("hangs")], 0.05)
    assert "hangs: it was stopped after 5 s" in outcomes[1].failure
    assert outcomes[0].failure == ""


def test_without_the_kernel_that_others_are_compared_with_nothing_is_measured(measurer: Measurer) -> None:
    with pytest.raises(MeasuringError, match="the predicted kernel cannot be built: there is no code for it"):
        measurer.measure(CHAIN, fault("refuses"), scheduled(CHAIN, 1), 0.05)
    with pytest.raises(MeasuringError, match=r"the predicted kernel cannot be timed: .*is wrong: y is "):
        measurer.measure(CHAIN, fault("wrong"), scheduled(CHAIN, 1), 0.05)


def test_a_file_that_fails_is_told() -> None:
    with (
        Measurer(MACHINE, 4, "local-sync", ["/nowhere.py"]) as measurer,
        pytest.raises(MeasuringError, match=r"cannot load '/nowhere\.py': not a Python file"),
    ):
        measurer.measure(CHAIN, *(scheduled(CHAIN, 1)), [], 0.05)
