"""Precision and recall of traces against the mutation oracle (test/python/mutation.py).

    python bench/provenance_accuracy.py [--limit N] [MODEL ...]

For each part with a swappable operation the program is built again with that one operation changed; the sites that
changed are the truth. Takes a compilation per part: seconds each, minutes to hours in all.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "test" / "python"))

import torch
import zoo
from mutation import Verdict, verdicts
from rich.console import Console
from rich.table import Table

MODELS = ("mobilenet", "resnet", "gpt2-eager", "gpt2-sdpa", "llama-eager", "llama-sdpa", "bert-eager", "bert-sdpa")
MODELS += ("t5_encoder-eager", "lstm", "two_blocks", "cnn")


def main() -> int:
    parser = argparse.ArgumentParser(description="Precision and recall of traces against the mutation oracle.")
    parser.add_argument("models", nargs="*", default=MODELS, help=f"of the tests' zoo (default: {' '.join(MODELS)})")
    parser.add_argument("--limit", type=int, help="at most about so many mutations per model, spread over it")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    console = Console()
    table = Table("model", "mutations", "left out", "precision", "recall", box=None)
    for name in options.models:
        module, args, kwargs = zoo.build(name)
        program = torch.export.export(module, args, kwargs, strict=False)
        found = list(verdicts(program, options.limit))
        judged = [v for v in found if isinstance(v, Verdict)]
        for verdict in judged:
            if verdict.truth != verdict.claimed:
                console.print(
                    f"{name}: {verdict.name} ({verdict.what}): changed {sorted(verdict.truth)}, "
                    f"trace says {sorted(verdict.claimed)}",
                    highlight=False,
                )
        right = sum(len(v.truth & v.claimed) for v in judged)
        claimed, true = sum(len(v.claimed) for v in judged), sum(len(v.truth) for v in judged)
        table.add_row(
            name,
            str(len(judged)),
            str(len(found) - len(judged)),
            f"{right}/{claimed}",
            f"{right}/{true}",
        )
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
