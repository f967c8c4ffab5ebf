"""Programs at random: small functions of tensors, compiled, compared with eager, verified.

Operations are drawn one by one and given values of the program that they take: slices of what was normalized, products
of what was gathered, pieces put together again. A program is Python source, so that what fails can be read and kept. Of
one that fails, the values are tried one by one, and the first that fails alone is told. Programs of odd seeds are
compiled with every chain fused, whether it pays or not.

    python bench/random_programs.py --seed 0 --count 500
    python bench/random_programs.py --seed 123 --count 1 --show

The exit status is 1 if a program is wrong, does not compile, or does not verify.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path
from types import FunctionType
from typing import Literal

import torch
from drawn_programs import Program, target, write
from judging import Judge, NoAnswer

TOLERANCE = 2e-4
"""Of the largest difference from eager, relative to the largest value or 1."""
LIMIT = 240
"""Seconds per program."""


def outcome(program: Program) -> str:
    """``right``, or what is wrong."""
    import covan_mlir

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.py"
        path.write_text(program.source)
        names: dict[str, FunctionType] = {}
        exec(compile(program.source, str(path), "exec"), names)
        function, args = names["program"], program.arguments()
        expected = function(*args)
        try:
            fuse: Literal[True, "always"] = "always" if program.seed % 2 else True
            options = covan_mlir.CompileOptions(cache=False, fuse_reductions=fuse)
            exe = covan_mlir.compile_module(function, args, options=options)
        except covan_mlir.CompileError as error:
            return f"refused: {str(error).splitlines()[0]}"
        given = exe(*args)
        pairs = zip(*(each if isinstance(each, tuple) else (each,) for each in (given, expected)), strict=True)
        for name, (ours, theirs) in zip(program.results, pairs, strict=True):
            if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
                return f"wrong: {name} is {ours.dtype}{tuple(ours.shape)}, not {theirs.dtype}{tuple(theirs.shape)}"
            if theirs.numel() == 0:
                continue
            difference = (ours.double() - theirs.double()).abs().max().item()
            if not difference <= TOLERANCE * max(1.0, theirs.double().abs().max().item()):
                return f"wrong: {name} differs by {difference:.2g}"
        verdict = exe.verify()
        if verdict.outcome != "yes":
            said = [line.strip() for line in str(verdict).splitlines() if line.startswith("    ")]
            return f"{verdict.outcome}: {'; '.join(said[:2])}"
    return "right"


def _serve(pipe: Connection) -> None:
    torch.set_num_threads(1)
    while True:
        try:
            program = pipe.recv()
        except EOFError:
            return
        pipe.send(outcome(program))


def _asked(judge: Judge, program: Program) -> str:
    try:
        return str(judge.ask(program))
    except NoAnswer as error:
        return f"wrong: {error}"


def _smallest(judge: Judge, program: Program, kind: str) -> tuple[Program, str]:
    """The first value that fails in the same way alone, if there is one."""
    for name in dict.fromkeys(map(target, program.lines)):
        alone = program.alone(name)
        told = _asked(judge, alone)
        if told.partition(":")[0] == kind:
            return alone, told
    return program, ""


def main() -> None:
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--show", action="store_true", help="print every program")
    options = parser.parse_args()
    judge = Judge(_serve, "covan_mlir", LIMIT)
    counts: Counter[str] = Counter()
    start = time.monotonic()
    for seed in range(options.seed, options.seed + options.count):
        program = write(seed)
        told = _asked(judge, program)
        kind = told.partition(":")[0]
        counts[kind] += 1
        if options.show:
            print(program.source)
        if kind != "right":
            print(f"seed {seed}: {told}", flush=True)
            smallest, again = _smallest(judge, program, kind)
            print(f"{again}\n{smallest.shapes}\n{smallest.source}", flush=True)
    judge.end()
    print(f"{dict(counts)}, {time.monotonic() - start:.0f} s")
    sys.exit(counts["right"] != options.count)


if __name__ == "__main__":
    main()
