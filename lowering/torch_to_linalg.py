"""torch dialect to linalg on tensors, by torch-mlir's own pipelines."""

from __future__ import annotations

from typing import Any

from torch_mlir import ir
from torch_mlir.passmanager import PassManager

from covan_mlir.dialects import prov_locations
from covan_mlir.lowering.pipeline import State, Step, StepError


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


def _pipeline(name: str, text: str) -> Step:
    def run(state: State) -> None:
        with state.module.context as context:
            # Some passes emit errors without failing, which ends in a native assertion unless they are collected.
            context.emit_error_diagnostics = True
            seen: list[dict[str, Any]] = []

            def told(info: Any, seen: list[dict[str, Any]] = seen) -> bool:
                seen.append(_diagnostic(info))
                return True

            handler = context.attach_diagnostic_handler(told)
            try:
                manager = PassManager.parse(text)
                if state.watch:
                    state.watch(manager)
                manager.run(state.module.operation)
            except ir.MLIRError as error:
                rows = [_diagnostic(info) for info in error.error_diagnostics] or seen
                raise StepError(str(error), rows) from error
            finally:
                handler.detach()

    return Step(name, run)


STEPS: tuple[Step, ...] = (
    _pipeline(
        "torch-backend",
        "builtin.module(func.func(torch-match-quantized-custom-ops), "
        "torchdynamo-export-to-torch-backend-pipeline{backend-legal-ops=aten.flatten.using_ints})",
    ),
    _pipeline(
        "torch-to-linalg",
        "builtin.module(torch-backend-to-linalg-on-tensors-backend-pipeline{allow-non-finites=true})",
    ),
)
