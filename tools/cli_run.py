"""``covan run``: an artifact's program, once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from covan_mlir.tools.cli_common import CliError, Progress
from covan_mlir.tools.cli_options import Artifact, Debug, Inputs, PublicKey, Seed


def run(
    file: Artifact,
    inputs: Inputs = None,
    output: Annotated[
        list[str] | None,
        typer.Option("--output", "-o", metavar="FILE.npy", help="Save an output; once per output, in order."),
    ] = None,
    seed: Seed = 0,
    isolated: Annotated[
        bool, typer.Option("--isolated", help="In a process of its own: what happens there harms nobody.")
    ] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, metavar="SECONDS", help="With --isolated: of loading, and of the call.")
    ] = 60.0,
    memory: Annotated[
        int, typer.Option("--memory", min=1, metavar="MIB", help="With --isolated: what the process may take.")
    ] = 4096,
    key: PublicKey = None,
    debug: Debug = False,
) -> None:
    """Run an artifact and summarise its outputs. Does not need torch.

    Inputs that are not given are random; sizes left open when compiling have to be given.

    \b
    covan run model.covan
    covan run model.covan -i image.npy -o logits.npy
    covan run model.covan -i 4x128xi64 -i 4x128xbool=true --seed 7
    covan run foreign.covan --isolated --timeout 10 --memory 500
    covan run model.covan --key releases.pub
    """
    import numpy as np

    import covan_mlir
    from covan_mlir.artifacts import pytree
    from covan_mlir.tools import cli_inputs, cli_values

    parsed = [cli_inputs.parse(text) for text in inputs or ()]
    for path in output or ():
        cli_values.check_output(path)
    with Progress(f"loading {Path(file).name}") as progress:
        limits = covan_mlir.Isolation(timeout or None, memory << 20) if isolated else False
        executable = covan_mlir.load(file, isolated=limits, key=key)
        signature = executable.signature
        if output and len(output) > len(signature.outputs):
            hint = "give at most one --output per output"
            raise CliError(f"the program has {len(signature.outputs)} outputs; {len(output)} files given", hint)
        args, kwargs = cli_inputs.arguments(signature, parsed, np.random.default_rng(seed))
        progress("running")
        results, taps = executable.call_with_attachments(*args, **kwargs)
        leaves: list[Any] = pytree.flatten(results)[0]
    for index, value in enumerate(leaves):
        print(f"output {index}: {cli_values.summary(value)}")
    for name, tap in taps.items():
        given: list[Any] = pytree.flatten(tap)[0]
        for value in given:
            print(f"tap {name}: {cli_values.summary(value)}")
    for path, value in zip(output or (), leaves, strict=False):
        cli_values.save(path, value)
