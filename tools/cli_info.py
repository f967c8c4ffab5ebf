"""``covan info``: what an ONNX file takes and computes, and what of it is not compiled, before anything is."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from covan_mlir.tools.cli_common import CliError, Progress
from covan_mlir.tools.cli_options import Debug


def info(
    file: Annotated[str, typer.Argument(metavar="FILE.onnx", help="The model.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON (docs/cli.md).")] = False,
    debug: Debug = False,
) -> None:
    """Show the inputs, results and operators of an ONNX file, and all that has no translation.

    Exits with 0 if everything is translated, 1 if not.

    \b
    covan info model.onnx
    covan info model.onnx --json
    """
    if Path(file).suffix != ".onnx":
        raise CliError(f"{file}: not an ONNX file", "give FILE.onnx", code=2)
    with Progress(f"reading {Path(file).name}"):
        try:
            from covan_mlir.frontend.onnx.info import told
        except ModuleNotFoundError as error:
            if error.name != "onnx":
                raise
            raise CliError("ONNX models need the package onnx", "pip install 'covan-mlir[onnx]'") from error
        facts = told(file)
    print(json.dumps(asdict(facts), indent=1) if as_json else facts)
    raise typer.Exit(1 if facts.unsupported else 0)
