"""What `verify()` says of torch's own samples of its operators (`OpInfo`), each as a program of its own.

    python bench/verified_samples.py --dtype f32 --most 2
    python bench/verified_samples.py --dtype i64 --only exp index_select

Told are all samples that compile and are not verified, and how many there were of each outcome. What does not compile
stands in docs/operators.md.
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from multiprocessing.connection import Connection

import torch
from judging import Judge, NoAnswer
from opinfo_samples import DTYPES, UNDEFINED, Call, Key, operators, samples, spread, takes

import covan_mlir
from covan_mlir.errors import CovanError

SECONDS = 120.0
"""Per sample."""
_CHARACTERS = 300


def verified(key: Key) -> tuple[str, str]:
    """The outcome for one sample, and why it is no ``yes``."""
    sample = samples(key.op, key.dtype)[key.sample]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            verdict = covan_mlir.compile_module(Call(sample), (sample.copies(),)).verify()
        except CovanError as error:
            return "refused", str(error)
    reasons = (*map(str, verdict.counterexamples), *(reason for check in verdict.checks for reason in check.missing))
    return verdict.outcome, next(iter(reasons), "")


def _serve(connection: Connection) -> None:
    torch.set_num_threads(1)
    while True:
        try:
            key = connection.recv()
        except EOFError:
            return
        try:
            connection.send(verified(key))
        except Exception as error:
            connection.send((f"raises {type(error).__name__}", str(error)))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--dtype", choices=DTYPES, default="f32")
    parser.add_argument("--most", type=int, default=2, help="samples of each operator, far apart")
    parser.add_argument("--only", nargs="*", help="operators; all if none is named")
    options = parser.parse_args()
    judge = Judge(_serve, "opinfo_samples", SECONDS)
    outcomes: Counter[str] = Counter()
    for op in options.only or sorted(operators()):
        if op in UNDEFINED or not takes(op, options.dtype):
            continue
        for key in spread(op, options.dtype, options.most):
            try:
                outcome, reason = judge.ask(key)
            except NoAnswer as error:
                outcome, reason = "no answer", str(error)
            outcomes[outcome] += 1
            if outcome not in ("yes", "refused"):
                print(f"{op} {key.sample}: {outcome}: {reason[:_CHARACTERS]}", flush=True)
    judge.end()
    print(", ".join(f"{outcome}: {count}" for outcome, count in outcomes.most_common()))


if __name__ == "__main__":
    main()
