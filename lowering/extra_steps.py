"""Steps of the user's own between those of the compiler: experiments, and faults that tests plant.

A step is ``("torch-to-linalg", "/path/to/steps.py:flip")``: after the step of that name, ``flip(state)`` is called with
the `PipelineState` and may change ``state.module``, in the bindings of the context it lives in: torch-mlir's before
``iree:import``, IREE's from there on. It is observed as any other step is: what it changes shows in the lineage.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from functools import partial

from covan_mlir.lowering.pipeline import LoweringStep, PipelineState, StepError

ExtraStep = tuple[str, str]
"""The name of the step that it follows, and ``FILE.py:function``."""


def insert(steps: Sequence[LoweringStep], extra: Sequence[ExtraStep]) -> list[LoweringStep]:
    """The pipeline with the extra steps in it; those after the same step run in the order given.

    Raises:
        StepError: there is no step of a name, no such file, or no such function in it.
    """
    names = [step.name for step in steps]
    for after, what in extra:
        if after not in names:
            raise StepError(f"extra step {what}: this pipeline has no step {after!r}; it has {', '.join(names)}")
    added = {name: [_step(what) for after, what in extra if after == name] for name in names}
    return [inserted for step in steps for inserted in (step, *added[step.name])]


def _step(what: str) -> LoweringStep:
    return LoweringStep(f"extra:{what.rpartition(':')[2]}", partial(_run, what, _function(what)))


def _run(what: str, function: Callable[[PipelineState], None], state: PipelineState) -> None:
    try:
        with state.module.context:
            function(state)
    except Exception as error:
        raise StepError(f"extra step {what} failed: {type(error).__name__}: {error}") from error
    if not state.module.operation.verify():
        raise StepError(f"extra step {what} left a module that is not valid")


def _function(what: str) -> Callable[[PipelineState], None]:
    path, _, name = what.rpartition(":")
    spec = importlib.util.spec_from_file_location("covan_extra_step", path)
    if spec is None or spec.loader is None:
        raise StepError(f"extra step {what!r} is no FILE.py:function")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise StepError(f"extra step {what}: {path} cannot be run: {type(error).__name__}: {error}") from error
    function: Callable[[PipelineState], None] | None = getattr(module, name, None)
    if not callable(function):
        raise StepError(f"extra step {what}: {path} has no function {name!r}")
    return function
