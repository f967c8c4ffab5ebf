"""Precision and recall of traces against the mutation oracle (test/python/mutation.py).

    python bench/provenance_accuracy.py [--fuse] [--limit N] [--json FILE] [MODEL ...]

The program is built again and again, each time with one operation, one number or two rows of one weight changed
(test/python/mutants.py); the sites that changed are the truth. Takes a compilation per mutant: seconds each, an hour in
all on two cores. Every disagreement is listed, in one of these classes:

- missed: the site changed, and the trace does not name it
- split: the operation is in several sites, and what was changed about it in some of them only
- transfer: the trace names a copy or fill, whose code does not say what it moves
- extra: the trace names a site that did not change
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "test" / "python"))

import torch
import zoo
from mutation import LeftOut, Oracle, Verdict, settle
from rich.console import Console
from rich.table import Table

from covan_mlir.lineage import Lineage

MODELS = (
    *("mobilenet", "resnet", "gpt2-eager", "gpt2-sdpa", "llama-eager", "llama-sdpa", "bert-eager", "bert-sdpa"),
    *("t5_encoder-eager", "lstm", "two_blocks", "cnn"),
)


def classes(verdict: Verdict, lineage: Lineage) -> list[str]:
    """Which kinds of disagreement a verdict shows; none if trace and truth agree."""
    kinds = ["missed"] if verdict.truth - verdict.claimed else []
    extra = verdict.claimed - verdict.truth
    if extra and verdict.truth & verdict.claimed and verdict.fate == "dispatched":
        kinds.append("split")
    elif extra:
        transfers = all(lineage.sites[site].kind == "transfer" for site in extra)
        kinds.append("transfer" if transfers else "extra")
    return kinds


def summary(name: str, mutants: int, verdicts: list[Verdict | LeftOut], lineage: Lineage) -> dict[str, Any]:
    judged = [v for v in verdicts if isinstance(v, Verdict)]
    right = sum(len(v.truth & v.claimed) for v in judged)
    rows = [asdict(v) | ({"classes": classes(v, lineage)} if isinstance(v, Verdict) else {}) for v in verdicts]
    return {
        "model": name,
        "mutants": mutants,
        "built": len(verdicts),
        "judged": len(judged),
        "kinds": dict(Counter(v.kind for v in judged)),
        "left_out": dict(Counter(v.why.split(":")[0] for v in verdicts if isinstance(v, LeftOut))),
        "right": right,
        "claimed": sum(len(v.claimed) for v in judged),
        "true": sum(len(v.truth) for v in judged),
        "classes": dict(Counter(c for v in judged for c in classes(v, lineage))),
        "rows": rows,
    }


def judged(oracle: Oracle, indices: Sequence[int], together: int) -> Iterator[Verdict | LeftOut]:
    """A verdict for each mutant, as soon as it is known."""
    if together == 1:
        yield from map(oracle.judge, indices)
        return
    verdicts: dict[int, Verdict | LeftOut] = {}
    for seed in (0, 1):  # in other company the second time; what was found wrong by itself stays so
        for group in oracle.groups(indices, together, seed):
            for index, verdict in zip(group, oracle.judge_together(group), strict=True):
                verdicts.setdefault(index, verdict)
                if isinstance(verdict, Verdict) and verdict.truth != verdict.claimed:
                    verdicts[index] = verdict
            print(f"{len(verdicts)} of {len(indices)}, pass {seed + 1}", file=sys.stderr, flush=True)
    yield from (verdicts[index] for index in indices)


def share(part: int, whole: int) -> str:
    return f"{part}/{whole} = {part / whole:.3f}" if whole else "0/0"


def main() -> int:
    parser = argparse.ArgumentParser(description="Precision and recall of traces against the mutation oracle.")
    parser.add_argument("models", nargs="*", default=MODELS, help=f"of the tests' zoo (default: {' '.join(MODELS)})")
    parser.add_argument("--limit", type=int, help="at most so many mutants per model, evenly spread over it")
    parser.add_argument(
        "--together", type=int, default=1, help="build so many mutants at once, each mutant twice in other company"
    )
    parser.add_argument("--fuse", action="store_true", help="with chains of reductions in kernels of their own")
    parser.add_argument("--json", type=Path, help="write every verdict there")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    console = Console(highlight=False, width=150)
    table = Table("model", "mutants", "built", "judged", "precision", "recall", "disagreements", box=None)
    summaries: list[dict[str, Any]] = []
    for name in options.models:
        module, args, kwargs = zoo.build(name)
        oracle = Oracle(torch.export.export(settle(module), args, kwargs, strict=False), options.fuse)
        count = min(options.limit or len(oracle), len(oracle))
        verdicts: list[Verdict | LeftOut] = []
        for verdict in judged(oracle, [i * len(oracle) // count for i in range(count)], options.together):
            verdicts.append(verdict)
            if isinstance(verdict, Verdict) and (kinds := classes(verdict, oracle.base.lineage)):
                console.print(
                    f"{name}: {verdict.node} ({verdict.what}): {', '.join(kinds)}: "
                    f"changed {sorted(verdict.truth)}, trace says {sorted(verdict.claimed)}"
                )
        summaries.append(summary(name, len(oracle), verdicts, oracle.base.lineage))
        _add(table, summaries[-1])
        if options.json:  # after each model: a run takes long
            options.json.write_text(json.dumps(summaries, indent=1, default=sorted))
    total = {
        key: sum(entry[key] for entry in summaries)
        for key in ("mutants", "built", "judged", "right", "claimed", "true")
    }
    _add(table, total | {"model": "all", "classes": sum((Counter(entry["classes"]) for entry in summaries), Counter())})
    console.print(table)
    left_out: Counter[str] = sum((Counter(entry["left_out"]) for entry in summaries), Counter())
    for why, count in left_out.most_common():
        console.print(f"left out: {why}: {count}")
    return 0


def _add(table: Table, entry: dict[str, Any]) -> None:
    table.add_row(
        entry["model"],
        *(str(entry[key]) for key in ("mutants", "built", "judged")),
        share(entry["right"], entry["claimed"]),
        share(entry["right"], entry["true"]),
        ", ".join(f"{name} {count}" for name, count in entry["classes"].items()) or "none",
    )


if __name__ == "__main__":
    sys.exit(main())
