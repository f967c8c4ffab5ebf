"""All of torch's own samples of all its operators, against eager PyTorch: `docs/operators.md` is made of it.

    python bench/operators.py --dtypes f32 i64 --resume
    python bench/operators.py --ops sort linalg.inv
    python bench/operators.py --dtypes f16 --samples 2
    python bench/operators.py --write-docs

Programs are compiled in processes of their own, with limits of time and memory. Samples are compiled many at a time;
a program that fails is split until it is known which samples do. What became of the samples of an operator and dtype is
one line of JSON in `build/operators`; `--resume` leaves out what is there.
"""

from __future__ import annotations

import argparse
import re
import resource
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec
import torch
from judging import Judge, NoAnswer
from operators_table import page
from opinfo_samples import DTYPES, Judged, Key, Record, Suspect, judged, operators, samples, spread, takes

ROOT = Path(__file__).resolve().parents[1]
FOLDER, DOCS = ROOT / "build" / "operators", ROOT / "docs" / "operators.md"
SAMPLES, OPERATORS = 64, 12
"""Of one program, at most."""
MANY = 100
"""Samples of an operator: those that have more come last."""
SECONDS = 240.0
"""After which a process that has not answered is ended."""
MEMORY = 6 << 30
"""Bytes of data that a process may hold."""
ALIKE = 4
"""Samples of an operator and dtype, far apart, that fail alone for one reason: the rest is not tried."""


def recorded(folder: Path) -> Iterator[Record]:
    """What sweeps have found, operators in alphabetical order; of an operator and dtype, the last of the largest."""
    records: dict[tuple[str, str], Record] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            record = msgspec.json.decode(line, type=Record)
            known = records.get((record.op, record.dtype))
            if known is None or record.samples >= known.samples:
                records[record.op, record.dtype] = record
    yield from (records[key] for key in sorted(records))


def swept(record: Record, most: int) -> bool:
    """Whether a record is of as many samples as a sweep would judge, of those that torch has today."""
    of = len(samples(record.op, record.dtype))
    return record.of == of and record.samples >= min(most, of)


def verdicts(judge: Judge, keys: Sequence[Key]) -> list[Judged] | Suspect:
    """As `opinfo_samples.judged`; a sample that ends the process alone fails."""
    try:
        answer: list[Judged] | Suspect = judge.ask(keys)
    except NoAnswer as reason:
        return [Judged(keys[0], "fails", str(reason))] if len(keys) == 1 else Suspect()
    return answer


def _serve(connection: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    torch.set_num_threads(1)
    while True:
        try:
            keys = connection.recv()
        except EOFError:
            return
        connection.send(judged(keys))


@dataclass
class Sweep:
    """Judges operators, and writes what became of each as soon as it is known."""

    folder: Path
    deadline: float
    most: int
    judged: dict[tuple[str, str], list[Judged]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, chunks: Iterator[list[Key]]) -> None:
        """Judges chunks until there are none, or until the time is over."""
        judge = Judge(_serve, "opinfo_samples", SECONDS)
        while time.monotonic() < self.deadline:
            with self.lock:
                chunk = next(chunks, None)
            if chunk is None:
                break
            self._try(judge, chunk)
        judge.end()

    def _try(self, judge: Judge, keys: list[Key]) -> None:
        left = []
        for key in keys:
            if (known := self._known(key)) is not None:
                self._note([known])
            else:
                left.append(key)
        if not left:
            return
        answer = verdicts(judge, left)
        if isinstance(answer, Suspect):
            for part in self._parts(left, answer.key):
                self._try(judge, part)
        else:
            self._note(answer)

    def _parts(self, keys: list[Key], suspect: Key | None) -> list[list[Key]]:
        """What to compile in place of a program that failed: a suspected operator and the others, or halves; of the
        samples of one operator some first that lie far apart."""
        names = list(dict.fromkeys(key.op for key in keys))
        if len(names) > 1:
            first = {suspect.op} if suspect is not None else set(names[: len(names) // 2])
            return [[key for key in keys if key.op in first], [key for key in keys if key.op not in first]]
        if len(keys) <= ALIKE or (keys[0].op, keys[0].dtype) in self.judged:
            return [keys[: len(keys) // 2], keys[len(keys) // 2 :]]
        apart = [keys[step * (len(keys) - 1) // (ALIKE - 1)] for step in range(ALIKE)]
        return [*([key] for key in apart), [key for key in keys if key not in apart]]

    def _known(self, key: Key) -> Judged | None:
        """The verdict on a sample like those that failed before."""
        before = self.judged.get((key.op, key.dtype), [])
        outcomes = {(verdict.outcome, _general(verdict.reason)) for verdict in before}
        if len(before) >= ALIKE and len(outcomes) == 1 and before[0].outcome in ("refused", "not exported"):
            return Judged(key, before[0].outcome, before[0].reason)
        return None

    def _note(self, verdicts: list[Judged]) -> None:
        for verdict in verdicts:
            op, dtype = verdict.key.op, verdict.key.dtype
            known = self.judged.setdefault((op, dtype), [])
            known.append(verdict)
            if len(known) == len(spread(op, dtype, self.most)):
                apart = sorted((v for v in known if v.outcome != "agrees"), key=lambda v: v.key.sample)
                self._write(Record(op, dtype, len(known), tuple(apart), len(samples(op, dtype))))

    def _write(self, record: Record) -> None:
        with self.lock, (self.folder / f"{record.dtype}.jsonl").open("ab") as lines:
            lines.write(msgspec.json.encode(record) + b"\n")
        first = next((f": {v.key.sample}: {v.outcome}: {v.reason}" for v in record.apart), "")
        print(f"{record.op} {record.dtype} {record.samples - len(record.apart)}/{record.samples}{first}", flush=True)


def _general(reason: str) -> str:
    """A reason without what differs between samples."""
    return re.sub(r"\d+", "", reason)


def chunks(names: Sequence[str], dtypes: Sequence[str], known: set[tuple[str, str]], most: int) -> Iterator[list[Key]]:
    """The samples of operators in dtypes, at most so many of each, as many at a time as make a program."""
    for dtype in dtypes:
        chunk: list[Key] = []
        todo = [op for op in names if takes(op, dtype) and (op, dtype) not in known]
        for op in sorted(todo, key=lambda op: len(samples(op, dtype)) > MANY):
            keys = spread(op, dtype, most)
            if len({key.op for key in chunk}) == OPERATORS or len(chunk) + len(keys) > SAMPLES:
                yield from [chunk] if chunk else []
                chunk = []
            while len(keys) > SAMPLES:
                yield keys[:SAMPLES]
                keys = keys[SAMPLES:]
            chunk += keys
        if chunk:
            yield chunk


def main() -> None:
    """Sweep, or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", nargs="+", help="names as torch's OpInfo has them, instead of all")
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--resume", action="store_true", help="leave out what the folder holds")
    parser.add_argument("--samples", type=int, default=sys.maxsize, help="of an operator and dtype, at most")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=float("inf"), help="after which nothing more is begun")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--write-docs", action="store_true", help="bring docs/operators.md up to what the folder holds")
    options = parser.parse_args()
    if options.write_docs:
        DOCS.write_text(page(list(recorded(options.folder)), ALIKE, DOCS.read_text() if DOCS.exists() else ""))
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    known = {
        (record.op, record.dtype)
        for record in (recorded(options.folder) if options.resume else ())
        if record.dtype in options.dtypes and swept(record, options.samples)
    }
    sweep = Sweep(options.folder, time.monotonic() + 60 * options.minutes, options.samples)
    work = chunks(options.ops or sorted(operators()), options.dtypes, known, options.samples)
    threads = [threading.Thread(target=sweep.run, args=(work,)) for _ in range(options.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
