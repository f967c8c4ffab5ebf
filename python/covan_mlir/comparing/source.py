"""The model behind an executable: what it was compiled from, or what the caller says it was."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from covan_mlir.artifacts.attachment import Attach
from covan_mlir.attaching.attach import restored
from covan_mlir.compilation.options import CompileOptions
from covan_mlir.compilation.origin import Origin
from covan_mlir.errors import InputError
from covan_mlir.frontend.actions import distinct, source_actions
from covan_mlir.frontend.capture import Capture
from covan_mlir.frontend.frontends import capture
from covan_mlir.runtime.compiled import CompiledModel
from covan_mlir.support.typed_json import SchemaError, short


def captured_of(
    compiled: CompiledModel,
    origin: Origin | None,
    model: Any,
    arguments: tuple[tuple[Any, ...], Mapping[str, Any]],
    attached: Attach,
    given: CompileOptions | None = None,
) -> tuple[Capture, CompileOptions]:
    """The exported model and the options of the compilation.

    Args:
        origin: what it was compiled from, if that is known.
        model: for an executable from a file, the model that it was compiled from.
        arguments: (args, kwargs) to export it with.
        attached: what it was compiled with as ``CompileOptions.attach``, for a model that is given.
        given: with which options, as far as they run code (`CompileOptions.running_code`), it was compiled; else those
            of ``origin``, or of the file, count.

    Raises:
        InputError: a model is needed and not given; or the one that is given is another; or a file says that it was
            compiled with options that run code, and the caller does not.
    """
    if model is None:
        if origin is None:
            raise InputError(
                "an executable from a file does not hold the model: give it, exe.compare(..., model=model), or "
                "'covan compare FILE.covan --model FILE.py:FACTORY'"
            )
        return origin.captured, origin.options
    captured = capture(model, *arguments, None)
    if attached or compiled.attachments:
        if not attached:
            names = ", ".join(attachment.name for attachment in compiled.attachments)
            raise InputError(
                f"the program has attachments ({names}), which a file does not hold: give the same functions, "
                "CompareOptions(attach={...}), or 'covan compare --attach NAME=FILE.py:FUNCTION'"
            )
        captured = restored(captured, attached, compiled.attachments)
    mine = distinct(source_actions(captured.program.graph))
    theirs = compiled.lineage.actions
    for one, other in zip(mine, theirs, strict=False):
        if (one.name, one.op) != (other.name, other.op):
            where = f" at {one.line}" if one.line else ""
            raise InputError(
                f"this is not the model that was compiled: it calls {one.op} ({one.name}){where}, "
                f"where the program has {other.op} ({other.name})"
            )
    if theirs and len(mine) != len(theirs):
        raise InputError(f"this is not the model that was compiled: it has {len(mine)} actions, not {len(theirs)}")
    if origin is not None:
        return captured, origin.options
    return captured, _of_file(compiled, given or CompileOptions())


def _of_file(compiled: CompiledModel, given: CompileOptions) -> CompileOptions:
    options = compiled.info.get("options")
    if not isinstance(options, dict):
        raise InputError("the artifact does not say with which options it was compiled: compile it again")
    try:
        stored = CompileOptions.from_json(options)
    except (TypeError, ValueError, SchemaError) as error:
        raise InputError(f"the artifact was compiled with options that are not known here: {error}") from error
    if (running := stored.running_code()) != given.running_code():
        raise InputError(
            f"the artifact says that it was compiled with {short(running) if running else 'no flags of IREE'}: a "
            "file's word is not enough to run code, or to pass flags to a compiler. If that is so, say the same: "
            "CompareOptions(compiled_with=CompileOptions(...)), or --iree-flag FLAG on the command line"
        )
    return stored
