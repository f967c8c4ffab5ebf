"""Schedules: how a chain is laid out on a machine. Data; the generator decides nothing that stands here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Literal

from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.reductions.roles import LoopRoles
from covan_mlir.lowering.kernels.reductions.sweeps import Sweeps, cost
from covan_mlir.machine.description import Machine
from covan_mlir.machine.elements import bits

Shape = Literal["rows", "columns", "queries", "keys"]
"""Which shape of code: lanes along a reduced trailing axis; lanes along a kept axis; lanes along the rows of a chain
with contractions (many rows); lanes along the contracted axes (few rows)."""


@dataclass(frozen=True)
class Schedule:
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


def lanes(chain: Chain, machine: Machine) -> int:
    """Elements per vector: of f64 where the chain reads it, else of f32; what is then computed in f64 takes two."""
    dtypes = {value.dtype for value in chain.inputs}
    return machine.lanes("f64" if "f64" in dtypes else "f32")


def rows(chain: Chain, machine: Machine) -> Schedule:
    """Template for chains whose reductions all run over the same axes."""
    sizes = chain.known_sizes
    sweeps = Sweeps(chain)
    widest = max(chain.inputs, key=lambda value: len(value.axes))
    lane, width = widest.axes[-1], lanes(chain, machine)
    kept = prod(n for a, n in sizes.items() if a not in sweeps.over and a != lane)
    length = prod(sizes[a] for a in sweeps.over)
    if lane in sweeps.over:
        registers = -(-sizes[lane] // width)
        if length <= 16 * width:
            # What a row costs beside its elements is paid for several rows together.
            vectors = min(2, registers)
            together = min(8 // vectors, kept)
        else:
            vectors, together = max(1, min(8 // len(chain.reductions) or 1, 4, registers)), 1
        units, elements = kept, length
    else:
        vectors, together = 1, max(1, min(4, sizes[lane] // width))
        units, elements = kept * -(-sizes[lane] // (width * together)), length * width * together
    group = max(1, min(-(-units // (machine.cores * 8)), -(-(1 << 15) // elements) * 4))
    group = -(-group // together) * together
    return Schedule(
        shape="rows" if lane in sweeps.over else "columns",
        lane=lane,
        stream=lane if lane in sweeps.over else next(iter(sweeps.over)),
        parallel=(("", group),),
        lanes=width,
        vectors=vectors,
        unroll=together,
        block=length,
        keep=sweeps.shared,
        ahead=lane in sweeps.over and machine.l1 > 0,
    )


ROW_GROUP = 32
"""Rows that are computed together, if registers are few or wide enough."""


def queries(chain: Chain, machine: Machine, found: LoopRoles) -> Schedule:
    """Template for chains with contractions and many rows."""
    sizes = chain.known_sizes
    width = lanes(chain, machine)
    lane = max(found.free, key=lambda axis: sizes[axis])
    # Half of the registers accumulate; groups of some 32 rows read keys often enough from cache, and leave out what
    # a causal mask does closely.
    vectors = max(2, min(ROW_GROUP // width, machine.registers // 8))
    unroll = machine.registers // 2 // vectors
    vectors = min(vectors, -(-sizes[lane] // width))
    made = Schedule(
        shape="queries",
        lane=lane,
        stream=found.reduction_axis,
        parallel=((lane, vectors * width),),
        lanes=width,
        vectors=vectors,
        unroll=unroll,
        block=128,
    )
    while vectors > 1 and stack(chain, machine, made, found) > machine.stack:
        narrower = made.block <= 32
        vectors = vectors // 2 if narrower else vectors
        block = 128 if narrower else made.block // 2
        made = replace(made, vectors=vectors, block=block, parallel=((lane, vectors * width),))
    return made


def keys(chain: Chain, machine: Machine, found: LoopRoles) -> Schedule:
    """Template for chains with contractions and few rows."""
    sizes = chain.known_sizes
    width = lanes(chain, machine)
    rows = prod(sizes[axis] for axis in found.free)
    features = sizes[found.feature_axis] if found.feature_axis else 1
    vectors = min(-(-features // width), 8, machine.registers // 4)
    block = 256 if rows <= 4 else 128
    return Schedule(
        shape="keys",
        lane=found.reduction_axis,
        stream=found.reduction_axis,
        parallel=(("", 1),),
        lanes=width,
        vectors=vectors,
        unroll=max(1, min(rows, machine.registers // 2 // vectors)),
        block=block,
        split=parts(chain, machine, found, block),
        ahead=_streamed(chain, found) > 2 * machine.l2 * machine.cores,
    )


def _streamed(chain: Chain, found: LoopRoles) -> int:
    """Bytes of the inputs that the loop streams."""
    sizes = chain.known_sizes
    streamed = [value for value in chain.inputs if found.reduction_axis in value.axes]
    return sum(prod(sizes[axis] for axis in value.axes) * bits(value.dtype) // 8 for value in streamed)


SECOND_DISPATCH = 10e-6
"""Seconds that it takes to wait for all workgroups and start others."""


def parts(chain: Chain, machine: Machine, found: LoopRoles, block: int) -> int:
    """Into how many parts to cut the loop, so that all cores have as much to do.

    Without enough groups of rows that share their keys, cores would be idle. Reading the streamed inputs is what a
    group takes; from the last cache it is faster than from memory.
    """
    sizes = chain.known_sizes
    groups = prod(sizes[axis] for axis in found.rows if axis not in found.free)
    longest = -(-sizes[found.reduction_axis] // block)
    if found.stage.split is None or longest == 1:
        return 1
    moved = _streamed(chain, found)
    near = 4 if moved <= machine.llc // 2 else 1
    seconds = moved / groups / (machine.bandwidth * near)

    def predicted(n: int) -> float:
        return -(-groups * n // machine.cores) / n * seconds + (SECOND_DISPATCH if n > 1 else 0.0)

    return min(range(1, min(longest, 4 * machine.cores) + 1), key=predicted)


FEW_ROWS = 8
"""With at most so many rows to a set of keys, lanes along the rows would mostly be empty."""


def contractions(chain: Chain, machine: Machine, found: LoopRoles) -> Schedule:
    """Template for chains with contractions."""
    sizes = chain.known_sizes
    few = prod(sizes[axis] for axis in found.free) <= FEW_ROWS
    return (keys if few else queries)(chain, machine, found)


def predict(chain: Chain, machine: Machine, schedule: Schedule) -> float:
    """Seconds that a chain takes: what moves, or what is computed, whichever takes longer."""
    sizes = chain.known_sizes
    moved = sum(
        prod(sizes[a] for a in chain.values[name].axes) * bits(chain.values[name].dtype) // 8
        for name in (*(value.name for value in chain.inputs), *chain.outputs)
    )
    instructions = 0.0
    for step in chain.steps:
        axes = {*step.axes, *getattr(step, "over", ())}
        instructions += prod(sizes[a] for a in axes) * (cost(step.expr) + 1) / schedule.lanes
    rate = machine.flops / (2 * schedule.lanes)  # vector instructions per second of one core
    units = prod(sizes.values())
    cores = max(1, min(machine.cores, units))
    return max(moved / (machine.bandwidth * cores), instructions / (rate * cores))


def legal_schedules(chain: Chain, machine: Machine, found: LoopRoles | None = None) -> Iterator[Schedule]:
    """Every schedule that the generator takes and the machine can hold; the templates' own choice comes first.

    Args:
        found: roles of the axes, for chains with contractions.
    """
    first = contractions(chain, machine, found) if found else rows(chain, machine)
    yield first
    seen = {first}
    for unroll, vectors, block in product((1, 2, 4, 6, 8, 12), (1, 2, 4, 8), (32, 64, 128, 256)):
        group = first.parallel
        if first.shape == "queries":
            group = ((first.lane, vectors * first.lanes),)
        if first.shape in ("rows", "columns"):
            block = first.block
        made = replace(first, unroll=unroll, vectors=vectors, block=block, parallel=group)
        splits = {1, first.split}
        if found and first.shape == "keys" and found.stage.split:
            splits |= {n for n in (2, 4, 8, 16) if n * block <= (chain.sizes[found.reduction_axis] or 1)}
        for split in sorted(splits):
            cut = replace(made, split=split)
            if cut not in seen and _fits(chain, machine, cut, found):
                seen.add(cut)
                yield cut


def _fits(chain: Chain, machine: Machine, schedule: Schedule, found: LoopRoles | None) -> bool:
    sizes = chain.known_sizes
    held = schedule.unroll * schedule.vectors
    if schedule.shape == "rows":
        kept = prod(n for a, n in sizes.items() if a not in Sweeps(chain).over)
        return schedule.unroll <= kept and held <= machine.registers
    if schedule.shape == "columns" or found is None:
        return schedule.vectors == 1 and held <= machine.registers // 2
    if held + schedule.vectors + 1 > machine.registers or schedule.block < schedule.unroll:
        return False
    return stack(chain, machine, schedule, found) <= machine.stack


def stack(chain: Chain, machine: Machine, schedule: Schedule, found: LoopRoles) -> int:
    """Bytes of scratch of a chain with contractions, with one value kept per row and position."""
    sizes = chain.known_sizes
    features = sizes[found.feature_axis] if found.feature_axis else 0
    depth = sum(sizes[axis] for step in found.inner for axis in step.over)
    element = bits("f64" if schedule.lanes < machine.lanes("f32") else "f32") // 8
    if schedule.shape == "keys":
        return element * prod(sizes[axis] for axis in found.free) * (features + 2 * schedule.block)
    halves = any(bits(value.dtype) == 16 for value in chain.inputs)
    width, block = schedule.vectors * schedule.lanes, schedule.block
    # What a row and a position have to themselves, read from memory, is transposed into one more tile.
    tiles = 1 + sum({schedule.lane, found.reduction_axis} <= set(value.axes) for value in chain.inputs)
    return element * (width * (depth + features + block * tiles) + (block * max(depth, features) if halves else 0))
