"""Chains with contractions, as the CPU's templates for few and for many rows see them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.forms import Fusion
from covan_mlir.fred.fuse import fuse
from covan_mlir.lowering.kernels.cpu.schedule import VectorSchedule, predict
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.reductions.masks import span
from covan_mlir.lowering.kernels.reductions.operands import elements, traffic
from covan_mlir.lowering.kernels.reductions.roles import LoopRoles, loop_roles
from covan_mlir.lowering.kernels.template import Cost, Match
from covan_mlir.machine.description import Machine
from covan_mlir.machine.elements import bits

FEW_ROWS = 8
"""With at most so many rows to a set of keys, lanes along the rows would mostly be empty."""


@dataclass(frozen=True)
class Contraction:
    """A chain with contractions.

    Attributes:
        chain: as it was given; its sizes may be known at run time only.
        fusion: its sweep, with the repairs.
        roles: of the axes of ``fusion.chain``.
    """

    chain: Chain
    fusion: Fusion
    roles: LoopRoles

    @cached_property
    def nominal(self) -> Chain:
        """The chain that the sweep computes, with a size for every axis: what schedules are chosen by."""
        return self.fusion.chain.nominal

    @cached_property
    def sharing(self) -> int:
        """Rows that share their keys."""
        return prod(self.nominal.known_sizes[axis] for axis in self.roles.free)

    @cached_property
    def streamed(self) -> int:
        """Bytes of the inputs that the loop streams."""
        sizes = self.nominal.known_sizes
        streamed = [value for value in self.nominal.inputs if self.roles.reduction_axis in value.axes]
        return sum(prod(sizes[axis] for axis in value.axes) * bits(value.dtype) // 8 for value in streamed)

    @cached_property
    def flops(self) -> int:
        """Floating-point operations, those skipped by masks left out."""
        sizes = self.chain.nominal.known_sizes
        longest = max(self.roles.free, key=lambda axis: sizes[axis], default=None)
        share = span(self.fusion, self.roles, self.chain.sizes).share(longest, sizes)
        return int(self.nominal.contraction_flops * share)

    def unknown(self, axes: set[str]) -> str | None:
        """Why code cannot be written that needs to know the sizes of some axes beforehand, or None."""
        needed = {axis for step in self.roles.inner for axis in step.over} | axes
        needed |= {self.roles.feature_axis} if self.roles.feature_axis else set()
        unknown = [axis for axis in self.chain.extents if axis in needed]
        return f"the sizes of {', '.join(unknown)} are only known at run time" if unknown else None

    def cost(self, seconds: float) -> Cost:
        """What a kernel costs that takes this long."""
        return Cost(seconds, self.flops, traffic(self.chain), elements(self.chain))


@dataclass(frozen=True)
class ContractionMatch(Match[VectorSchedule]):
    """A chain with contractions that a template takes: what it costs is the same question for all of them."""

    task: Contraction
    target: CpuTarget

    def predict(self, schedule: VectorSchedule) -> float:
        """See `Match`."""
        return predict(self.task.chain.nominal, self.target.machine, schedule)

    def cost(self, schedule: VectorSchedule) -> Cost:
        """See `Match`."""
        return self.task.cost(self.predict(schedule))


def contraction(chain: Chain, fusion: Fusion | None = None) -> Contraction:
    """What templates need to know of a chain with contractions.

    Args:
        fusion: its fused form, if that is known already.

    Raises:
        UnsupportedError: it is not one loop, or its axes are not laid out so that a template could take it.
    """
    fusion = fusion or fuse(chain)
    return Contraction(chain, fusion, loop_roles(fusion))


def stack(chain: Chain, machine: Machine, schedule: VectorSchedule, roles: LoopRoles) -> int:
    """Bytes of scratch of a chain with contractions, with one value kept per row and position."""
    sizes = chain.known_sizes
    features = sizes[roles.feature_axis] if roles.feature_axis else 0
    depth = sum(sizes[axis] for step in roles.inner for axis in step.over)
    element = bits("f64" if schedule.lanes < machine.lanes("f32") else "f32") // 8
    if schedule.shape == "keys":
        return element * prod(sizes[axis] for axis in roles.free) * (features + 2 * schedule.block)
    halves = any(bits(value.dtype) == 16 for value in chain.inputs)
    width, block = schedule.vectors * schedule.lanes, schedule.block
    # What a row and a position have to themselves, read from memory, is transposed into one more tile.
    tiles = 1 + sum({schedule.lane, roles.reduction_axis} <= set(value.axes) for value in chain.inputs)
    return element * (width * (depth + features + block * tiles) + (block * max(depth, features) if halves else 0))


def check_stack(task: Contraction, machine: Machine, schedule: VectorSchedule) -> None:
    """Raises UnsupportedError: the tiles of a schedule are more than a machine keeps in a stack frame."""
    needed = stack(task.nominal, machine, schedule, task.roles)
    if needed > machine.stack:
        raise UnsupportedError(f"its tiles take {needed} bytes of stack, of which there are {machine.stack}")


def fits(task: Contraction, machine: Machine, schedule: VectorSchedule) -> bool:
    """Whether a machine can hold a schedule."""
    held = schedule.unroll * schedule.vectors
    if held + schedule.vectors + 1 > machine.registers or schedule.block < schedule.unroll:
        return False
    return stack(task.nominal, machine, schedule, task.roles) <= machine.stack
