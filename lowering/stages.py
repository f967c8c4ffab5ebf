"""What happens in torch-mlir's context, as the text of a pipeline: covan-opt runs it as the compiler does.

The compiler runs it stage by stage, with observers between them. What crosses to IREE then says itself what is needed
there; `Border` takes off what is not.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch_mlir import ir

# By its package, which makes fred-raise and fred-kernels known.
import covan_mlir.lowering.kernels.passes  # noqa: F401
from covan_mlir.dialects import prov_locations
from covan_mlir.dialects.arguments import Argument, read_arguments, write_arguments
from covan_mlir.dialects.prov_graph import functions
from covan_mlir.dialects.prov_lines import LINES
from covan_mlir.lowering import iree_phases
from covan_mlir.lowering.kernels import targets
from covan_mlir.lowering.kernels.choice import DECISIONS, DEVICE
from covan_mlir.lowering.kernels.declarations import embed_declared
from covan_mlir.lowering.kernels.reductions import demote
from covan_mlir.lowering.pipeline import State, Step, StepError
from covan_mlir.lowering.request import Job
from covan_mlir.passes.framework.pipeline import parse_pipeline


@dataclass(frozen=True)
class Stage:
    """Passes that run one after the other without an observer between them.

    Attributes:
        name: of the step.
        passes: elements of a pipeline on the module.
        watched: the history pass by pass looks at each pass of it.
    """

    name: str
    passes: tuple[str, ...]
    watched: bool = False

    @property
    def pipeline(self) -> str:
        """Its passes as a pipeline of their own."""
        return f"builtin.module({','.join(self.passes)})"


TORCH = (
    Stage(
        "torch-backend",
        (
            "func.func(torch-match-quantized-custom-ops)",
            "torchdynamo-export-to-torch-backend-pipeline{backend-legal-ops=aten.flatten.using_ints}",
        ),
        watched=True,
    ),
    Stage(
        "torch-to-linalg",
        ("torch-backend-to-linalg-on-tensors-backend-pipeline{allow-non-finites=true}",),
        watched=True,
    ),
)
"""Torch dialect to linalg on tensors, by torch-mlir's own pipelines."""


def prepared(job: Job) -> Stage:
    """What comes before all else, and is not observed."""
    drop = "prov-drop-table{lines=true}" if targets.names_lines(job.target) else "prov-drop-table"
    return Stage("prepare", (drop,))


def stages(job: Job, frontend: str) -> tuple[Stage, ...]:
    """The stages of a job in torch-mlir's context, after `prepared`.

    Args:
        frontend: ``linalg``; ``torch``: none, for IREE takes the torch dialect.
    """
    if frontend != "linalg":
        return ()
    if not job.fuse:
        return TORCH
    options = [f"target={job.target}"]
    options += ["fuse=always"] if job.fuse == "always" else []
    options += ["demote-f64=true"] if demote.FLAG in job.flags else []
    given = f"{{{' '.join(options)}}}"
    return (
        *TORCH,
        Stage("fred-raise", (f"func.func(fred-raise{given})",)),
        Stage("fred-kernels", (f"fred-kernels{given}", "prov-lower-locations")),
    )


def text(all_stages: Sequence[Stage]) -> str:
    """The pipeline that stages are together, one pass on a line."""
    return "builtin.module(\n  " + ",\n  ".join(element for stage in all_stages for element in stage.passes) + "\n)"


def step(stage: Stage) -> Step:
    """A stage as a step of the compiler.

    Raises, when it runs:
        StepError: a pass failed, with what the passes said.
    """
    return Step(stage.name, lambda state: run(stage, state))


def run(stage: Stage, state: State) -> None:
    """Runs a stage on the module of torch-mlir's.

    Raises:
        StepError: a pass failed, with what the passes said.
    """
    with state.module.context as context:
        # Some passes emit errors without failing, which ends in a native assertion unless they are collected.
        context.emit_error_diagnostics = True
        seen: list[dict[str, Any]] = []

        def told(info: Any) -> bool:
            seen.append(_diagnostic(info))
            return True

        handler = context.attach_diagnostic_handler(told)
        raised: list[tuple[Any, Exception]] = []
        try:
            manager = parse_pipeline(stage.pipeline, context).build(context, raised)
            if state.watch and stage.watched:
                state.watch(manager)
            manager.run(state.module.operation)
        except ir.MLIRError as error:
            rows = [_diagnostic(info) for info in error.error_diagnostics] or seen
            raise StepError(str(error), rows) from (raised[0][1] if raised else error)
        finally:
            handler.detach()


def _diagnostic(info: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "severity": str(info.severity).rsplit(".", 1)[-1].lower(),
        "message": info.message,
        "ids": sorted(prov_locations.ids(info.location)),
    }
    user = prov_locations.user_line(info.location)
    if user:
        row["file"], row["line"] = user
    return row


def prepare_target(job: Job) -> None:
    """Looks up what kernels are written for, which passes ask for by name later on."""
    targets.of(job.target, _device(job))


def set_device(module: ir.Module, job: Job) -> None:
    """Tells passes which device it is that a target's name stands for, where that is the one that is here."""
    if device := _device(job):
        module.operation.attributes[DEVICE] = ir.StringAttr.get(device, module.context)


def _device(job: Job) -> str:
    return "" if ":" in job.target else job.devices


class Border:
    """Between the two compilers: what crosses, and what is taken off before.

    Attributes:
        decisions: on chains of reductions, as JSON of `FusionRecord`.
        shared: floating-point operations and elements of a call that kernels for teams of threads compute.
    """

    def __init__(self, job: Job) -> None:
        self.decisions: list[dict[str, Any]] = []
        self.shared: dict[str, int] = {}
        self._enter = iree_phases.enter(job.flags, job.devices)

    @property
    def cross(self) -> Step:
        """The step into IREE's context, without what passes of ours left for each other."""
        return Step(self._enter.name, self._cross)

    @property
    def embed(self) -> Step:
        """The step that makes dispatches of the calls of kernels."""
        return Step("iree:embed", self._embed)

    def _cross(self, state: State) -> None:
        self.decisions = take_off(state.module)
        self._enter.run(state)

    def _embed(self, state: State) -> None:
        with state.session.context:
            self.shared = embed_declared(state.module)


def take_off(module: ir.Module) -> list[dict[str, Any]]:
    """Removes what passes of ours left for each other in a module of torch-mlir's.

    Returns:
        what was decided about chains of reductions, as JSON of `FusionRecord`.
    """
    decisions: list[dict[str, Any]] = []
    operation = module.operation
    for name in (LINES, DEVICE):
        if name in operation.attributes:
            del operation.attributes[name]
    for function in functions(operation):
        if DECISIONS in function.attributes:
            decisions += json.loads(function.attributes[DECISIONS].value)
            del function.attributes[DECISIONS]
        write_arguments(function, [Argument()] * len(read_arguments(function)))
    return decisions
