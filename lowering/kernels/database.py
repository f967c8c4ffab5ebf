"""Measured schedules, kept for later compilations and for the tuner's next run: an SQLite file.

Three tables, as three questions: what is a workload (`Workload`), how long did a schedule of it take (`Measurement`),
and which schedule is taken (`covan_mlir.lowering.kernels.recorded.Recorded`). The latter two hold for a `Setting`: a
kind of target, a machine, and the versions of what writes and compiles kernels. What belongs to another one is never
used.

Any number of processes may read and write the file (write-ahead log).
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import logging
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Literal

import msgspec

from covan_mlir.errors import RecordsError
from covan_mlir.lowering.kernels.cuda.device import CudaDevice
from covan_mlir.lowering.kernels.recorded import Recorded
from covan_mlir.machine.description import Machine
from covan_mlir.machine.reading import model
from covan_mlir.support import source_digest, user_cache
from covan_mlir.support.typed_json import Amount

log = logging.getLogger(__name__)

VARIABLE = "COVAN_RECORDS"
OFF = "off"

_PACKAGES = ("covan_mlir.lowering.kernels", "covan_mlir.fred")
"""Whose sources decide on the code of a kernel."""
_COMPILER = "iree-base-compiler"
_FORMAT = 1
_PATIENCE = 30.0  # seconds that a process waits for another one's write

_SCHEMA = """
CREATE TABLE IF NOT EXISTS workloads (name TEXT PRIMARY KEY, chain TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS measurements (
    kind TEXT, machine TEXT, versions TEXT, workload TEXT, template TEXT, schedule TEXT,
    seconds REAL, against TEXT NOT NULL, reference REAL, rounds INTEGER NOT NULL, failure TEXT NOT NULL,
    PRIMARY KEY (kind, machine, versions, workload, template, schedule)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS choices (
    kind TEXT, machine TEXT, versions TEXT, workload TEXT, template TEXT NOT NULL, schedule TEXT NOT NULL,
    seconds REAL NOT NULL, PRIMARY KEY (kind, machine, versions, workload)
) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class Setting:
    """What measured times hold for.

    Attributes:
        kind: of the target.
        machine: digest of what is known of its processor, caches and cores; not of its speeds, which vary.
        versions: digest of the sources that write kernels, and of the compiler's version.
    """

    kind: str
    machine: str
    versions: str

    @staticmethod
    def of(kind: str, machine: Machine) -> Setting:
        """That of kernels for a machine, written and compiled by what is installed now."""
        name = model() if machine.speeds in ("read", "measured") else machine.name
        facts = (name, machine.cores, machine.vector_bits, machine.registers, machine.l1, machine.l2, machine.llc)
        return Setting(kind, _digest(facts), _digest((source_digest.of_packages(_PACKAGES), compiler_version())))

    @staticmethod
    def of_gpu(device: CudaDevice, name: str = "") -> Setting:
        """That of Triton's kernels for a GPU.

        Args:
            name: of what is no such GPU, but is measured like one; empty: it is one.
        """
        facts = (device.title, device.multiprocessors, name)
        versions = (source_digest.of_packages(_PACKAGES), compiler_version(), _installed("triton"))
        return Setting("cuda", _digest(facts), _digest(versions))


def _installed(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


@functools.cache
def compiler_version() -> str:
    """Of what compiles kernels."""
    return importlib.metadata.version(_COMPILER)


def _digest(value: object) -> str:
    return hashlib.sha256(msgspec.json.encode(value)).hexdigest()[:32]


class Workload(msgspec.Struct, frozen=True, tag="workload"):
    """What a chain computes.

    Attributes:
        name: `covan_mlir.lowering.kernels.recorded.workload` of the chain.
        chain: as JSON (`covan_mlir.fred.chain_json`).
    """

    name: str
    chain: str


class Measurement(msgspec.Struct, frozen=True, tag="measurement"):
    """What became of a schedule.

    Attributes:
        workload: its name.
        template, schedule: whose, and which, as JSON.
        seconds: median of its kernel's calls; None: it has none, for the reason in ``failure``.
        against: the kernel that took turns with it, the one that was predicted to be the best: template and schedule.
        reference: seconds of that, as the ratio of the turns tells them.
        rounds: calls.
        failure: why there is no kernel, or no time; empty if there is one.
    """

    workload: str
    template: str
    schedule: str
    seconds: Amount | None
    against: str
    reference: Amount | None
    rounds: int
    failure: str = ""


class _Choice(msgspec.Struct, frozen=True, tag="choice"):
    workload: str
    template: str
    schedule: str
    seconds: Amount


class _Line(msgspec.Struct, frozen=True):
    """Of an export; a workload belongs to no setting."""

    record: Workload | Measurement | _Choice
    setting: Setting | None = None


_CHOSEN = ("workload", "template", "schedule", "seconds")
_lines: msgspec.json.Decoder[_Line] = msgspec.json.Decoder(_Line)


def default_path() -> Path | None:
    """The user's records: ``$COVAN_RECORDS``, or a file in the user's cache folder; None: there are none."""
    chosen = os.environ.get(VARIABLE)
    if chosen == OFF:
        return None
    try:
        return Path(chosen) if chosen else user_cache.folder() / "records.sqlite"
    except RuntimeError as error:
        log.info("no records are kept: %s", error)
        return None


class Database:
    """A file of records, open.

    Args:
        path: of the file.
        mode: ``read`` leaves it as it is, and there must be one; ``write`` makes it, and its folder, if need be.

    Raises:
        RecordsError: it cannot be opened, or is no such file.
    """

    def __init__(self, path: str | os.PathLike[str], mode: Literal["read", "write"] = "write") -> None:
        self.path = Path(path).absolute()
        with self._told():
            if mode == "write":
                self.path.parent.mkdir(parents=True, exist_ok=True)
            name = f"{self.path.as_uri()}?mode={'rwc' if mode == 'write' else 'ro'}"
            self._connection = sqlite3.connect(name, uri=True, timeout=_PATIENCE, isolation_level=None)
            try:
                self._open(mode)
            except BaseException:
                self._connection.close()
                raise

    def _open(self, mode: str) -> None:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        if version not in (0, _FORMAT) or (mode == "read" and version == 0):
            raise RecordsError(f"{self.path}: no records that this version of covan reads\nchoose another file")
        if mode == "write":
            self._log_ahead()
            if version == 0:
                self._connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version={_FORMAT}; COMMIT;")

    def _log_ahead(self) -> None:
        """Writes go to a log first, so that readers need not wait. SQLite does not wait for others to begin with it."""
        end = time.monotonic() + _PATIENCE
        while self._connection.execute("PRAGMA journal_mode").fetchone() != ("wal",):
            try:
                self._connection.execute("PRAGMA journal_mode=WAL")
            except sqlite3.OperationalError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)

    def close(self) -> None:
        """Let go of the file."""
        self._connection.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error, msgspec.ValidationError) as error:
            raise RecordsError(f"{self.path}: {error}\nchoose another file, or remove this one") from error

    def add(self, setting: Setting, workload: Workload, measurements: Iterable[Measurement]) -> None:
        """Keep what was measured of a workload; what was known of a schedule before is replaced."""
        rows = [(*astuple(setting), *msgspec.structs.astuple(measured)) for measured in measurements]
        with self._told(), self._transaction():
            self._connection.execute("INSERT OR IGNORE INTO workloads VALUES (?, ?)", (workload.name, workload.chain))
            if rows:
                self._connection.executemany(f"INSERT OR REPLACE INTO measurements VALUES ({_marks(rows)})", rows)

    def choose(self, setting: Setting, records: Iterable[Recorded]) -> None:
        """Have later compilations take these schedules."""
        rows = [(*astuple(setting), *(getattr(record, name) for name in _CHOSEN)) for record in records]
        if not rows:
            return
        with self._told(), self._transaction():
            self._connection.executemany(f"INSERT OR REPLACE INTO choices VALUES ({_marks(rows)})", rows)

    def chosen(self, setting: Setting) -> tuple[Recorded, ...]:
        """The schedules that are to be taken, in the order of their workloads."""
        query = (
            f"SELECT {', '.join(_CHOSEN)} FROM choices "
            "WHERE kind = ? AND machine = ? AND versions = ? ORDER BY workload"
        )
        with self._told():
            rows = self._connection.execute(query, astuple(setting)).fetchall()
            return tuple(msgspec.convert(dict(zip(_CHOSEN, row, strict=True)), Recorded) for row in rows)

    def stale(self, setting: Setting) -> int:
        """How many workloads have a schedule for this kind of target and machine, but of other versions alone."""
        query = (
            "SELECT COUNT(DISTINCT workload) FROM choices WHERE kind = ?1 AND machine = ?2 AND workload NOT IN "
            "(SELECT workload FROM choices WHERE kind = ?1 AND machine = ?2 AND versions = ?3)"
        )
        with self._told():
            (count,) = self._connection.execute(query, astuple(setting)).fetchone()
        return int(count)

    def measurements(self, setting: Setting, workload: str | None = None) -> list[Measurement]:
        """What was measured, of one workload or of all."""
        query = (
            "SELECT workload, template, schedule, seconds, against, reference, rounds, failure FROM measurements "
            "WHERE kind = ? AND machine = ? AND versions = ?"
        )
        values: tuple[str, ...] = astuple(setting)
        if workload is not None:
            query, values = f"{query} AND workload = ?", (*values, workload)
        with self._told():
            return [Measurement(*row) for row in self._connection.execute(query, values)]

    def workloads(self) -> dict[str, str]:
        """Chains as JSON, by name."""
        with self._told():
            return dict(self._connection.execute("SELECT name, chain FROM workloads"))

    def export(self) -> Iterator[bytes]:
        """All of it as lines of JSON, which `read_lines` takes."""
        with self._told():
            for row in self._connection.execute("SELECT * FROM workloads ORDER BY name"):
                yield msgspec.json.encode(_Line(Workload(*row))) + b"\n"
            for table, kind in (("measurements", Measurement), ("choices", _Choice)):
                for row in self._connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2, 3, 4, 5"):
                    yield msgspec.json.encode(_Line(kind(*row[3:]), Setting(*row[:3]))) + b"\n"

    def read_lines(self, lines: Iterable[bytes]) -> int:
        """Add what `export` gave; -> how many records. All of them or none.

        Raises:
            RecordsError: a line is none of its.
        """
        count = 0
        with self._told(), self._transaction():
            for number, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                try:
                    read = _lines.decode(line)
                except msgspec.MsgspecError as error:
                    raise RecordsError(
                        f"line {number} holds no record: {error}\ngive what 'covan records --export' wrote"
                    ) from error
                self._insert(read, number)
                count += 1
        return count

    def _insert(self, line: _Line, number: int) -> None:
        values = msgspec.structs.astuple(line.record)
        if isinstance(line.record, Workload):
            self._connection.execute("INSERT OR IGNORE INTO workloads VALUES (?, ?)", values)
            return
        if line.setting is None:
            raise RecordsError(f"line {number} does not say what its times hold for")
        table = "measurements" if isinstance(line.record, Measurement) else "choices"
        row = (*astuple(line.setting), *values)
        self._connection.execute(f"INSERT OR REPLACE INTO {table} VALUES ({_marks([row])})", row)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")


def _marks(rows: Sequence[tuple[object, ...]]) -> str:
    return ", ".join("?" * len(rows[0]))
