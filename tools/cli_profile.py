"""``covan profile``: which lines, modules and kernels the time of a call goes to."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from covan_mlir.support import whole_file
from covan_mlir.tools.cli_common import CliError, Progress
from covan_mlir.tools.cli_options import Artifact, Debug, Inputs, Seed

_FILE = "FILE"


def profile(
    file: Artifact,
    inputs: Inputs = None,
    repeat: Annotated[int, typer.Option("--repeat", min=1, help="How many calls are timed.")] = 50,
    by: Annotated[
        Literal["line", "module", "stage", "site"], typer.Option("--by", help="What the time is told by.")
    ] = "line",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON (docs/profiling.md).")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print the table as comma-separated values.")] = False,
    perfetto: Annotated[
        str | None, typer.Option("--perfetto", metavar=_FILE, help="Write a trace for ui.perfetto.dev and Chrome.")
    ] = None,
    speedscope: Annotated[
        str | None, typer.Option("--speedscope", metavar=_FILE, help="Write a flame graph for speedscope.app.")
    ] = None,
    collapsed: Annotated[
        str | None, typer.Option("--collapsed", metavar=_FILE, help="Write collapsed stacks for a flame graph.")
    ] = None,
    save: Annotated[str | None, typer.Option("--save", metavar=_FILE, help="Write the profile, for --from.")] = None,
    source: Annotated[
        str | None, typer.Option("--from", metavar=_FILE, help="Show a saved profile of this program; run nothing.")
    ] = None,
    seed: Seed = 0,
    debug: Debug = False,
) -> None:
    """Time each kernel of an artifact, and tell which lines of the model the time goes to. Does not need torch.

    Inputs are those of 'covan run'. Kernels that several lines share are divided by an estimate, which is marked.

    \b
    covan profile model.covan
    covan profile model.covan -i image.npy --by module
    covan profile model.covan --repeat 200 --by site --csv
    covan profile model.covan --perfetto trace.json --speedscope flame.json
    """
    if as_json and as_csv:
        raise CliError("--json and --csv are two forms of one answer", "give one of them", code=2)
    if source is not None and (inputs or save):
        raise CliError("--from runs nothing", "leave --input and --save out", code=2)
    exports = [("--perfetto", perfetto), ("--speedscope", speedscope), ("--collapsed", collapsed), ("--save", save)]
    for option, path in exports:
        _check(option, path)
    measured = _saved(file, source) if source is not None else _measured(file, inputs or [], repeat, seed)
    writers: dict[str, Any] = {
        "--perfetto": lambda: json.dumps(measured.to_chrome_trace()),
        "--speedscope": lambda: json.dumps(measured.to_speedscope()),
        "--collapsed": measured.to_collapsed,
        "--save": lambda: json.dumps(measured.to_json()),
    }
    for option, path in exports:
        if path is not None:
            _write(option, path, writers[option]())
    if as_json:
        print(json.dumps(measured.to_json(), indent=1))
    elif as_csv:
        print(measured.to_csv(by), end="")
    else:
        print(measured.table(by), end="")


def _measured(file: str, inputs: list[str], repeat: int, seed: int) -> Any:
    import numpy as np

    import covan_mlir
    from covan_mlir.tools import cli_inputs

    parsed = [cli_inputs.parse(text) for text in inputs]
    with Progress(f"loading {Path(file).name}") as tell:
        executable = covan_mlir.load(file)
        args, kwargs = cli_inputs.arguments(executable.signature, parsed, np.random.default_rng(seed))
        tell("profiling")
        return executable.profile(*args, repeat=repeat, **kwargs)


def _saved(file: str, source: str) -> Any:
    from covan_mlir.artifacts import artifact
    from covan_mlir.profiling.profile import Profile

    return Profile.load(source, artifact.read(file))


def _check(option: str, path: str | None) -> None:
    """Before anything slow begins."""
    if path is None:
        return
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not os.path.isdir(folder):
        reason = "it is a directory" if os.path.isdir(path) else f"there is no folder {folder}"
        raise CliError(f"{path}: cannot be written: {reason}", f"choose another path for {option}")


def _write(option: str, path: str, text: str) -> None:
    try:
        whole_file.write(path, text.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise CliError(
            f"{path}: cannot be written: {error.strerror or error}", f"choose another path for {option}"
        ) from error
