"""Which schedules a compilation takes without being asked: those of the user's records, and those that are shipped."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from covan_mlir.errors import RecordsError
from covan_mlir.lowering.kernels import shipped
from covan_mlir.lowering.kernels.cuda.device import CudaDevice
from covan_mlir.lowering.kernels.database import OFF, VARIABLE, Database, Setting, default_path
from covan_mlir.lowering.kernels.recorded import Recorded
from covan_mlir.machine.description import Machine

log = logging.getLogger(__name__)


def schedules_for(records: str | os.PathLike[str] | None, kind: str, machine: Machine | None) -> tuple[Recorded, ...]:
    """The schedules that a compilation takes without being asked.

    Args:
        records: path of a file, of which alone they are; empty: the user's own, if there is one, and for what that does
            not know those shipped with the package; None: none.
        machine: the one that is compiled for, if that is this one.

    Raises:
        RecordsError: a file that was named is not there, or holds no records. What is wrong with the user's own file is
            a warning.
    """
    if records is None or machine is None or (records == "" and os.environ.get(VARIABLE) == OFF):
        return ()
    if records != "":
        return _chosen(Path(records), Setting.of(kind, machine))
    known = {record.workload: record for record in shipped.schedules(kind, machine)}
    known |= {record.workload: record for record in _own(Setting.of(kind, machine))}
    return tuple(known[name] for name in sorted(known))


def schedules_for_gpu(records: str | os.PathLike[str] | None, device: CudaDevice) -> tuple[Recorded, ...]:
    """The same for a GPU, wherever it is; none are shipped for any."""
    if records is None:
        return ()
    return _chosen(Path(records), Setting.of_gpu(device)) if records != "" else _own(Setting.of_gpu(device))


def _own(setting: Setting) -> tuple[Recorded, ...]:
    """Of the user's records."""
    path = default_path()
    if path is None or not path.exists():
        return ()
    try:
        return _chosen(path, setting)
    except RecordsError as error:
        log.warning("schedules that were measured are not used: %s", error)
        return ()


def _chosen(path: Path, setting: Setting) -> tuple[Recorded, ...]:
    with Database(path, "read") as database:
        chosen, stale = database.chosen(setting), database.stale(setting)
    if stale:
        log.info("schedules of %d workloads in %s were measured with other versions, and are not used", stale, path)
    return chosen
