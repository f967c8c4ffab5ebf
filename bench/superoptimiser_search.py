"""What the superoptimiser makes of models: substitutions, predicted times, how long it looked; and, if asked, times.

    python bench/superoptimiser_search.py [--seconds 60] [--models NAME ...] [--measure] [--calls 50] [--verify]

Without ``--measure`` and ``--verify`` nothing is compiled to machine code: the pass that the compiler runs is run on
the imported model. With ``--measure`` both programs are compiled, their results compared with eager PyTorch in float64,
and called in turn; medians. No times are worth anything while others use the machine.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import Counter
from typing import Any

import torch
from superoptimiser_models import MODELS
from torch_mlir import ir

import covan_mlir
from covan_mlir import dialects
from covan_mlir.compilation.captured import machine_of
from covan_mlir.frontend.frontends import capture
from covan_mlir.frontend.importer import import_program
from covan_mlir.lowering import stages, targets
from covan_mlir.lowering.pipeline import PipelineState
from covan_mlir.lowering.request import Job
from covan_mlir.machine import host
from covan_mlir.provenance.substitution import Substitution


def substituted(model: torch.nn.Module, args: tuple[torch.Tensor, ...], seconds: int) -> Substitution:
    """What the pass makes of a model."""
    (goal,) = targets.parse_all("cpu")
    imported = import_program(capture(model, args, None, None), provenance=True, external_weight_bytes=1 << 20)
    machine = machine_of(goal)
    if machine is not None:
        host.assume(machine)
    job = Job("linalg", (), tuple(imported.weights), target=goal.name, superoptimise=seconds, fuse=True)
    context = ir.Context()
    dialects.load(context)
    with context:
        module = ir.Module.parse(imported.bytecode)
    stages.set_facts(module, job)
    stages.run(stages.prepared(job), PipelineState(module))
    graph = stages.substituted(module)
    assert graph is not None
    return graph.substitution


def measured(model: torch.nn.Module, args: tuple[torch.Tensor, ...], seconds: int, calls: int) -> dict[str, Any]:
    """Medians of calls of both programs in turn, and the largest difference from eager PyTorch in float64."""
    options = [covan_mlir.CompileOptions(superoptimise=each) for each in (False, seconds)]
    programs = [covan_mlir.compile_module(model, args, options=each) for each in options]
    with torch.no_grad():
        exact = model.double()(*(arg.double() for arg in args))
        model.float()
    errors = [float((program(*args).double() - exact).abs().max() / exact.abs().max()) for program in programs]
    times: list[list[float]] = [[], []]
    for _ in range(calls):
        for place, program in enumerate(programs):
            began = time.perf_counter()
            program(*args)
            times[place].append(time.perf_counter() - began)
    plain, faster = (statistics.median(each) for each in times)
    return {"plain": plain, "faster": faster, "errors": errors}


def verified(model: torch.nn.Module, args: tuple[torch.Tensor, ...], seconds: int) -> str:
    """Whether the lineage of the substituted program holds."""
    exe = covan_mlir.compile_module(model, args, options=covan_mlir.CompileOptions(superoptimise=seconds))
    return str(exe.verify()).splitlines()[0]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--verify", action="store_true")
    parser.add_argument("--calls", type=int, default=50)
    chosen = parser.parse_args()
    print("| model | substitutions | predicted before, us | after, us | gain | programs costed | s | ended by itself |")
    print("|---|---|---|---|---|---|---|---|")
    for name in chosen.models:
        torch.manual_seed(0)
        model, args = MODELS[name]()
        model.eval()
        done = substituted(model, args, chosen.seconds)
        kinds = Counter(step.rule + (" backwards" if step.backward else "") for step in done.steps)
        shown = ", ".join(f"{count} × {rule}" for rule, count in kinds.most_common()) or "none"
        gain = done.before / done.after if done.after else 1.0
        print(
            f"| {name} | {shown} | {done.before * 1e6:.1f} | {done.after * 1e6:.1f} | {gain:.3f} | {done.costed} "
            f"| {done.seconds:.1f} | {'yes' if done.finished else 'no'} |",
            flush=True,
        )
        if chosen.measure:
            times = measured(model, args, chosen.seconds, chosen.calls)
            print(f"  measured {times['plain'] * 1e6:.1f} and {times['faster'] * 1e6:.1f} us; errors {times['errors']}")
        if chosen.verify:
            print(f"  {verified(model, args, chosen.seconds)}")


if __name__ == "__main__":
    main()
