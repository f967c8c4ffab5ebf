"""``covan diff``: what changed between two compilations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from covan_mlir.tools.cli_common import CliError, Progress
from covan_mlir.tools.cli_options import Debug, OneTarget


def diff(
    before: Annotated[str, typer.Argument(metavar="A.covan", help="The compilation before.")],
    after: Annotated[str, typer.Argument(metavar="B.covan", help="The one after.")],
    profile_before: Annotated[
        str | None,
        typer.Option("--profile-before", metavar="FILE.json", help="What 'covan profile A.covan --save' wrote."),
    ] = None,
    profile_after: Annotated[
        str | None,
        typer.Option("--profile-after", metavar="FILE.json", help="What 'covan profile B.covan --save' wrote."),
    ] = None,
    target: OneTarget = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON (docs/cli.md).")] = False,
    debug: Debug = False,
) -> None:
    """Show what changed between two compilations: of an edited model, with other options, by another compiler.

    Actions, fates, kernels, and times by source line: predicted ones, or those of two profiles. Nothing runs.

    \b
    covan diff before.covan after.covan
    covan diff before.covan after.covan --profile-before before.json --profile-after after.json
    covan diff before.covan after.covan --json
    """
    if (profile_before is None) != (profile_after is None):
        raise CliError("times are compared of two profiles", "give --profile-before and --profile-after", code=2)
    from covan_mlir.artifacts import artifact
    from covan_mlir.machine.host import host
    from covan_mlir.profiling import store
    from covan_mlir.profiling.differences.difference import Compilation, difference
    from covan_mlir.profiling.differences.predicted import predicted
    from covan_mlir.profiling.differences.text import text

    sides = []
    with Progress(f"reading {Path(before).name}") as tell:
        for file, profile in ((before, profile_before), (after, profile_after)):
            tell(f"reading {Path(file).name}")
            contents = artifact.read(file)
            variant = contents.variant(target)
            measured = store.load(profile, [variant]) if profile is not None else None
            times = measured or predicted(variant, contents.signature, host(measure=False))
            sides.append(Compilation(contents, variant, times))
        tell("comparing")
        kind: Literal["predicted", "profiled"] = "predicted" if profile_before is None else "profiled"
        changes = difference(sides[0], sides[1], kind)
    print(json.dumps(changes.to_json(), indent=1) if as_json else text(changes), end="\n" if as_json else "")
