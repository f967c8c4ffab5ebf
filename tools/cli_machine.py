"""``covan devices``, ``covan machine`` and ``covan cache``: what is here."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from covan_mlir.tools.cli_common import CliError, amount
from covan_mlir.tools.cli_options import Debug


def devices(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON (docs/cli.md).")] = False,
    debug: Debug = False,
) -> None:
    """List the devices of this machine, their limits, and which targets' programs they run."""
    from covan_mlir.lowering.targets import available

    rows = available.rows()
    if as_json:
        print(json.dumps(rows, indent=1))
    else:
        print(available.text(rows), end="")


def machine(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, as COVAN_MACHINE takes it.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Measure anew; of each figure the higher counts.")] = False,
    debug: Debug = False,
) -> None:
    """Show what is known of this machine's CPU, which estimates are made with; measures it, the first time."""
    from dataclasses import asdict

    from covan_mlir.machine import host

    known = host.remeasured() if again else host.host()
    print(json.dumps(asdict(known), indent=1) if as_json else known.text())


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove all of them.")] = False,
    debug: Debug = False,
) -> None:
    """Show where compiled programs and kernels are kept, how many, and how large they are."""
    from covan_mlir.lowering.cache import answers

    stores = {"programs": answers.store(), "kernels": answers.kernels()}
    if not any(stores.values()):
        raise CliError("compiled programs are not kept", f"unset {answers.VARIABLE}, or set it to a folder")
    for name, store in stores.items():
        if store is None:
            print(f"{name} are not kept")
            continue
        try:
            if clear:
                store.clear()
            sizes = store.sizes()
        except OSError as error:
            raise CliError(str(error), f"remove {store.folder}, or set {answers.VARIABLE} to another folder") from error
        print(f"{store.folder}: {len(sizes)} {name}, {amount(sum(sizes))} of at most {amount(store.limit)}")
