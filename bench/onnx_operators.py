"""The node cases that ONNX tests backends with, compiled: `docs/onnx-operators.md` is made of it.

    python bench/onnx_operators.py
    python bench/onnx_operators.py --resume --every 10
    python bench/onnx_operators.py --translation
    python bench/onnx_operators.py --match gru
    python bench/onnx_operators.py --write-docs

Programs are compiled and run in a process of its own. Cases are compiled many at a time; what fails is split until it
is known which cases do. What became of a case is one line of JSON in `build/onnx`; `--resume` leaves out what is there.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec
from judging import Judge, NoAnswer
from onnx_cases import Judged, cases, folder_cases, judged
from onnx_operators_table import page

ROOT = Path(__file__).resolve().parents[1]
FOLDER, DOCS = ROOT / "build" / "onnx", ROOT / "docs" / "onnx-operators.md"
TOGETHER = 24
"""Cases of one program."""
SECONDS = 300.0
"""After which a process that has not answered is ended."""
KINDS = ("simple", "pytorch-converted", "pytorch-operator")


def recorded(folder: Path, compiled: bool) -> dict[str, Judged]:
    """What sweeps have found of programs, or of translations, by name: of a case, the last."""
    rows: dict[str, Judged] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            row = msgspec.json.decode(line, type=Judged)
            if row.compiled == compiled:
                rows[row.name] = row
    return rows


def _serve(connection: Connection) -> None:
    while True:
        try:
            names, compiled = connection.recv()
        except EOFError:
            return
        connection.send(judged(names, compiled))


def swept(names: Sequence[str], judge: Judge, compiled: bool) -> Iterator[Judged]:
    """What became of cases, many at a time; a case that ends the process alone fails."""
    pending = [list(names[start : start + TOGETHER]) for start in range(0, len(names), TOGETHER)][::-1]
    while pending:
        batch = pending.pop()
        try:
            rows, why = judge.ask((batch, compiled)), "it does not compile"
        except NoAnswer as reason:
            rows, why = None, str(reason)
        if rows is not None:
            yield from rows
        elif len(batch) == 1:
            yield Judged(batch[0], "", "fails", why, compiled)
        else:
            half = len(batch) // 2
            pending += [batch[half:], batch[:half]]


def main() -> int:
    """Exit status: 1 if a case differs or fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--match", default="", help="only cases whose names have this in them")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only each N-th case")
    parser.add_argument("--translation", action="store_true", help="run translations by eager PyTorch: minutes")
    parser.add_argument("--resume", action="store_true", help="leave out cases that were judged before")
    parser.add_argument("--write-docs", action="store_true", help="write docs/onnx-operators.md of what is known")
    options = parser.parse_args()
    FOLDER.mkdir(parents=True, exist_ok=True)
    if options.write_docs:
        DOCS.write_text(page(recorded(FOLDER, True), recorded(FOLDER, False)), encoding="utf-8")
        return 0
    compiled = not options.translation
    done = recorded(FOLDER, compiled) if options.resume else {}
    names = [*cases(), *(name for kind in KINDS for name in folder_cases(kind))]
    names = [name for name in names[:: options.every] if options.match in name and name not in done]
    start, wrong = time.monotonic(), 0
    with (FOLDER / f"{int(time.time())}.jsonl").open("ab") as out:
        for count, row in enumerate(swept(names, Judge(_serve, "onnx_cases", SECONDS), compiled), start=1):
            out.write(msgspec.json.encode(row) + b"\n")
            out.flush()
            wrong += row.outcome in ("differs", "fails")
            if row.outcome not in ("matches", "out of scope"):
                print(f"{row.name}: {row.outcome}: {row.why}", flush=True)
            if count % 100 == 0:
                print(f"{count} of {len(names)}, {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
