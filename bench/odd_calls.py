"""Calls with indices out of range and divisors that are zero, beside eager: the same results, and errors for errors.

    python bench/odd_calls.py --count 2000 --seed 1 --target cpu

Prints what is unlike eager; the exit status says whether anything is. A crash is one.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "test" / "python"))

import torch
from index_models import COMPUTED, COUNT, DIVISIONS, ON_ARGUMENTS, ROWS, WIDTH

import covan_mlir


def odd_calls(count: int, seed: int, target: str) -> list[str]:
    """What went wrong in so many calls with indices and divisors of all kinds, beside eager."""
    rng, wrong = random.Random(seed), []
    x = torch.randn(ROWS, WIDTH)
    models = [*ON_ARGUMENTS.items(), *COMPUTED.items(), *DIVISIONS.items()]
    for name, model in models:
        first = torch.ones(COUNT, dtype=torch.int64) if model in DIVISIONS.values() else x
        exe = covan_mlir.compile_module(model, (first, torch.tensor([0, 2, 1])), target=target)
        for _ in range(max(1, count // len(models))):
            places = rng.sample(range(-ROWS, 2 * ROWS), COUNT)
            if len({place % ROWS for place in places}) < COUNT:  # who writes last to a place is not said
                continue
            if rng.random() < 0.3:
                places[rng.randrange(COUNT)] = rng.choice([-(2**63), 2**63 - 1, 2**40, -(2**31), rng.randrange(10**6)])
            outcomes = [_outcome(called, first, torch.tensor(places)) for called in (model, exe)]
            if not _alike(*outcomes):
                wrong.append(f"{name} {places}: {outcomes[1]!r}, eager: {outcomes[0]!r}"[:300])
    return wrong


def _outcome(model: Callable[..., Any], *args: torch.Tensor) -> torch.Tensor | Exception:
    try:
        result: torch.Tensor = model(*args)
    except Exception as error:  # told beside eager's
        return error
    return result


def _alike(eager: torch.Tensor | Exception, ours: torch.Tensor | Exception) -> bool:
    if isinstance(eager, Exception) or isinstance(ours, Exception):
        return isinstance(eager, Exception) and isinstance(ours, IndexError | ZeroDivisionError)
    return torch.allclose(eager, ours, equal_nan=True)


def main() -> int:
    """Exit status: whether any call was unlike eager's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000, help="of calls, altogether")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", default="cpu", help="of the programs")
    options = parser.parse_args()
    wrong = odd_calls(options.count, options.seed, options.target)
    print(f"{options.count} calls, {len(wrong)} unlike eager", *wrong, sep="\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
