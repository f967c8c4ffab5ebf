"""Models as torch-mlir lowers them, for tests of what comes behind it."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch_mlir import ir

from covan_mlir import dialects
from covan_mlir.frontend.capture import capture
from covan_mlir.frontend.importer import import_program
from covan_mlir.lowering import stages
from covan_mlir.lowering.pipeline import PipelineState
from covan_mlir.lowering.request import Job


def linalg(model: nn.Module, args: tuple[Any, ...], dynamic: Any = None) -> ir.Module:
    """The model as torch-mlir lowers it."""
    imported = import_program(capture(model, args, {}, dynamic), provenance=True, external_weight_bytes=1 << 24)
    context = ir.Context()
    dialects.load(context)
    with context:
        state = PipelineState(ir.Module.parse(imported.bytecode))
    job = Job("linalg", ())
    for stage in (stages.prepared(job), stages.BACKEND, stages.LINALG):
        stages.run(stage, state)
    return state.module
