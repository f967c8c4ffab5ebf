"""Schedules of the CPU's templates: how a chain is laid out on a machine. Data; writers decide nothing that stands
here."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.reductions.operands import traffic
from covan_mlir.lowering.kernels.reductions.sweeps import cost
from covan_mlir.lowering.kernels.template import Schedule
from covan_mlir.machine.description import Machine

Shape = Literal["rows", "columns", "queries", "keys"]
"""Which shape of code: lanes along a reduced trailing axis; lanes along a kept axis; lanes along the rows of a chain
with contractions (many rows); lanes along the contracted axes (few rows)."""


@dataclass(frozen=True)
class VectorSchedule(Schedule):
    """A schedule.

    Attributes:
        lane: axis that vector lanes run along.
        stream: axis that is swept.
        parallel: axes whose positions are distributed over workgroups, with the number of positions of each.
        lanes: elements per register.
        vectors: registers along the lane axis in a register tile.
        unroll: positions of the other axis in a register tile.
        block: positions of the streamed axis per step; the scratch tiles are this long.
        keep: values that are written to scratch where they are first computed, instead of computed again.
        nontemporal: outputs bypass the caches.
        split: parts that the streamed axis is cut into, each swept by a workgroup of its own; their states are merged.
        ahead: what is read next is asked for beforehand: of the next row by the first sweep over a row (what machines
            do by themselves stops at pages), of the next block's keys while the values of a block are read.
    """

    shape: Shape
    lane: str
    stream: str
    parallel: tuple[tuple[str, int], ...]
    lanes: int
    vectors: int
    unroll: int
    block: int
    keep: tuple[str, ...] = ()
    nontemporal: bool = False
    split: int = 1
    ahead: bool = False


UNROLLS = (1, 2, 4, 6, 8, 12)
VECTORS = (1, 2, 4, 8)
BLOCKS = (32, 64, 128, 256)
"""What templates list besides their own choice, where the machine can hold it."""


def lanes(chain: Chain, machine: Machine) -> int:
    """Elements per vector: of f64 where the chain reads it, else of f32; what is then computed in f64 takes two."""
    dtypes = {value.dtype for value in chain.inputs}
    return machine.lanes("f64" if "f64" in dtypes else "f32")


def predict(chain: Chain, machine: Machine, schedule: VectorSchedule) -> float:
    """Seconds that a chain takes: what moves, or what is computed, whichever takes longer."""
    sizes = chain.known_sizes
    moved = traffic(chain)
    instructions = 0.0
    for step in chain.steps:
        axes = {*step.axes, *getattr(step, "over", ())}
        instructions += prod(sizes[a] for a in axes) * (cost(step.expr) + 1) / schedule.lanes
    rate = machine.flops / (2 * schedule.lanes)  # vector instructions per second of one core
    units = prod(sizes.values())
    cores = max(1, min(machine.cores, units))
    return max(moved / (machine.bandwidth * cores), instructions / (rate * cores))
