"""``covan extract``: an artifact's program for IREE's own tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from covan_mlir.tools.cli_common import Progress
from covan_mlir.tools.cli_options import Artifact, Debug, Inputs, OneTarget, Seed


def extract(
    file: Artifact,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="DIR", help="A new folder; default: the artifact's name, here."),
    ] = None,
    inputs: Inputs = None,
    target: OneTarget = None,
    seed: Seed = 0,
    debug: Debug = False,
) -> None:
    """Write a program, its weights and the one command that runs it without covan and without Python.

    The folder has the program, its weights as IREE's parameter archive, the inputs of one call (those of 'covan run')
    and run.sh, which calls iree-run-module. Nothing of the artifact runs.

    \b
    covan extract model.covan -o model
    covan extract model.covan -o model -i image.npy
    sh model/run.sh
    """
    import numpy as np

    from covan_mlir.artifacts.variant import choose
    from covan_mlir.runtime import extract as folders
    from covan_mlir.runtime import loading
    from covan_mlir.tools import cli_inputs

    parsed = [cli_inputs.parse(text) for text in inputs or ()]
    folder = output or Path(file).stem
    with Progress(f"reading {Path(file).name}") as progress:
        compiled = loading.read(file)
        leaves = cli_inputs.leaves(compiled.signature, parsed, np.random.default_rng(seed))
        progress(f"writing {folder}")
        driver = folders.extract(compiled, choose(compiled.variants, target), leaves, folder)
    print(f"{folder}: sh {Path(folder) / 'run.sh'} runs it on {driver}")
