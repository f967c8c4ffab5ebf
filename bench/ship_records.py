"""The schedules that are shipped with the package for machines of this kind (docs/tuning.md).

    python bench/ship_records.py --add tuned.sqlite    those that were chosen here, measured once more
    python bench/ship_records.py --renew               all that are shipped, measured with today's kernels
    python bench/ship_records.py --drop-stale          without those of kernels that are written in another way now

Each is measured beside the kernel that is predicted to be the best, and shipped if it is faster by the margin; the
least of many times is less than what it is a time of, so what a search found is measured anew.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterable
from pathlib import Path

from covan_mlir.fred import chain_json
from covan_mlir.lowering.kernels import shipped
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.database import Database, Setting, compiler_version
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.measuring.measure import Measurer
from covan_mlir.lowering.kernels.measuring.messages import Candidate
from covan_mlir.lowering.kernels.recorded import Recorded, workload
from covan_mlir.lowering.kernels.shipped import Origin, Shipped
from covan_mlir.machine.host import host
from covan_mlir.machine.reading import model
from covan_mlir.tuning.session import keep
from covan_mlir.tuning.space import space_of
from covan_mlir.tuning.tasks import Task

CONFIRMED = 4.0
"""Seconds that a schedule is measured for, beside the default."""
MACHINE = host()
PATH = shipped.FOLDER / f"{shipped.machine_kind('cpu', MACHINE)}.jsonl"


def confirmed(schedules: Iterable[tuple[str, Candidate]]) -> list[Shipped]:
    """Those that are faster than what is predicted to be the best, by the margin.

    Args:
        schedules: chains, as JSON, and a schedule of each.
    """
    target, setting = CpuTarget(MACHINE), Setting.of("cpu", MACHINE)
    with (
        tempfile.TemporaryDirectory() as folder,
        Database(Path(folder) / "confirmed.sqlite") as database,
        Measurer(MACHINE, target.winograd, "local-task") as measurer,
    ):
        records: list[Recorded] = []
        for text, candidate in schedules:
            chain = chain_json.load(json.loads(text))
            space = space_of(chain, target)
            if isinstance(space, Refusal) or candidate == space.default.candidate:
                continue
            task = Task("", workload(chain), chain, 1, "", space)
            outcomes = measurer.measure(chain, space.default.candidate, [candidate], CONFIRMED)
            told = (
                f"{outcomes[-1].ratio} times the predicted one's time" if outcomes[-1].ratio else outcomes[-1].failure
            )
            print(f"{task.workload[:8]} {candidate.template}: {told}")
            keep(database, setting, task, outcomes)
            if outcomes[-1].seconds is not None:
                records.append(Recorded(task.workload, candidate.template, candidate.schedule, outcomes[-1].seconds))
        database.choose(setting, records)
        return list(shipped.chosen(database, setting, target))


def of_database(records: Path) -> list[tuple[str, Candidate]]:
    """What was chosen on this machine, with this version."""
    with Database(records, "read") as database:
        chains = database.workloads()
        return [
            (chains[record.workload], Candidate(record.template, record.schedule))
            for record in database.chosen(Setting.of("cpu", MACHINE))
        ]


def of_file(known: Iterable[Shipped]) -> list[tuple[str, Candidate]]:
    """What is shipped."""
    return [(bytes(each.chain).decode(), Candidate(each.record.template, each.record.schedule)) for each in known]


def main() -> None:
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--add", type=Path, metavar="RECORDS", help="of a file of records")
    what.add_argument("--renew", action="store_true")
    what.add_argument("--drop-stale", action="store_true")
    options = parser.parse_args()
    origin, known = shipped.read(PATH) if PATH.exists() else (None, ())
    if options.drop_stale and origin is not None:
        gone = shipped.stale(origin, known, CpuTarget)
        for name, reason in gone.items():
            print(f"{name[:8]}: {reason}")
        rows = [each for each in known if each.record.workload not in gone]
    else:
        rows = confirmed([*of_file(known), *(of_database(options.add) if options.add else ())])
        origin = Origin(f"{model() or MACHINE.name}, {MACHINE.cores} cores", compiler_version(), MACHINE)
    assert origin is not None, "there is no file to drop something of"
    PATH.parent.mkdir(exist_ok=True)
    PATH.write_bytes(shipped.written(origin, rows))
    print(f"{PATH}: {len(rows)} schedules")


if __name__ == "__main__":
    main()
