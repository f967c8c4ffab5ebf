"""From a chain to the source of its kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.forms import Fusion
from covan_mlir.fred.fuse import fuse
from covan_mlir.lowering.kernels.cpu.generate import operands, refused
from covan_mlir.lowering.kernels.cuda.device import Device
from covan_mlir.lowering.kernels.cuda.kernel import CudaKernel
from covan_mlir.lowering.kernels.cuda.layout import SweepRoles, sweep_roles
from covan_mlir.lowering.kernels.cuda.ranges import BlockRanges, block_ranges
from covan_mlir.lowering.kernels.cuda.schedule import Problem, Schedule, configs, problem, seconds
from covan_mlir.lowering.kernels.cuda.writer import LaunchWriter, moments
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.kernel import Operand
from covan_mlir.lowering.kernels.reductions.hoist import Scope
from covan_mlir.lowering.kernels.reductions.redundant_precision import without_redundant_precision
from covan_mlir.machine.elements import bits


def analysed(chain: Chain, fusion: Fusion | None = None) -> tuple[Fusion, SweepRoles, Problem]:
    """-> (the chain's sweeps, roles of its axes, what schedules are chosen by).

    Raises:
        UnsupportedError: no shape of code can hold the chain.
    """
    if (reason := refused(chain)) is not None:
        raise UnsupportedError(reason)
    if unknown := chain.extents:
        raise UnsupportedError(f"the sizes of {', '.join(unknown)} are only known at run time")
    fusion = fusion or fuse(without_redundant_precision(chain) if chain.single_domain else chain)
    found = sweep_roles(fusion)
    sizes = chain.known_sizes
    loop = found.loops[0]
    writes = any(stage.writes for stage in found.stages)
    scope = Scope(fusion.chain, moments(loop))
    ranges = BlockRanges() if writes else block_ranges(fusion, found, loop, scope, sizes)
    longest = max(found.free, key=lambda axis: sizes[axis]) if found.free else None
    return fusion, found, problem(fusion.chain, found, ranges.share(longest, sizes))


def schedules(chain: Chain, device: Device, fusion: Fusion | None = None) -> list[Schedule]:
    """Every schedule of a chain that fits a device, the one that the cost model likes best first: what a tuner tries.

    Raises:
        UnsupportedError: no shape of code can hold the chain.
    """
    fusion, found, task = analysed(chain, fusion)
    made = configs(task, device)
    if found.feature_axes or found.inner or not fusion.source.single_domain:
        made = [one for one in made if one.shape != "whole"]
    return made


def generate(
    chain: Chain,
    device: Device,
    schedule: Schedule | None = None,
    *,
    fusion: Fusion | None = None,
    name: str = "fred",
    actions: Mapping[str, str] | None = None,
) -> CudaKernel:
    """Source of the launches of a chain.

    Args:
        schedule: one of `schedules`; None for its first.
        fusion: the chain's sweeps with their repairs, if they are already known.
        name: symbol of the kernel; launches are called like it.
        actions: what to call the steps of the chain in the source; None for their own names.

    Raises:
        UnsupportedError: there is no code for the chain; says why.
    """
    fusion, found, task = analysed(chain, fusion)
    if schedule is None:
        if not (known := schedules(chain, device, fusion)):
            raise UnsupportedError(f"no tiles of it fit {device.name}")
        schedule = known[0]
    sizes = chain.known_sizes
    inputs, outputs = operands(chain)
    names = {step.name: step.name for step in (*chain.inputs, *chain.steps, *fusion.chain.steps)} | dict(actions or {})
    launches = LaunchWriter(name, fusion, found, schedule, sizes, names).launches()
    moved = sum(prod(operand.shape) * bits(operand.dtype) // 8 for operand in (*inputs, *outputs))
    flops = int(fusion.chain.contraction_flops * task.share)
    return CudaKernel(
        name, launches, inputs, outputs, chain, device, schedule, seconds(task, device, schedule), flops, moved
    )


def _operands(chain: Chain, names: Iterable[str]) -> tuple[Operand, ...]:
    values = [chain.values[name] for name in names]
    return tuple(Operand(v.name, tuple(chain.sizes[axis] or 0 for axis in v.axes), v.dtype) for v in values)
