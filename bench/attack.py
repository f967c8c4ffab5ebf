"""Attacks artifacts: changed files, each loaded and called in a process of its own; and calls with odd indices.

    python bench/attack.py --count 20000 --seed 1 [model.covan]
    python bench/attack.py --count 0 --calls 2000

Prints, for each kind of change, what became of the files, the most memory that one took, the longest that one lasted,
and what went wrong. Without files, small models are compiled and attacked.
"""

from __future__ import annotations

import argparse
import collections
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "test" / "python"))

from attacks import KINDS, Result, attempt, cases

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


def main() -> int:
    """Exit status: whether anything went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("artifacts", nargs="*", type=Path)
    parser.add_argument("--count", type=int, default=2000, help="of changed files, altogether")
    parser.add_argument("--calls", type=int, default=0, help="with odd indices and divisors (odd_calls.py)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", default=",".join(KINDS), help="of changes")
    options = parser.parse_args()
    kinds = options.kinds.split(",")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wholes = [path.read_bytes() for path in options.artifacts or victims(folder)]
        sources = [cases(whole, folder, options.seed + i, kinds) for i, whole in enumerate(wholes)]
        results: dict[str, list[Result]] = {kind: [] for kind in kinds}
        wrong: collections.Counter[str] = collections.Counter()
        for number in range(options.count):
            case = next(sources[number % len(sources)])
            path = folder / "case.covan"
            path.write_bytes(case.data)
            result = attempt(path, isolated=case.kind == "program")
            results[case.kind].append(result)
            if result.outcome in ("exception", "crash", "timeout"):
                wrong[f"{case.kind}: {result.outcome}: {' | '.join(result.text.strip().splitlines()[-5:])[:600]}"] += 1
    for kind, of_kind in results.items():
        counts = collections.Counter(result.outcome for result in of_kind)
        peak = max((result.peak for result in of_kind), default=0) >> 20
        longest = max((result.seconds for result in of_kind), default=0.0)
        print(f"{kind}: {len(of_kind)} files: {dict(counts)}, peak {peak} MiB, longest {longest:.1f} s")
    for text, count in wrong.most_common():
        print(f"{count} x {text}")
    if options.calls:
        command = [sys.executable, str(Path(__file__).with_name("odd_calls.py")), "--count", str(options.calls)]
        if subprocess.run([*command, "--seed", str(options.seed)]).returncode:
            wrong["odd calls"] += 1
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
