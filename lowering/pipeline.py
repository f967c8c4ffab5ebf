"""Pipelines that are observed from outside: passes are never edited to carry provenance.

A pipeline is a sequence of steps over one `PipelineState`. `instrument` returns the same pipeline with observers
between the steps; each sees the module after every step and writes what it learns into records of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from covan_mlir.lowering.result import CompilerDiagnostic


@dataclass
class PipelineState:
    """What travels along a pipeline.

    Attributes:
        module: the module in the current step's context (torch-mlir's or IREE's bindings).
        session: IREE's session once the module lives there.
        output: the finished program.
        seconds: wall time of each step.
        watch: to be called on torch-mlir's pass managers before they run, or None.
        constants: dtype, shape and bytes of those that the program reads as parameters, by name.
    """

    module: Any
    session: Any = None
    output: bytes = b""
    seconds: dict[str, float] = field(default_factory=dict)
    watch: Callable[[Any], None] | None = None
    constants: dict[str, tuple[str, tuple[int, ...], bytes]] = field(default_factory=dict)


OBSERVING = "observing"
"""In `PipelineState.seconds`: what observers took after all steps, which is in the steps' own times as well."""


Run = Callable[[PipelineState], None]
"""Leaves a valid module in the state, or raises `StepError`."""


@dataclass(frozen=True)
class LoweringStep:
    """One step: a name for people, and what it does."""

    name: str
    run: Run


class Observer(Protocol):
    """Sees the module after a step; may set locations, which are annotations, and nothing else."""

    def __call__(self, step: str, state: PipelineState) -> None: ...


class StepError(Exception):
    """A step failed: carries the diagnostics that its compiler gave, and the name of the pass of ours that it was."""

    def __init__(self, message: str, diagnostics: Iterable[CompilerDiagnostic] = (), own_pass: str = "") -> None:
        super().__init__(message)
        self.diagnostics = tuple(diagnostics)
        self.own_pass = own_pass


def instrument(pipeline: Iterable[LoweringStep], observers: Sequence[Observer]) -> tuple[LoweringStep, ...]:
    """The same pipeline, observed after each step."""

    def observed(step: LoweringStep) -> LoweringStep:
        def run(state: PipelineState) -> None:
            step.run(state)
            start = time.perf_counter()
            for observer in observers:
                observer(step.name, state)
            state.seconds[OBSERVING] = state.seconds.get(OBSERVING, 0.0) + time.perf_counter() - start

        return LoweringStep(step.name, run)

    return tuple(observed(step) for step in pipeline) if observers else tuple(pipeline)


def run(pipeline: Iterable[LoweringStep], state: PipelineState, before: Callable[[str, PipelineState], None]) -> None:
    """Run the steps in order. ``before`` is told each step's name first: when a compiler crashes, it was that one."""
    for step in pipeline:
        before(step.name, state)
        start = time.perf_counter()
        step.run(state)
        state.seconds[step.name] = time.perf_counter() - start
