"""From a chain to the SPIR-V kernel of it: a row for each invocation."""

from __future__ import annotations

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.fuse import fuse
from covan_mlir.lowering.kernels.cpu.generate import generate as written
from covan_mlir.lowering.kernels.cpu.generate import refused
from covan_mlir.lowering.kernels.cpu.schedule import Schedule
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.kernel import Kernel, Refusal
from covan_mlir.lowering.kernels.reductions.plan import plan
from covan_mlir.lowering.kernels.reductions.roles import LoopRoles, loop_roles
from covan_mlir.lowering.kernels.reductions.sweeps import Sweeps
from covan_mlir.lowering.kernels.vulkan.invocation import Invocation
from covan_mlir.machine.description import Machine

_BLOCK = 1
"""Positions of the loop at a time, whose scores an invocation keeps."""
_TOGETHER = 1
"""Of them, and of features, so many are under way at the same time."""


def rows(chain: Chain) -> Schedule:
    """For chains whose reductions all run over the same axes."""
    sweeps = Sweeps(chain)
    lane = max(chain.inputs, key=lambda value: len(value.axes)).axes[-1]
    inner = lane in sweeps.over
    stream = lane if inner else next(iter(sweeps.over))
    return Schedule("rows" if inner else "columns", lane, stream, (("", 1),), 1, 1, 1, 1)


def contractions(chain: Chain, found: LoopRoles) -> Schedule:
    """For chains with contractions: a row for each invocation, or, where rows share no keys, a position of theirs."""
    sizes = chain.sizes
    if not found.free:
        return Schedule("keys", found.reduction_axis, found.reduction_axis, (("", 1),), 1, 1, 1, _BLOCK)
    lane = max(found.free, key=lambda axis: sizes[axis] or 0)
    return Schedule("queries", lane, found.reduction_axis, ((lane, 1),), 1, 1, _TOGETHER, _BLOCK)


def generate(chain: Chain, machine: Machine, *, name: str = "fred") -> Kernel | Refusal:
    """Code for a chain.

    Args:
        machine: an invocation of the device; see `covan_mlir.lowering.kernels.vulkan.device`.
        name: symbol of the executable and its export.
    """
    if (reason := refused(chain)) is not None:
        return Refusal(reason)
    if chain.single_domain:
        return written(chain, machine, rows(chain), name=name, made=Invocation)
    fusion = fuse(chain)
    try:
        schedule = contractions(fusion.chain, loop_roles(fusion))
    except UnsupportedError as error:
        return Refusal(str(error))
    return written(chain, machine, schedule, fusion=fusion, name=name, made=Invocation)


def iterations(chain: Chain) -> int | None:
    """Most iterations of all loops that an invocation runs; None where sizes known at run time only decide."""
    if chain.single_domain:
        sizes = [chain.sizes[axis] for axis in chain.reductions[0].over]
        length = 1
        for size in sizes:
            if size is None:
                return None
            length *= size + 1  # the loop around the next one counts, too
        return (len(chain.reductions) + 2) * length
    return _of_contractions(chain)


def _of_contractions(chain: Chain) -> int | None:
    fusion = fuse(chain)
    found = loop_roles(fusion)
    laid = plan(fusion, found, found.rows)
    length = fusion.chain.sizes[found.reduction_axis]
    depths = [fusion.chain.sizes[axis] for step in found.inner for axis in step.over]
    wide = fusion.chain.sizes[found.feature_axis] if found.feature_axis else 0
    if length is None or wide is None or None in depths:
        return None
    depth = sum(size or 0 for size in depths)
    if not found.free:
        return length * (depth + len(laid.passes) * (wide + 2 * _BLOCK) + 4 * _BLOCK) + 4 * (wide + depth)
    groups = -(-wide // _TOGETHER) * (_BLOCK + 1)
    # One position after the other where a mask or the length leaves less than a block.
    block = _BLOCK * depth + len(laid.passes) * (groups + 2 * _BLOCK) + 4 * _BLOCK
    whole = depth + len(laid.passes) * (groups + 2 * _BLOCK) + 4 * _BLOCK
    return -(-length // _BLOCK) * whole + 2 * block + 4 * (wide + depth)
