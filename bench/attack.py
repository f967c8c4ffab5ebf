"""Attacks artifacts: changed files, each loaded and called in a process of its own; and calls with odd indices.

    python bench/attack.py --count 20000 --seed 1 --jobs 2 --keep wrong [model.covan]
    python bench/attack.py --count 0 --calls 2000

Prints, for each kind of change, what became of the files, the most memory and the most CPU time that one took, and what
went wrong: crashes, exceptions that are no `covan_mlir.CovanError`, and what takes more time or memory than
`attacks.SECONDS` and `attacks.allowed`. Without files, small models are compiled and attacked.
"""

from __future__ import annotations

import argparse
import collections
import functools
import itertools
import multiprocessing
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "test" / "python"))

from attacks import HARMLESS, KINDS, Case, Result, attempt, cases

_TURN = 25  # files of one artifact, after each other

_VICTIMS = """
import sys
import torch
import covan_mlir

class Stateful(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 5)
        self.register_buffer("calls", torch.zeros(3))

    def forward(self, x):
        self.calls += 1
        return {"y": self.linear(x), "more": (x > 0, x.sum().to(torch.int64), x.numel())}

def in_place(x, y, n, s):
    x.add_(y)
    return [x * s, (y.sum() * n, n + 1)]

def looks_up(table, i):
    return table[i], table.index_select(0, i * 2)

size = torch.export.Dim("size", min=2, max=64)
covan_mlir.compile_module(looks_up, (torch.randn(9, 4), torch.tensor([1, 2]))).save(sys.argv[4])
covan_mlir.compile_module(Stateful(), (torch.randn(3, 4),), dynamic_shapes={"x": {0: size}}).save(sys.argv[1])
covan_mlir.compile_module(in_place, (torch.ones(3), torch.ones(3), 2, 0.5)).save(sys.argv[2])
options = covan_mlir.CompileOptions(external_weight_bytes=1, attach={"linear": torch.relu})
covan_mlir.compile_module(torch.nn.Linear(64, 8), (torch.randn(2, 64),), options=options).save(sys.argv[3])
"""


def victims(folder: Path) -> list[Path]:
    """Artifacts of small models; compiled by a process of its own: this one starts no threads."""
    paths = [folder / f"victim{index}.covan" for index in range(4)]
    subprocess.run([sys.executable, "-c", _VICTIMS, *map(str, paths)], check=True)
    return paths


def turn(wholes: Sequence[bytes], seed: int, kinds: Sequence[str], number: int) -> list[tuple[Case, Result]]:
    """What became of the files of one turn; the same files for the same seed and number."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "case.covan"
        results: list[tuple[Case, Result]] = []
        changed = cases(wholes[number % len(wholes)], Path(name), f"{seed}.{number}", kinds)
        for case in itertools.islice(changed, _TURN):
            path.write_bytes(case.data)
            spawned = len(results) == 0  # a process that is spawned, now and then: it takes ten times as long
            results.append((case, attempt(path, isolated=case.kind == "program", spawned=spawned)))
    return results


def summary(kind: str, results: Sequence[Result]) -> str:
    """One line."""
    counts = collections.Counter(result.outcome for result in results)
    peak = max((result.peak for result in results), default=0) >> 20
    longest = max((result.seconds for result in results), default=0.0)
    return f"{kind}: {len(results)} files: {dict(counts)}, peak {peak} MiB, longest {longest:.2f} s of CPU time"


def main() -> int:
    """Exit status: whether anything went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("artifacts", nargs="*", type=Path)
    parser.add_argument("--count", type=int, default=2000, help="of changed files, altogether")
    parser.add_argument("--calls", type=int, default=0, help="with odd indices and divisors (odd_calls.py)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", default=",".join(KINDS), help="of changes")
    parser.add_argument("--jobs", type=int, default=1, help="processes that attack, beside each other")
    parser.add_argument("--keep", type=Path, help="folder for the files that went wrong")
    options = parser.parse_args()
    kinds = options.kinds.split(",")
    with tempfile.TemporaryDirectory() as name:
        wholes = [path.read_bytes() for path in options.artifacts or victims(Path(name))]
    results: dict[str, list[Result]] = {kind: [] for kind in kinds}
    wrong: collections.Counter[str] = collections.Counter()
    # Forks of this process, which has imported everything and uses no device.
    with multiprocessing.get_context("fork").Pool(options.jobs) as pool:
        attacked = functools.partial(turn, wholes, options.seed, kinds)
        for case, result in itertools.chain.from_iterable(
            pool.imap_unordered(attacked, range(-(-options.count // _TURN)))
        ):
            results[case.kind].append(result)
            if result.outcome not in HARMLESS:
                text = f"{case.kind}: {result.outcome}: {' | '.join(result.text.strip().splitlines()[-5:])[:600]}"
                wrong[text] += 1
                print(f"{case.what[:300]}: {text}", flush=True)
                if options.keep:
                    options.keep.mkdir(parents=True, exist_ok=True)
                    (options.keep / f"{wrong.total()}.{case.kind}.covan").write_bytes(case.data)
    for kind, of_kind in results.items():
        print(summary(kind, of_kind))
    for text, count in wrong.most_common():
        print(f"{count} x {text}")
    if options.calls:
        command = [sys.executable, str(Path(__file__).with_name("odd_calls.py")), "--count", str(options.calls)]
        if subprocess.run([*command, "--seed", str(options.seed)]).returncode:
            wrong["odd calls"] += 1
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
