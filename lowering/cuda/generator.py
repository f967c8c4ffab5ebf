"""The kernels of a program for CUDA, as `covan_mlir.lowering.fused` embeds them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.cpu.errors import UnsupportedError
from covan_mlir.lowering.cpu.kernel import Dispatch, Operand, Refusal
from covan_mlir.lowering.cuda.compile import Binary, NoTritonError, available, compile_kernel
from covan_mlir.lowering.cuda.device import DEVICES
from covan_mlir.lowering.cuda.embed import module_text
from covan_mlir.lowering.cuda.kernel import CudaKernel
from covan_mlir.lowering.cuda.schedule import Schedule

log = logging.getLogger(__name__)

TRIES = 4
"""Schedules that are compiled before a chain is given up: the cost model only estimates what a tile takes."""


@dataclass(frozen=True)
class Executables:
    """A compiled kernel in the form that programs embed.

    Attributes:
        name: symbol of the function that calls stand for.
        text: a module that holds nothing but the ``hal.executable.source`` of each dispatch.
        inputs, outputs: operands and results of a call.
        dispatches: in order; what one writes and a later one reads is named by both.
        seconds: predicted time.
    """

    name: str
    text: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    dispatches: tuple[Dispatch, ...]
    schedule: Schedule
    seconds: float


def executables(kernel: CudaKernel, binaries: tuple[Binary, ...]) -> Executables:
    """A compiled kernel in the form that programs embed."""
    dispatches = tuple(Dispatch(launch.name, launch.inputs, launch.outputs) for launch in kernel.launches)
    text = module_text(binaries, kernel.device)
    return Executables(kernel.name, text, kernel.inputs, kernel.outputs, dispatches, kernel.schedule, kernel.seconds)


@lru_cache(256)
def _kernel(architecture: str, chain: Chain, name: str) -> Executables | Refusal:
    from covan_mlir.lowering.cuda.generate import generate, schedules

    device = DEVICES[architecture]
    reasons: list[str] = []
    try:
        for schedule in schedules(chain, device)[:TRIES]:
            try:
                made = generate(chain, device, schedule, name=name)
                return executables(made, compile_kernel(made))
            except UnsupportedError as error:
                reasons.append(str(error))
        return Refusal(reasons[0] if reasons else f"no tiles of it fit {architecture}")
    except (UnsupportedError, NoTritonError) as error:
        return Refusal(str(error))
    except Exception as error:  # a program can do without, and must not fail for it
        log.warning("code generation failed", exc_info=True)
        return Refusal(f"code generation failed: {error!r}")


def _without_triton(chain: Chain, name: str) -> Refusal:
    return Refusal("Triton is not installed: pip install covan-mlir[cuda]")


def cuda_generator(architecture: str) -> Callable[[Chain, str], Executables | Refusal]:
    """The generator for an architecture (``sm_90a``); it remembers what it wrote.

    Without Triton every chain is refused, and IREE's own code is used.
    """
    return partial(_kernel, architecture) if available() else _without_triton
