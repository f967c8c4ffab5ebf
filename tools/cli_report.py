"""``covan report``: an artifact's provenance as one HTML file."""

from __future__ import annotations

import json
import os
import webbrowser
from pathlib import Path
from typing import Annotated, Literal

import typer

from covan_mlir.tools.cli_common import CliError, Progress
from covan_mlir.tools.cli_options import Artifact, Debug, OneTarget

_ENDINGS = {"html": ".html", "model-explorer": ".json", "graphviz": ".dot"}


def report(
    file: Artifact,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Default: the artifact's name, here.")
    ] = None,
    form: Annotated[
        Literal["html", "model-explorer", "graphviz"], typer.Option("--format", help="For whom it is written.")
    ] = "html",
    source: Annotated[
        bool, typer.Option("--source/--no-source", help="Show the text of source lines whose files are here.")
    ] = True,
    profile: Annotated[
        str | None,
        typer.Option("--profile", metavar="FILE.json", help="What 'covan profile --save' wrote: colours by time."),
    ] = None,
    comparison: Annotated[
        str | None,
        typer.Option(
            "--comparison", metavar="FILE.json", help="What 'covan compare --json' printed: colours by error."
        ),
    ] = None,
    target: OneTarget = None,
    show: Annotated[bool, typer.Option("--open/--no-open", help="Show it in a browser.")] = False,
    debug: Debug = False,
) -> None:
    """Write source code, source graph and compiled graph side by side, as one HTML file.

    Needs neither torch nor a runtime.

    \b
    covan report model.covan
    covan report model.covan -o out.html --open
    covan report model.covan --profile profile.json --comparison comparison.json
    covan report model.covan --format model-explorer -o model.json
    """
    if form != "html" and (profile is not None or comparison is not None):
        raise CliError(
            f"--format {form} has neither times nor errors", "leave it or --profile and --comparison out", code=2
        )
    from covan_mlir.artifacts import artifact
    from covan_mlir.provenance import bipartite
    from covan_mlir.reporting import document, model_explorer
    from covan_mlir.reporting import report as page

    path = Path(output or f"{Path(file).stem or 'report'}{_ENDINGS[form]}")
    if _same(path, file):
        raise CliError(f"{path} is the artifact itself", "give another --output", code=2)
    with Progress(f"reading {Path(file).name}") as tell:
        contents = artifact.read(file)
        variant = contents.variant(target)
        lineage = variant.lineage
        if not lineage.actions:
            raise CliError(f"{file} has no lineage", "compile the model again without --no-provenance")
        times = None
        if profile is not None:
            from covan_mlir.profiling import store

            times = store.load(profile, [variant])
        errors = None
        if comparison is not None:
            from covan_mlir.reporting import saved

            errors = saved.comparison(comparison, lineage)
        tell("writing the report")
        if form == "html":
            page.write(
                path,
                lineage,
                title=Path(file).name,
                target=variant.target,
                profile=times,
                comparison=errors,
                source=source,
                written=os.stat(file).st_mtime,
            )
        elif form == "graphviz":
            document.save(path, bipartite.dot(lineage, lineage.actions))
        else:
            document.save(path, json.dumps(model_explorer.collection(lineage)))
    print(f"{path}: {os.stat(path).st_size / 1024:.0f} KiB")
    if show:
        webbrowser.open(path.resolve().as_uri())


def _same(path: Path, file: str) -> bool:
    try:
        return os.path.samefile(path, file)
    except OSError:  # one is not there, or may not be looked at: told where it is read or written
        return False
