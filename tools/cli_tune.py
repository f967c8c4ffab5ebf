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
from covan_mlir.tools.cli_options import Debug, Inputs, Seed, Session

Records = Annotated[
    str | None,
    typer.Option("--records", metavar="FILE", help="The file of measured schedules; default: the user's own."),
]


def tune(
    context: typer.Context,
    model: Annotated[str, typer.Argument(metavar="FILE.py:FACTORY|FILE.pt2", help="The model.")],
    inputs: Inputs = None,
    minutes: Annotated[float, typer.Option("--minutes", help="How long to measure, about.")] = 10.0,
    records: Records = None,
    winograd: Annotated[int, typer.Option("--winograd", min=0, metavar="TIMES", help="As of 'covan compile'.")] = 4,
    sketches: Annotated[
        bool, typer.Option("--sketches", help="Print the structures that kernels may have, and measure nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON (docs/tuning.md).")] = False,
    seed: Seed = 0,
    debug: Debug = False,
) -> None:
    """Measure schedules of a model's kernels on this machine. Compilations take the best from then on.

    What was measured is kept when it is stopped, and not measured again. Nothing else should run meanwhile.

    \b
    covan tune model.py:make --minutes 10
    covan tune model.py:Net -i 1x3x224x224xf32 --records tuned.sqlite
    covan tune model.py:make --sketches
    """
    from covan_mlir.tools import cli_inputs, cli_models

    parsed = [cli_inputs.parse(text) for text in inputs or ()]
    path, factory = cli_models.split(model)
    if not minutes > 0:
        raise CliError(f"--minutes {minutes:g} is no time to measure in", "give a positive number", code=2)
    with Progress("importing torch") as progress:
        import covan_mlir
        from covan_mlir import tuner

        progress(f"loading {path.name}")
        example = cli_models.load(path, factory, parsed, seed)
        options = covan_mlir.CompileOptions(winograd=winograd)
        given = (example.model, example.args, example.kwargs)
        with torch_is_quiet(context.ensure_object(Session).debug):
            if sketches:
                text = tuner.sketches(*given, options=options, progress=progress)
            else:
                tuning = covan_mlir.tune(*given, minutes=minutes, records=records, options=options, progress=progress)
                text = json.dumps(asdict(tuning), indent=1) + "\n" if as_json else str(tuning)
    print(text, end="")


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
