"""Attacks the reader and the translation of ONNX files: changed models, each in a process of its own.

    python bench/attack_onnx.py --count 2000 --seed 1 --keep wrong

Prints what went wrong: crashes, exceptions that are no `covan_mlir.CovanError`, and what takes more time or memory than
`attacks.SECONDS` and `attacks.allowed`.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "test" / "python"))

from attacks import HARMLESS, attempt
from onnx_attacks import cases, use
from onnx_models import victims


def main() -> int:
    """Exit status: whether anything went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500, help="of changed files")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder for the files that went wrong")
    options = parser.parse_args()
    outcomes: collections.Counter[str] = collections.Counter()
    peak, longest = 0, 0.0
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "model.onnx"
        for number, case in enumerate(itertools.islice(cases(victims(Path(name)), options.seed), options.count)):
            path.write_bytes(case.data)
            result = attempt(path, use=use)
            outcomes[f"{case.kind}: {result.outcome}"] += 1
            peak, longest = max(peak, result.peak), max(longest, result.seconds)
            if result.outcome not in HARMLESS:
                said = " | ".join(result.text.strip().splitlines()[-4:])[:700]
                print(f"{number}: {case.what[:200]}: {result.outcome}: {said}", flush=True)
                if options.keep:
                    options.keep.mkdir(parents=True, exist_ok=True)
                    (options.keep / f"{number}.onnx").write_bytes(case.data)
    print(f"{dict(outcomes)}, peak {peak >> 20} MiB, longest {longest:.2f} s of CPU time")
    return int(any(key.split(": ")[1] not in HARMLESS for key in outcomes))


if __name__ == "__main__":
    sys.exit(main())
