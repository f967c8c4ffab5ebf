"""The process that builds and times kernels: reads requests from standard input, until that closes."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, BinaryIO

import numpy as np

from covan_mlir.fred import chain_json
from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.measuring import messages, reference
from covan_mlir.runtime import team
from covan_mlir.support.processes import frames
from covan_mlir.support.processes.parent import watch

COPIES = 8
"""Of weights that calls take in turns, at most."""


def main(parent: int, *extensions: str) -> None:
    """Serve the requests of process ``parent``.

    Standard output is kept for messages: what compilers print goes to standard error.

    Args:
        extensions: files of the user's own that register templates.
    """
    watch(parent)
    requests: BinaryIO = sys.stdin.buffer
    answers: BinaryIO = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    # Heavy imports come before the greeting: the caller counts the process as ready then.
    from covan_mlir.lowering.kernels import registry, standalone  # noqa: F401  # standalone: with both compilers
    from covan_mlir.passes.framework import extensions as files

    registry.templates("cpu", "rows")  # the package's own come first
    try:
        for path in extensions:
            files.load(path)
    except files.ExtensionError as error:
        frames.send(answers, messages.Failed(str(error)))
        return
    frames.send(answers, messages.Ready())
    while True:
        try:
            request, blobs = frames.receive(requests, messages.REQUESTS)
        except EOFError:
            return
        try:
            if isinstance(request, messages.Build):
                built, program = _build(request)
                frames.send(answers, built, [program])
            else:
                frames.send(answers, _time(request, blobs))
        except (Exception, MemoryError) as error:
            frames.send(answers, messages.Failed(f"{type(error).__name__}: {error}"[:2000]))


@lru_cache(8)
def _choices(chain: str, target: Any) -> Any:
    from covan_mlir.lowering.kernels.select import choices

    return choices(chain_json.load(json.loads(chain)), target)


def _build(request: messages.Build) -> tuple[messages.Built, bytes]:
    from covan_mlir.lowering.kernels.cpu.target import CpuTarget
    from covan_mlir.lowering.kernels.kernel import Executable, Refusal
    from covan_mlir.lowering.kernels.overrides import IllegalError
    from covan_mlir.lowering.kernels.standalone import compile_kernels

    listed = _choices(request.chain, CpuTarget(request.machine, request.winograd))
    kernels: list[Executable | None] = []
    refusals: list[str] = []
    for number, wanted in enumerate(request.candidates):
        reason, executable = "", None
        if isinstance(listed, Refusal):
            reason = listed.reason
        else:
            try:
                candidate, schedule = listed.scheduled(wanted.template, json.loads(wanted.schedule))
                written = candidate.write(schedule, f"candidate_{number}")
                if isinstance(written, Refusal):
                    reason = written.reason
                else:
                    executable = written.executable
            except IllegalError as error:
                reason = str(error)
        kernels.append(executable)
        refusals.append(reason)
    there = [kernel for kernel in kernels if kernel is not None]
    code = compile_kernels(there, beside=False) if there else b""  # children build on all cores
    told = tuple(None if kernel is None else _without_code(kernel).to_json() for kernel in kernels)
    return messages.Built(told, tuple(refusals)), code


def _without_code(kernel: Any) -> Any:
    return replace(kernel, text="", preparations=tuple(replace(each, text="") for each in kernel.preparations))


@lru_cache(2)
def _reference(text: str, seed: int, slack: float) -> tuple[Chain, Mapping[str, Any], reference.Reference]:
    """A chain, operands, and what is right on them: batches of one chain follow each other."""
    chain = chain_json.load(json.loads(text))
    arrays = reference.operands(chain, seed)
    return chain, arrays, reference.reference(chain, arrays, slack)


def _time(request: messages.Time, programs: Sequence[bytes]) -> messages.Timed:
    from covan_mlir.lowering.kernels.kernel import Executable
    from covan_mlir.lowering.kernels.measuring import timing
    from covan_mlir.lowering.kernels.standalone import Standalone

    if request.driver == team.DRIVER:
        import torch  # noqa: F401  # whose threads kernels share their work with
    chain, arrays, right = _reference(request.chain, request.seed, request.slack)
    calls: list[Callable[[], Any]] = []
    failures: list[str] = []
    number = 0
    wanted = {request.reference, *request.timed}
    for code, rows in zip(programs, request.kernels, strict=True):
        kernels = [Executable.from_json(row) for row in rows]
        alone = Standalone(kernels, request.driver, code)
        for kernel in kernels:
            if number in wanted:
                call, failure = _call(alone, kernel, chain, arrays, right, request.near)
            else:
                call, failure = (lambda: None), "not timed"
            calls.append(call)
            failures.append(failure)
            number += 1
    if failures[request.reference]:
        raise ValueError(f"the kernel that others are compared with is wrong: {failures[request.reference]}")
    good = [n for n in request.timed if not failures[n]]
    clock = timing.clock_of(request.driver)
    base, turns = timing.in_turns(calls[request.reference], [calls[n] for n in good], request.seconds, clock)
    by_number = dict(zip(good, turns, strict=True)) | {request.reference: base}
    order = range(len(calls))
    return messages.Timed(
        tuple(by_number[n].seconds if n in by_number else None for n in order),
        tuple(by_number[n].ratio if n in by_number else None for n in order),
        base.rounds,
        tuple(failures),
    )


def _call(
    alone: Any, kernel: Any, chain: Chain, arrays: Mapping[str, Any], right: reference.Reference, near: int
) -> tuple[Callable[[], Any], str]:
    """A call of a kernel, and what is wrong with its results; copies of weights that do not fit into the caches of the
    cores are taken in turns, for a program's other weights push them out between two calls."""
    weights = [value.name for value in chain.inputs if value.weight]
    size = sum(arrays[name].nbytes for name in weights)
    copies = 1 if not size else max(1, min(COPIES, -(-2 * near // size)))
    shared = {name: alone.buffer(array) for name, array in arrays.items() if name not in weights}
    bound = []
    for _ in range(copies):
        buffers = {**shared, **{name: alone.buffer(arrays[name]) for name in weights}}
        bound.append(alone.bound(kernel.name, *(buffers[operand.name] for operand in kernel.inputs)))
    results = bound[0]()
    got = {operand.name: _array(results, n, operand.dtype) for n, operand in enumerate(kernel.outputs)}
    turn = itertools.cycle(bound)
    return (lambda: next(turn)()), right.differs(got)


def _array(results: Any, number: int, dtype: str) -> np.ndarray[Any, Any]:
    import iree.runtime as rt

    from covan_mlir.fred.scalars import DTYPES

    view = results.get_as_object(number, rt.HalBufferView)
    array: np.ndarray[Any, Any] = view.map().asarray(view.shape, DTYPES[dtype])
    return array.copy()


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
