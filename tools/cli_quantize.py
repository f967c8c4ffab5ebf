"""``covan quantize``: a model in fewer bits, and what that costs."""

from __future__ import annotations

import io
import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from covan_mlir.support import whole_file
from covan_mlir.tools.cli_common import CliError, Progress, torch_is_quiet
from covan_mlir.tools.cli_options import MODEL, MODEL_FILES, Debug, Inputs, Seed, Session

if TYPE_CHECKING:
    from covan_mlir.quantizer import Quantized


def quantize(
    context: typer.Context,
    model: Annotated[str, typer.Argument(metavar=MODEL, help=f"The model, in float. Files are {MODEL_FILES}.")],
    calibration: Annotated[
        str | None,
        typer.Option("--calibration", metavar="FILE.npz", help="Arrays of many calls, by the names of arguments."),
    ] = None,
    inputs: Inputs = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE.pt2|FILE.covan", help="Default: the model's name, here, .pt2."),
    ] = None,
    mode: Annotated[
        Literal["int8", "bf16", "weights-int8", "weights-int4"], typer.Option("--mode", help="What layers become.")
    ] = "int8",
    activations: Annotated[
        Literal["u8", "s8"], typer.Option("--activations", help="Of int8: steps without a sign, or with one.")
    ] = "u8",
    observer: Annotated[
        Literal["minmax", "percentile", "mse"],
        typer.Option("--observer", help="Of int8: which range of the values that were seen steps cover."),
    ] = "minmax",
    keep: Annotated[
        list[str] | None,
        typer.Option("--keep", metavar="MODULE|NAME", help="A layer that stays in float, or a pattern; repeatable."),
    ] = None,
    group: Annotated[
        int, typer.Option("--group", min=2, help="Of weights-int4: weights of a row that share a scale.")
    ] = 128,
    bound: Annotated[
        float, typer.Option("--bound", metavar="DB", help="Signal-to-noise ratio that tensors are to have.")
    ] = 20.0,
    target: Annotated[
        str, typer.Option("--target", metavar="TARGET", help="What it is for, as 'covan compile' takes it.")
    ] = "cpu",
    report: Annotated[
        str | None, typer.Option("--report", metavar="FILE.json", help="Write what it costs as JSON, too.")
    ] = None,
    seed: Seed = 0,
    debug: Debug = False,
) -> None:
    """Quantise a model with calibration data, and tell which layers it costs most in.

    The result is an exported program (.pt2), which 'covan compile' takes, or an artifact (.covan).

    \b
    covan quantize model.py:make --calibration images.npz -o model.covan
    covan quantize model.py:make --calibration images.npz --keep head --keep 'blocks.0.*' --report cost.json
    covan quantize model.py:make --mode weights-int4 --group 64
    """
    from covan_mlir.artifacts import artifact
    from covan_mlir.tools import cli_inputs, cli_models

    if calibration is None and mode == "int8":
        raise CliError("int8 needs calibration data", "give --calibration FILE.npz, or another --mode", code=2)
    parsed = [cli_inputs.parse(text) for text in inputs or ()]
    path, factory = cli_models.split(model)
    destination = Path(output or f"{path.stem}.pt2")
    if destination.suffix not in (".pt2", ".covan"):
        raise CliError(f"{destination}: neither a .pt2 nor a .covan file", "name one of them with --output", code=2)
    if destination.resolve() == path.resolve():
        raise CliError(f"{destination} is the model itself", "name another file with --output", code=2)
    artifact.check_writable(destination)
    with Progress("importing torch") as progress:
        import covan_mlir

        progress(f"loading {path.name}")
        example = cli_models.load(path, factory, parsed, seed)
        with torch_is_quiet(context.ensure_object(Session).debug):
            quantized = covan_mlir.quantize(
                example.model,
                calibration,
                example.args,
                example.kwargs,
                mode=mode,
                activations=activations,
                observer=observer,
                keep=keep or (),
                group=group,
                bound_db=bound,
                target=target,
                progress=progress,
            )
            _save(quantized, destination, progress)
    if report is not None:
        _write(report, json.dumps(quantized.report.to_json(), indent=1).encode())
    print(quantized.report, end="")


def _save(quantized: Quantized, destination: Path, progress: Progress) -> None:
    if destination.suffix == ".covan":
        executable = quantized.compile(progress=progress, target=quantized.report.scheme.target)
        progress("saving")
        executable.save(destination)
        return
    import torch

    progress("saving")
    held = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch's own, about its own pytree classes
        torch.export.save(quantized.exported, held)
    _write(str(destination), held.getvalue())


def _write(path: str, data: bytes) -> None:
    try:
        whole_file.write(path, data)
    except OSError as error:
        raise CliError(f"{path}: cannot be written: {error.strerror}", "choose another path") from error
