"""IREE's compiler, phase by phase, in this process.

Each phase is run through the compiler's own invocation interface (``compile-from`` / ``compile-to``), not through
named pass pipelines: only so do session flags and compile-time evaluation of constants take effect as in
``iree-compile``. The Python module object is borrowed, so observers see it between phases.
"""

from __future__ import annotations

import ctypes
import io
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, get_args

import iree.compiler.ir as ir
from iree.compiler.api import Output, Session, ctypes_dl

from covan_mlir.lowering.pipeline import PipelineState, Run, StepError
from covan_mlir.lowering.result import CompilerDiagnostic, Severity

PHASES = (
    "start",
    "input",
    "abi",
    "preprocessing",
    "global-optimization",
    "dispatch-creation",
    "flow",
    "stream",
    "executable-sources",
    "executable-configurations",
    "executable-targets",
    "hal",
    "vm",
    "end",
)

_lib: Any = ctypes_dl._dylib
_Callback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.POINTER(ctypes.c_char), ctypes.c_size_t, ctypes.c_void_p)
for _name, _types in (
    ("SetCompileFromPhase", [ctypes.c_void_p, ctypes.c_char_p]),
    ("SetCompileToPhase", [ctypes.c_void_p, ctypes.c_char_p]),
    ("EnableCallbackDiagnostics", [ctypes.c_void_p, ctypes.c_int, _Callback, ctypes.c_void_p]),
):
    _function = getattr(_lib, f"ireeCompilerInvocation{_name}")
    _function.argtypes, _function.restype = _types, None

_SEVERITIES: tuple[Severity, ...] = get_args(Severity)  # as MLIR numbers them
_AT = re.compile(r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):\d+: (?P<message>.*)$", re.DOTALL)


def _diagnostic(number: int, text: str) -> CompilerDiagnostic:
    # The callback gives text only; MLIR prints the innermost file location in front of it.
    severity: Severity = _SEVERITIES[number] if 0 <= number < len(_SEVERITIES) else "error"
    match = _AT.match(text.strip())
    if match:
        return CompilerDiagnostic(severity, match["message"], file=match["file"], line=int(match["line"]))
    return CompilerDiagnostic(severity, text.strip())


def enter(flags: tuple[str, ...], devices: str = "") -> Run:
    """The step that moves the module from torch-mlir's context into a new IREE session, by bytecode.

    Args:
        devices: the element of the module's ``hal.device.targets``; empty: the flags name the device.
    """

    def run(state: PipelineState) -> None:
        out = io.BytesIO()
        state.module.operation.write_bytecode(out)
        session = Session()
        try:
            session.set_flags(*flags)
        except ValueError as error:
            raise StepError("the IREE compiler refuses a flag: " + " ".join(str(error).split())) from error
        try:
            with session.context, ir.Location.unknown():
                state.module = ir.Module.parse(out.getvalue())
                if devices:
                    state.module.operation.attributes["hal.device.targets"] = ir.Attribute.parse(f"[{devices}]")
        except ir.MLIRError as error:
            raise StepError(str(error)) from error
        state.session = session

    return run


def execute(session: Session, module: Any, start: str, stop: str) -> bytes:
    """Run the compiler's phases from ``start`` to ``stop`` on a module, in place.

    Returns:
        the program if ``stop`` is the end; else nothing.

    Raises:
        StepError: the compiler failed, with what it said.
    """
    with _told(session, module) as (invocation, check):
        _lib.ireeCompilerInvocationSetCompileFromPhase(invocation._inv_p, start.encode())
        _lib.ireeCompilerInvocationSetCompileToPhase(invocation._inv_p, stop.encode())
        check(invocation.execute())
        if stop != "end":
            return b""
        with Output.open_membuffer() as output:
            invocation.output_vm_bytecode(output)
            return bytes(output.map_memory())


def run_passes(session: Session, module: Any, pipeline: str) -> None:
    """Run passes of the compiler's on a module, in place.

    Args:
        pipeline: as text, without the module around it.

    Raises:
        StepError: a pass failed, with what the compiler said.
    """
    with _told(session, module) as (invocation, check):
        check(invocation.execute_text_pass_pipeline(pipeline))


@contextmanager
def _told(session: Session, module: Any) -> Iterator[tuple[Any, Callable[[bool], None]]]:
    """An invocation of the compiler on a module, and what is to be told whether it did what it was asked to: if not, it
    raises what the compiler said."""
    seen: list[CompilerDiagnostic] = []

    def told(severity: int, text: Any, size: int, _data: Any) -> None:
        seen.append(_diagnostic(severity, ctypes.string_at(text, size).decode(errors="replace")))

    def check(succeeded: bool) -> None:
        if not succeeded:
            errors = [diagnostic for diagnostic in seen if diagnostic.severity == "error"]
            message = errors[0].message if errors else "the IREE compiler gave no reason"
            raise StepError(message, errors or seen)

    callback = _Callback(told)  # lives until the invocation is closed
    with session.context, ir.Location.unknown(), session.invocation() as invocation:
        _lib.ireeCompilerInvocationEnableCallbackDiagnostics(invocation._inv_p, 0, callback, None)
        invocation.import_module(module.operation)
        yield invocation, check


def phase(name: str) -> Run:
    """The step that runs one of `PHASES`, but the first, which is the state before all others."""
    before = PHASES[PHASES.index(name) - 1]

    def run(state: PipelineState) -> None:
        state.output = execute(state.session, state.module, before, name)

    return run
