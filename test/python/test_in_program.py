"""Tuning: of the best kernels alone, those are chosen that are best inside of the programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from covan_mlir.errors import ProfileError
from covan_mlir.lowering.kernels.measuring.messages import Candidate
from covan_mlir.lowering.kernels.measuring.timing import Turns
from covan_mlir.lowering.kernels.recorded import Recorded
from covan_mlir.tuning import in_program
from covan_mlir.tuning.in_program import Entry, Finalists, decide


class Base(tuple[Recorded, ...]):
    """A program without records."""

    driver = "local-sync"


class Programs:
    """Programs as tables: seconds of each kernel by schedule; as what they take as a whole, what is in their names."""

    def __init__(self, inside: dict[str, float] | None, kernels: str = "ab", slow: str = "") -> None:
        self.inside, self.kernels, self.slow = inside, kernels, slow
        self.compiled: list[tuple[Recorded, ...]] = []

    def program(self, records: Sequence[Recorded]) -> Any:
        self.compiled.append(tuple(records))
        return tuple(records)

    def caller(self, model: Any) -> Any:
        slower = any(record.workload in self.slow for record in model)
        return lambda: slower

    def entry(self) -> Any:
        programs: Any = self
        base: Any = Base()
        return Entry(programs, base, {name: [f"kernel {name}"] for name in self.kernels})

    def kernel_seconds(self, model: Any) -> dict[str, float]:
        if self.inside is None:
            raise ProfileError("no times here")
        taken = {record.workload: record.schedule for record in model}
        return {f"kernel {name}": self.inside[f"{name} {taken.get(name, 'default')}"] for name in self.kernels}


def finalists() -> list[Finalists]:
    ranked = {"a": ("fast", "faster inside"), "b": ("only",)}
    return [
        Finalists(name, 1e-3, tuple((Candidate("t", s), 0.5 + 0.1 * n) for n, s in enumerate(names)))
        for name, names in ranked.items()
    ]


INSIDE = {"a default": 1.0, "a fast": 1.2, "a faster inside": 0.8, "b default": 1.0, "b only": 0.99}


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the time of the program that is tried over that of the one before; of a slow one it is 1.1."""

    def set_ratio(ratio: float) -> None:
        def in_turns(base: object, calls: Sequence[Callable[[], bool]], seconds: float, clock: object) -> Any:
            ratios = [1.1 if call() else ratio for call in calls]
            return Turns(1.0, 1.0, 9), [Turns(each, each, 9) for each in ratios]

        monkeypatch.setattr(in_program, "in_turns", in_turns)

    return set_ratio


def test_what_is_best_inside_of_the_program_is_chosen(whole: Callable[[float], None]) -> None:
    whole(0.9)
    programs = Programs(INSIDE)
    chosen, (verdict,) = decide([programs.entry()], finalists(), 1.0, lambda step: None)
    # b's is faster by less than counts
    assert [(record.workload, record.schedule) for record in chosen] == [("a", "faster inside")]
    assert chosen[0].seconds == pytest.approx(0.6e-3)
    assert verdict.ratio == verdict.tried == 0.9
    assert programs.compiled[-1] == chosen


def test_a_program_that_is_not_faster_changes_nothing(whole: Callable[[float], None]) -> None:
    whole(1.01)
    programs = Programs(INSIDE)
    chosen, (verdict,) = decide([programs.entry()], finalists(), 1.0, lambda step: None)
    assert chosen == ()
    assert (verdict.ratio, verdict.tried) == (1.0, 1.01)


def test_where_there_are_no_times_inside_those_alone_count(
    whole: Callable[[float], None], caplog: pytest.LogCaptureFixture
) -> None:
    whole(0.9)
    chosen, _ = decide([Programs(None).entry()], finalists(), 1.0, lambda step: None)
    assert [record.schedule for record in chosen] == ["fast", "only"]
    assert "kernels are not timed inside of the program (no times here)" in caplog.text


def test_kernels_of_a_program_that_is_not_faster_are_chosen_for_none(whole: Callable[[float], None]) -> None:
    whole(0.9)
    inside = {**INSIDE, "b only": 0.5}
    both, one = Programs(inside), Programs(inside, kernels="b", slow="b")
    chosen, verdicts = decide([both.entry(), one.entry()], finalists(), 1.0, lambda step: None)
    assert [record.workload for record in chosen] == ["a"]
    assert [(verdict.ratio, verdict.tried) for verdict in verdicts] == [(0.9, 0.9), (1.0, 1.1)]
    assert [record.workload for record in both.compiled[-1]] == ["a"], "it was timed again without the other's"


def test_what_several_programs_run_is_timed_in_all_of_them(whole: Callable[[float], None]) -> None:
    whole(0.9)
    other = Programs({**INSIDE, "a fast": 0.5, "a faster inside": 1.1}, kernels="a")
    chosen, _ = decide([Programs(INSIDE).entry(), other.entry()], finalists(), 1.0, lambda step: None)
    assert [record.schedule for record in chosen] == ["fast"], "1.2 + 0.5 is less than 0.8 + 1.1"
