"""Schedules that are shipped with the package: measured on some machine of the same kind as the one that compiles.

A file for each kind of machine (`shipped_records/`): the first line says what was measured on, and with which compiler;
the others are schedules (`Recorded`), each with its `Condition` and the chain that it is of. Machines of a kind have
other speeds, and a schedule that is slower on one must not be taken there. So these have to hold:

- it was faster than what was predicted to be the best by `MARGIN`, alone, and inside of a program, too;
- the same is predicted to be the best here, and both kernels are the same code, to the letter: so neither other caches,
  nor other cores, nor another version of a template are between what was measured and what is compiled;
- the compiler has the same version.

A change to what writes these kernels ends their use: `stale` says of which, and `bench/ship_records.py --renew`
measures them again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path

import msgspec

from covan_mlir.errors import RecordsError
from covan_mlir.fred import chain_json
from covan_mlir.lowering.kernels.database import Database, Setting, compiler_version
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.recorded import Condition, Recorded, code_digest, compact
from covan_mlir.lowering.kernels.select import as_recorded, choices
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
        machine: that kernels were written for.
    """

    processor: str
    compiler: str
    machine: Machine


class Shipped(msgspec.Struct, frozen=True):
    """A schedule that is shipped.

    Attributes:
        chain: that it is of, as JSON: compilations do not look at it.
    """

    record: Recorded
    chain: msgspec.Raw


_origins: msgspec.json.Decoder[Origin] = msgspec.json.Decoder(Origin)
_shipped: msgspec.json.Decoder[Shipped] = msgspec.json.Decoder(Shipped)


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
    origin, shipped = read(path)
    if origin.compiler != compiler:
        log.info("shipped schedules were measured with version %s of the compiler, and are not used", origin.compiler)
        return ()
    return tuple(each.record for each in shipped)


def read(path: Path) -> tuple[Origin, tuple[Shipped, ...]]:
    """What a file of shipped schedules holds.

    Raises:
        RecordsError: it holds something else.
    """
    try:
        first, *lines = path.read_bytes().splitlines()
        origin, shipped = _origins.decode(first), tuple(_shipped.decode(line) for line in lines)
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise RecordsError(f"{path}: no records: {error}\ninstall the package again") from error
    if any(each.record.condition is None for each in shipped):
        raise RecordsError(f"{path}: a schedule holds without a condition\ninstall the package again")
    return origin, shipped


def written(origin: Origin, shipped: Iterable[Shipped]) -> bytes:
    """The inverse of `read`."""
    return b"".join(msgspec.json.encode(line) + b"\n" for line in (origin, *shipped))


def stale(origin: Origin, shipped: Iterable[Shipped], target: Callable[[Machine], KernelTarget]) -> dict[str, str]:
    """Why nobody with this version can take a schedule, by workload: not even on the machine that it was measured on.

    Args:
        target: that kernels for a machine are written for.
    """
    reasons: dict[str, str] = {}
    for each in shipped:
        listed = choices(chain_json.load(json.loads(bytes(each.chain))), target(origin.machine))
        taken = listed if isinstance(listed, Refusal) else as_recorded(listed, each.record, "kernel")
        if isinstance(taken, Refusal):
            reasons[each.record.workload] = taken.reason
        elif origin.compiler != compiler_version():
            reasons[each.record.workload] = f"it was measured with version {origin.compiler} of the compiler"
    return reasons


def chosen(database: Database, setting: Setting, target: KernelTarget) -> Iterator[Shipped]:
    """What may be shipped of what was measured and chosen on this machine.

    Args:
        target: that kernels were measured for.
    """
    chains = database.workloads()
    for record in database.chosen(setting):
        condition = _condition(database, setting, target, record, chains[record.workload])
        if condition is not None:
            conditioned = Recorded(record.workload, record.template, record.schedule, record.seconds, condition)
            yield Shipped(conditioned, msgspec.Raw(chains[record.workload].encode()))


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
