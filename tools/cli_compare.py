"""``covan compare``: an artifact against the model that it was compiled from, in eager PyTorch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from covan_mlir.tools.cli_common import CliError, Progress, torch_is_quiet
from covan_mlir.tools.cli_options import MODEL, Artifact, Attach, Debug, FromModel, Inputs, IreeFlags, Seed, Session

if TYPE_CHECKING:
    from covan_mlir.checking.verdict import Verification
    from covan_mlir.comparing.compare import CompareOptions
    from covan_mlir.executable import Executable
    from covan_mlir.tools import cli_models

    Given = tuple[Executable, cli_models.Example, tuple[Any, ...], dict[str, Any]]

_MIB = 1 << 20


def compare(
    context: typer.Context,
    file: Artifact,
    model: FromModel = None,
    inputs: Inputs = None,
    rtol: Annotated[
        float | None, typer.Option("--rtol", min=0, help="Allow this relative error, and nothing for rounding.")
    ] = None,
    atol: Annotated[
        float | None, typer.Option("--atol", min=0, help="Allow this absolute error, and nothing for rounding.")
    ] = None,
    attach: Attach = None,
    iree_flag: IreeFlags = None,
    memory: Annotated[
        int | None, typer.Option("--memory", min=1, metavar="MIB", help="Of tensors observed at once.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON (docs/comparing.md).")] = False,
    seed: Seed = 0,
    debug: Debug = False,
) -> None:
    """Compare every tensor of an artifact with eager PyTorch, and name the first that is wrong.

    Inputs are the factory's own, unless given. Exits with 0 if the artifact agrees, 1 if not.

    \b
    covan compare model.covan --model model.py:make
    covan compare model.covan --model model.py:Net -i image.npy
    covan compare model.covan --model exported.pt2 --rtol 1e-3 --atol 1e-5 --json
    """
    require_model(file, model)
    with Progress("importing torch") as progress:
        from covan_mlir.comparing.measure import Tolerance

        tolerance = Tolerance()
        if rtol is not None or atol is not None:
            tolerance = Tolerance(eager=0, ulps=0, rtol=rtol or 0, atol=atol or 0)
        progress(f"loading {Path(file).name}")
        executable, example, args, kwargs = with_model(file, str(model), inputs or (), seed)
        options = replace(again(attach or (), iree_flag or ()), tolerance=tolerance, memory=memory and memory * _MIB)
        with torch_is_quiet(context.ensure_object(Session).debug):
            comparison = executable.compare(
                *args,
                model=example.model,
                options=options,
                progress=progress,
                **kwargs,
            )
    if as_json:
        print(json.dumps(comparison.to_json(), indent=1))
    else:
        print(comparison, end="")
    raise typer.Exit(0 if comparison else 1)


def require_model(file: str, model: str | None) -> None:
    """Raises CliError unless there is a model to compare with."""
    if model is None:
        raise CliError(
            f"{file} does not hold the model, which is needed to compare with",
            f"give --model {MODEL}",
            code=2,
        )


def with_values(
    context: typer.Context, verdict: Verification, given: Given, attach: Sequence[str], iree_flag: Sequence[str]
) -> Verification:
    """A verification and the check of values."""
    from covan_mlir.checking.verdict import Verification
    from covan_mlir.comparing.values import check_values

    executable, example, args, kwargs = given
    leaves = executable.checked(args, kwargs).leaves
    options = again(attach, iree_flag)
    with torch_is_quiet(context.ensure_object(Session).debug):
        check = check_values(executable, None, leaves, example.model, (args, kwargs), options)
    return Verification((*verdict.checks, check))


def again(attach: Sequence[str], iree_flag: Sequence[str]) -> CompareOptions:
    """With what an artifact was compiled that runs code: it is said once more, and not taken from the file."""
    from covan_mlir.comparing.compare import CompareOptions
    from covan_mlir.compilation.options import CompileOptions
    from covan_mlir.tools import cli_models

    compiled_with = CompileOptions(iree_flags=tuple(iree_flag))
    return CompareOptions(attach=cli_models.attached(attach), compiled_with=compiled_with)


def with_model(file: str, model: str, inputs: Sequence[str], seed: int) -> Given:
    """An artifact, the model that it was compiled from, and arguments: the factory's own, or as ``inputs`` say."""
    import numpy as np

    import covan_mlir
    from covan_mlir.tools import cli_inputs, cli_models

    parsed = [cli_inputs.parse(text) for text in inputs]
    executable = covan_mlir.load(file)
    example = cli_models.without_inputs(*cli_models.split(model))
    args: Any = example.args
    kwargs: Any = example.kwargs
    if parsed or not (args or kwargs):
        args, kwargs = cli_inputs.arguments(executable.signature, parsed, np.random.default_rng(seed))
    return executable, example, tuple(args), dict(kwargs)
