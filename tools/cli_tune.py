"""``covan tune`` and ``covan records``: kernels that are measured to be the best on this machine."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from covan_mlir.support import whole_file
from covan_mlir.tools.cli_common import CliError, Progress, torch_is_quiet
from covan_mlir.tools.cli_options import MODEL, Debug, Inputs, Seed, Session

Records = Annotated[
    str | None,
    typer.Option("--records", metavar="FILE", help="The file of measured schedules; default: the user's own."),
]


def tune(
    context: typer.Context,
    models: Annotated[list[str], typer.Argument(metavar=f"{MODEL}...", help="The models.")],
    inputs: Inputs = None,
    minutes: Annotated[float, typer.Option("--minutes", help="How long to measure, about.")] = 10.0,
    records: Records = None,
    limit: Annotated[
        list[float] | None,
        typer.Option("--limit", metavar="MS", min=0.0, help="Of each model in turn: enough for a call; 0: nothing is."),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option("--scheduler", metavar="ADDRESS", help="Measure on the workers of Dask's scheduler there."),
    ] = None,
    html: Annotated[
        str | None, typer.Option("--html", metavar="FILE.html", help="Write a page with each kernel's curve, too.")
    ] = None,
    winograd: Annotated[int, typer.Option("--winograd", min=0, metavar="TIMES", help="As of 'covan compile'.")] = 4,
    sketches: Annotated[
        bool, typer.Option("--sketches", help="Print the structures that kernels may have, and measure nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON (docs/tuning.md).")] = False,
    seed: Seed = 0,
    debug: Debug = False,
) -> None:
    """Measure schedules of models' kernels on this machine. Compilations take the best from then on.

    Several models are tuned as one: the sum of their calls' times becomes less, or what is above their limits.
    What was measured is kept when it is stopped, and not measured again. Nothing else should run meanwhile.

    \b
    covan tune model.py:make --minutes 10
    covan tune model.py:Net -i 1x3x224x224xf32 --records tuned.sqlite
    covan tune first.py:make second.py:make --limit 2.5 --limit 0
    covan tune model.py:make --scheduler tcp://10.0.0.1:8786
    covan tune model.py:make --sketches
    """
    from covan_mlir.tools import cli_inputs, cli_models

    parsed = [cli_inputs.parse(text) for text in inputs or ()]
    named = [cli_models.split(model) for model in models]
    if len(named) > 1 and parsed:
        raise CliError("-i gives the inputs of one model", "let the factories of several give them", code=2)
    if limit and len(limit) != len(named):
        raise CliError(f"--limit is given {len(limit)} times for {len(named)} models", "give it for each", code=2)
    if not minutes > 0:
        raise CliError(f"--minutes {minutes:g} is no time to measure in", "give a positive number", code=2)
    with Progress("importing torch") as progress:
        import covan_mlir
        from covan_mlir import tuner
        from covan_mlir.tuning import page

        given = []
        for path, factory in named:
            progress(f"loading {path.name}")
            example = cli_models.load(path, factory, parsed, seed)
            given.append((example.model, example.args, example.kwargs))
        options = covan_mlir.CompileOptions(winograd=winograd)
        with torch_is_quiet(context.ensure_object(Session).debug):
            if sketches:
                texts = [tuner.sketches(*each, options=options, progress=progress) for each in given]
            else:
                tunings = covan_mlir.tune_models(
                    given,
                    minutes=minutes,
                    limits=[1e-3 * each for each in limit or ()],
                    records=records,
                    scheduler=scheduler,
                    options=options,
                    progress=progress,
                )
                if html is not None:
                    page.write(html, dict(zip(models, tunings, strict=True)))
                if as_json:
                    rows = [{"model": model, **asdict(each)} for model, each in zip(models, tunings, strict=True)]
                    print(json.dumps(rows[0] if len(rows) == 1 else rows, indent=1))
                    return
                texts = [str(each) for each in tunings]
    for model, text in zip(models, texts, strict=True):
        print(f"{model}\n{text}" if len(models) > 1 else text, end="")


def worker(
    scheduler: Annotated[str, typer.Argument(metavar="ADDRESS", help="Of Dask's scheduler: tcp://HOST:PORT.")],
    debug: Debug = False,
) -> None:
    """Measure kernels for 'covan tune --scheduler', on machines like this one, until the scheduler is gone.

    Whoever can talk to the scheduler can run code here: let trusted networks alone do so.

    \b
    dask scheduler
    covan worker tcp://10.0.0.1:8786
    """
    from covan_mlir.lowering.kernels import database
    from covan_mlir.machine import host
    from covan_mlir.tuning import remote

    remote.work(scheduler, database.Setting.of("cpu", host.host(measure=False)))


def records_(
    records: Records = None,
    export: Annotated[
        str | None, typer.Option("--export", metavar="FILE.jsonl", help="Write all records as lines of JSON; -: here.")
    ] = None,
    read: Annotated[
        str | None, typer.Option("--import", metavar="FILE.jsonl", help="Add the records that --export wrote.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Show what was measured on this machine and what compilations take of it; export it, or import another machine's.

    \b
    covan records
    covan records --export tuned.jsonl
    covan records --import tuned.jsonl --records other.sqlite
    """
    from covan_mlir.lowering.kernels import database
    from covan_mlir.machine import host

    if export is not None and read is not None:
        raise CliError("--export and --import are two directions", "give one of them", code=2)
    path = Path(records) if records else database.default_path()
    if path is None:
        raise CliError("no records are kept", f"unset {database.VARIABLE}, or name a file with --records")
    if read is not None:
        try:
            lines = Path(read).read_bytes().splitlines()
        except OSError as error:
            raise CliError(f"{read}: {error.strerror}", "check the path") from error
        with database.Database(path) as opened:
            print(f"{path}: {opened.read_lines(lines)} records added")
        return
    if not path.exists():
        raise CliError(f"{path}: there are no records", "'covan tune' writes some")
    with database.Database(path, "read") as opened:
        if export is not None:
            text = b"".join(opened.export())
            if export == "-":
                sys.stdout.write(text.decode())
                return
            try:
                whole_file.write(export, text)
            except OSError as error:
                raise CliError(f"{export}: cannot be written: {error.strerror}", "choose another path") from error
            return
        setting = database.Setting.of("cpu", host.host(measure=False))
        chosen, stale = opened.chosen(setting), opened.stale(setting)
        timed = opened.measurements(setting)
    print(
        f"{path}: {len(timed)} schedules of {len({row.workload for row in timed})} kernels were timed on this machine"
    )
    print(f"of {len(chosen)} kernels compilations take a schedule that was measured")
    if stale:
        print(f"of {stale} kernels schedules were measured with other versions, and are not used: tune again")
