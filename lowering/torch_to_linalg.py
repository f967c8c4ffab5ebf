"""torch dialect to linalg on tensors, by torch-mlir's own pipelines."""

from __future__ import annotations

from typing import Any

from torch_mlir import ir
from torch_mlir.passmanager import PassManager

from covan_mlir.dialects import prov_locations
from covan_mlir.lowering.pipeline import Run, State, StepError
from covan_mlir.lowering.result import CompilerDiagnostic, Severity

_SEVERITIES: dict[ir.DiagnosticSeverity, Severity] = {
    ir.DiagnosticSeverity.ERROR: "error",
    ir.DiagnosticSeverity.WARNING: "warning",
    ir.DiagnosticSeverity.NOTE: "note",
    ir.DiagnosticSeverity.REMARK: "remark",
}


def _diagnostic(info: Any) -> CompilerDiagnostic:
    severity = _SEVERITIES[info.severity]
    file, line = prov_locations.user_line(info.location) or (None, None)
    return CompilerDiagnostic(severity, info.message, tuple(sorted(prov_locations.ids(info.location))), file, line)


def _pipeline(text: str) -> Run:
    def run(state: State) -> None:
        with state.module.context as context:
            # Some passes emit errors without failing, which ends in a native assertion unless they are collected.
            context.emit_error_diagnostics = True
            seen: list[CompilerDiagnostic] = []

            def told(info: Any, seen: list[CompilerDiagnostic] = seen) -> bool:
                seen.append(_diagnostic(info))
                return True

            handler = context.attach_diagnostic_handler(told)
            try:
                manager = PassManager.parse(text)
                if state.watch:
                    state.watch(manager)
                manager.run(state.module.operation)
            except ir.MLIRError as error:
                raise StepError(str(error), [*map(_diagnostic, error.error_diagnostics)] or seen) from error
            finally:
                handler.detach()

    return run


to_backend = _pipeline(
    "builtin.module(func.func(torch-match-quantized-custom-ops), "
    "torchdynamo-export-to-torch-backend-pipeline{backend-legal-ops=aten.flatten.using_ints})"
)
"""The torch dialect to its backend contract: values without aliases, with known ranks and types."""

to_linalg = _pipeline("builtin.module(torch-backend-to-linalg-on-tensors-backend-pipeline{allow-non-finites=true})")
"""The backend contract to linalg on tensors."""
