"""Rules of tensor programs from nothing: how many programs, candidates and rules there are, and how long each step
takes.

    python bench/superoptimiser.py [--operators 3] [--families matrices images ...] [--write] [--evaluations 1000000]

The table is the one of TASO (Jia et al., SOSP 2019, table 3): candidates at first, of these those that differ by more
than names of tensors, of these those without a part in common, of these those that no smaller rule implies. Each
family has a process of its own, two at a time. ``--write`` writes the file of rules that is shipped.
``--evaluations`` tries all rules of that file on as many random tensors, of random sizes.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

import covan_mlir.subst.rule_file as files
from covan_mlir.subst.derive import Derivation, derive, distinct, several_results
from covan_mlir.subst.families import TASO
from covan_mlir.subst.inference import infer
from covan_mlir.subst.laws import laws
from covan_mlir.subst.prove import differ, random_sizes

POINTS = 250
"""Tensors that are tried for each choice of sizes."""


def run(name: str, operators: int) -> Derivation:
    """A family's rules."""
    (family,) = (family for family in TASO if family.name == name)
    derivation = derive(family, operators)
    derivation.rules += several_results(derivation.rules)
    return derivation


def table(derivations: list[Derivation]) -> str:
    """Counts of all levels together, and seconds."""
    columns = ("programs", "initial", "renaming", "common", "dominance", "refuted", "undecided")
    lines = ["| family | " + " | ".join(columns) + " | rules | s |", "|---" * (len(columns) + 3) + "|"]
    for derivation in derivations:
        counts = [str(sum(getattr(level, column) for level in derivation.levels)) for column in columns]
        seconds = sum(derivation.seconds.values())
        cells = [derivation.family.name, *counts, str(len(derivation.rules)), f"{seconds:.1f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def written_down() -> list[files.NamedRule]:
    """The rules of `covan_mlir.subst.laws`, proved and measured."""
    rules = []
    for name, proved in laws():
        if proved.rule is None or proved.certificate.status != "proved":
            raise SystemExit(f"{name} is not proved: {proved.certificate}")
        rules.append(files.measured(name, proved.rule, proved.certificate))
    return rules


def evaluate(evaluations: int) -> str:
    """All shipped rules on random tensors of random sizes."""
    rules, rng = files.shipped(), np.random.default_rng(2)
    done, wrong = 0, []
    start = time.perf_counter()
    while done < evaluations:
        for rule in rules:
            typed = infer(rule.rule)
            sizes = random_sizes(typed, rng)
            if sizes is not None:
                done += POINTS
                if differ(typed, sizes, POINTS, rng):
                    wrong.append(rule.name)
    seconds = time.perf_counter() - start
    return f"{done} evaluations of {len(rules)} rules in {seconds:.0f} s: {len(wrong)} false {sorted(set(wrong))}"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--operators", type=int, default=3)
    parser.add_argument("--families", nargs="*", default=[family.name for family in TASO])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--evaluations", type=int, default=0)
    options = parser.parse_args()
    if options.families:
        start = time.perf_counter()
        with ProcessPoolExecutor(options.processes) as pool:
            jobs = [pool.submit(run, name, options.operators) for name in options.families]
            derivations = [job.result() for job in jobs]
        print(table(derivations))
        print(f"{time.perf_counter() - start:.1f} s with {options.processes} processes")
        for derivation in derivations:
            print(derivation.family.name, {step: round(seconds, 1) for step, seconds in derivation.seconds.items()})
            for rejected in derivation.rejected:
                if rejected.certificate.status == "undecided" and rejected.rule is not None:
                    print("undecided:", " = ".join(map(str, (*rejected.rule.source, *rejected.rule.target))))
        if options.write:
            enumerated = distinct(proved for derivation in derivations for proved in derivation.rules)
            rules = files.named(enumerated) + written_down()
            path = Path(files.__file__).with_name(files.SHIPPED)
            path.write_text(files.write(rules))
            print(f"{len(rules)} rules in {path}")
    if options.evaluations:
        print(evaluate(options.evaluations))


if __name__ == "__main__":
    main()
