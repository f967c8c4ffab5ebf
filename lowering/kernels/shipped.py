"""Schedules that are shipped with the package: measured on some machine of the same kind as the one that compiles.

A file for each kind of machine (`shipped_records/`): the first line says what was measured on, and with which compiler;
the others are schedules (`Recorded`), each with its `Condition`. Machines of a kind have other speeds, and a schedule
that is slower on one must not be taken there. So these have to hold:

- it was faster than what was predicted to be the best by `MARGIN`, alone, and inside of a program, too;
- the same is predicted to be the best here, and both kernels are the same code, to the letter: so neither other caches,
  nor other cores, nor another version of a template are between what was measured and what is compiled;
- the compiler has the same version.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import msgspec

from covan_mlir.errors import RecordsError
from covan_mlir.fred import chain_json
from covan_mlir.lowering.kernels.database import Database, Setting, compiler_version
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.recorded import Condition, Recorded, code_digest, compact
from covan_mlir.lowering.kernels.select import choices
from covan_mlir.lowering.kernels.target import KernelTarget
from covan_mlir.machine.description import Machine

log = logging.getLogger(__name__)

MARGIN = 0.95
"""Time alone over that of what was predicted to be the best, above which a schedule is not shipped."""
FOLDER = Path(__file__).parent / "shipped_records"


class Origin(msgspec.Struct, frozen=True):
    """What shipped schedules were measured on.

    Attributes:
        processor: its name, and how many cores were used.
        compiler: its version.
    """

    processor: str
    compiler: str


_origins: msgspec.json.Decoder[Origin] = msgspec.json.Decoder(Origin)
_records: msgspec.json.Decoder[Recorded] = msgspec.json.Decoder(Recorded)


def machine_kind(kind: str, machine: Machine) -> str:
    """The name of what a machine has in common with others that run the same code."""
    return f"{kind}-{machine.architecture}-{machine.vector_bits}"


def schedules(kind: str, machine: Machine, folder: Path = FOLDER) -> tuple[Recorded, ...]:
    """The schedules for machines of a kind, if this version's compiler compiled them; each has its condition.

    Raises:
        RecordsError: a shipped file holds something else.
    """
    return _read(folder / f"{machine_kind(kind, machine)}.jsonl", compiler_version())


@lru_cache(8)
def _read(path: Path, compiler: str) -> tuple[Recorded, ...]:
    if not path.exists():
        return ()
    try:
        first, *lines = path.read_bytes().splitlines()
        origin, records = _origins.decode(first), tuple(_records.decode(line) for line in lines)
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise RecordsError(f"{path}: no records: {error}\ninstall the package again") from error
    if origin.compiler != compiler:
        log.info("shipped schedules were measured with version %s of the compiler, and are not used", origin.compiler)
        return ()
    if any(record.condition is None for record in records):
        raise RecordsError(f"{path}: a schedule holds without a condition\ninstall the package again")
    return records


def lines(database: Database, setting: Setting, target: KernelTarget, processor: str) -> Iterator[bytes]:
    """What a file of shipped schedules holds, of what was measured and chosen on this machine.

    Args:
        target: that kernels were measured for.
        processor: see `Origin`.
    """
    yield msgspec.json.encode(Origin(processor, compiler_version())) + b"\n"
    chains = database.workloads()
    for record in database.chosen(setting):
        condition = _condition(database, setting, target, record, chains[record.workload])
        if condition is not None:
            shipped = Recorded(record.workload, record.template, record.schedule, record.seconds, condition)
            yield msgspec.json.encode(shipped) + b"\n"


def _condition(
    database: Database, setting: Setting, target: KernelTarget, record: Recorded, chain: str
) -> Condition | None:
    """That under which a schedule may be taken elsewhere; None: it is not fast enough for that."""
    listed = choices(chain_json.load(json.loads(chain)), target)
    if isinstance(listed, Refusal):
        return None
    first = listed.candidates[0]
    against = f"{first.template.name} {compact(first.first.to_json())}"
    timed = next(
        (
            row
            for row in database.measurements(setting, record.workload)
            if (row.template, row.schedule, row.against) == (record.template, record.schedule, against)
        ),
        None,
    )
    if timed is None or not timed.seconds or not timed.reference or timed.seconds > MARGIN * timed.reference:
        return None
    candidate, schedule = listed.scheduled(record.template, json.loads(record.schedule))
    written = [candidate.write(schedule, "kernel"), first.write(first.first, "kernel")]
    digests = [code_digest(each.executable) for each in written if not isinstance(each, Refusal)]
    return Condition(against, *digests) if len(digests) == 2 else None
