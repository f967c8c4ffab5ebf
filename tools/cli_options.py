"""Options and arguments that several of covan's commands take."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Annotated

import typer

MODEL = "FILE.py:FACTORY|FILE"
"""How help calls a model."""
MODEL_FILES = ".pt2, .onnx, .tflite, .keras, .jax or .mlir, or the folder of a SavedModel"
"""What files are models."""


@dataclass
class Session:
    """What one command line asked for beside its command."""

    debug: bool = False


def _set_debug(context: typer.Context, value: bool) -> None:
    if value:
        context.ensure_object(Session).debug = True
        logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")


Debug = Annotated[
    bool, typer.Option("--debug", callback=_set_debug, is_eager=True, help="Show tracebacks and what compilers said.")
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        metavar="INPUT",
        help="SHAPExDTYPE (random), SHAPExDTYPE=VALUE, FILE.npy, or a number; once per tensor, in order.",
    ),
]
Attach = Annotated[
    list[str] | None,
    typer.Option(
        "--attach",
        metavar="WHAT=FILE.py:FUNCTION[:tap|replace]",
        help="Attach a function (or FILE.mlir) to an action, module or FILE.py:LINE; may be repeated.",
    ),
]
IreeFlags = Annotated[
    list[str] | None, typer.Option("--iree-flag", metavar="FLAG", help="Passed to IREE; may be repeated.")
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of random inputs.")]
FromModel = Annotated[str | None, typer.Option("--model", "-m", metavar=MODEL, help="What it was compiled from.")]
Artifact = Annotated[str, typer.Argument(metavar="FILE.covan", help="An artifact that 'covan compile' wrote.")]
OneTarget = Annotated[
    str | None, typer.Option("--target", help="Of an artifact with programs for several, which; else the first.")
]
PublicKey = Annotated[
    str | None,
    typer.Option(
        "--key", metavar="FILE.pub", help="Refuse the artifact unless FILE.covan.sig is this key's signature."
    ),
]
