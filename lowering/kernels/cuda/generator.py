"""The kernels of a program for CUDA, as `covan_mlir.lowering.kernels.fused` embeds them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.cuda.compile import Binary, NoTritonError, available, compile_kernel
from covan_mlir.lowering.kernels.cuda.device import DEVICES
from covan_mlir.lowering.kernels.cuda.embed import module_text
from covan_mlir.lowering.kernels.cuda.kernel import CudaKernel
from covan_mlir.lowering.kernels.cuda.lines import placed, renamed
from covan_mlir.lowering.kernels.cuda.schedule import Schedule
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.kernel import Dispatch, Operand, Refusal
from covan_mlir.lowering.kernels.reductions.profitability import does_not_pay
from covan_mlir.lowering.source_lines import Places

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


@dataclass(frozen=True)
class Compiled:
    """A kernel and the PTX of its launches, under a name that all chains share."""

    kernel: CudaKernel
    binaries: tuple[Binary, ...]


_NAME = "fred_kernel_"
"""Stands for the name of a kernel where it is only known later."""


def executables(compiled: Compiled, name: str, places: Places = ()) -> Executables:
    """A compiled kernel in the form that programs embed.

    Args:
        places: what its line tables name.
    """
    kernel = compiled.kernel
    where = dict(places)
    binaries = [renamed(placed(binary, where), _NAME, name) for binary in compiled.binaries]
    launches = [binary.launch for binary in binaries]
    dispatches = tuple(Dispatch(launch.name, launch.inputs, launch.outputs) for launch in launches)
    text = module_text(binaries, kernel.device)
    return Executables(name, text, kernel.inputs, kernel.outputs, dispatches, kernel.schedule, kernel.seconds)


@lru_cache(256)
def _compiled(architecture: str, always: bool, chain: Chain) -> Compiled | Refusal:
    from covan_mlir.lowering.kernels.cuda.generate import generate, schedules

    device = DEVICES[architecture]
    reasons: list[str] = []
    try:
        for schedule in schedules(chain, device)[:TRIES]:
            try:
                made = generate(chain, device, schedule, name=_NAME)
                reason = does_not_pay(chain, device.rates, made.seconds)
                if reason is not None and not always:
                    return Refusal(reason)
                return Compiled(made, compile_kernel(made))
            except UnsupportedError as error:
                reasons.append(str(error))
        return Refusal(reasons[0] if reasons else f"no tiles of it fit {architecture}")
    except (UnsupportedError, NoTritonError) as error:
        return Refusal(str(error))
    except Exception as error:  # a program can do without, and must not fail for it
        log.warning("code generation failed", exc_info=True)
        return Refusal(f"code generation failed: {error!r}")


def _kernel(architecture: str, always: bool, chain: Chain, name: str, places: Places) -> Executables | Refusal:
    made = _compiled(architecture, always, chain)
    return made if isinstance(made, Refusal) else executables(made, name, places)


def _without_triton(chain: Chain, name: str, places: Places) -> Refusal:
    return Refusal("Triton is not installed: pip install covan-mlir[cuda]")


def cuda_generator(architecture: str, always: bool = False) -> Callable[[Chain, str, Places], Executables | Refusal]:
    """The generator for an architecture (``sm_90a``); it remembers what it wrote.

    Without Triton every chain is refused, and IREE's own code is used.

    Args:
        always: kernels are made also where they are not predicted to pay.
    """
    return partial(_kernel, architecture, always) if available() else _without_triton
