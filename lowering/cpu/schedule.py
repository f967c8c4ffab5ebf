"""Schedules: how a chain is laid out on a machine. Data; the generator decides nothing that stands here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.cpu.analysis import Sweeps, cost
from covan_mlir.lowering.cpu.machine import Machine, bits
from covan_mlir.lowering.cpu.roles import Roles

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


def lanes(chain: Chain, machine: Machine) -> int:
    """Elements per vector: of f32, or of f64 where the chain computes in it."""
    dtypes = {value.dtype for value in chain.values.values()}
    return machine.lanes("f64" if "f64" in dtypes else "f32")


def rows(chain: Chain, machine: Machine) -> Schedule:
    """Template for chains whose reductions all run over the same axes."""
    sizes = {axis.name: axis.size or 1 for axis in chain.axes}
    sweeps = Sweeps(chain)
    widest = max(chain.inputs, key=lambda value: len(value.axes))
    lane, width = widest.axes[-1], lanes(chain, machine)
    kept = prod(n for a, n in sizes.items() if a not in sweeps.over and a != lane)
    length = prod(sizes[a] for a in sweeps.over)
    if lane in sweeps.over:
        vectors = max(1, min(8 // len(chain.reductions) or 1, 4, -(-sizes[lane] // width)))
        together = next(n for n in (4, 2, 1) if kept % n == 0 and (n == 1 or length <= 32 * width // n))
        units, elements = kept, length
    else:
        vectors, together = 1, max(1, min(4, sizes[lane] // width))
        units, elements = kept * -(-sizes[lane] // (width * together)), length * width * together
    group = max(1, min(-(-units // (machine.cores * 8)), -(-(1 << 15) // elements) * 4))
    group = -(-group // together) * together if lane in sweeps.over else group
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
    )


def queries(chain: Chain, machine: Machine, found: Roles) -> Schedule:
    """Template for chains with contractions and many rows."""
    sizes = {axis.name: axis.size or 1 for axis in chain.axes}
    width = lanes(chain, machine)
    lane = max(found.free, key=lambda axis: sizes[axis])
    features = sizes[found.wide] if found.wide else 0
    depth = sum(sizes[axis] for step in found.inner for axis in step.over)
    vectors, together = (4, 4) if machine.registers >= 32 else (2, 4)
    vectors = min(vectors, -(-sizes[lane] // width))
    block, size = 128, bits("f64" if width < machine.lanes("f32") else "f32") // 8
    staged = max(depth, features) if any(bits(value.dtype) == 16 for value in chain.inputs) else 0

    def stack() -> int:
        return size * (vectors * width * (depth + features + block) + block * staged)

    while vectors > 1 and stack() > machine.stack:
        vectors, block = (vectors, block // 2) if block > 32 else (vectors // 2, 128)
    return Schedule(
        shape="queries",
        lane=lane,
        stream=found.stream,
        parallel=((lane, vectors * width),),
        lanes=width,
        vectors=vectors,
        unroll=together,
        block=block,
    )


def keys(chain: Chain, machine: Machine, found: Roles) -> Schedule:
    """Template for chains with contractions and few rows."""
    sizes = {axis.name: axis.size or 1 for axis in chain.axes}
    width = lanes(chain, machine)
    rows = prod(sizes[axis] for axis in found.free)
    features = sizes[found.wide] if found.wide else 1
    vectors = min(-(-features // width), 8, machine.registers // 4)
    return Schedule(
        shape="keys",
        lane=found.stream,
        stream=found.stream,
        parallel=(("", 1),),
        lanes=width,
        vectors=vectors,
        unroll=max(1, min(rows, machine.registers // 2 // vectors)),
        block=256 if rows <= 4 else 128,
    )


FEW_ROWS = 8
"""With at most so many rows to a set of keys, lanes along the rows would mostly be empty."""


def contractions(chain: Chain, machine: Machine, found: Roles) -> Schedule:
    """Template for chains with contractions."""
    sizes = {axis.name: axis.size or 1 for axis in chain.axes}
    few = prod(sizes[axis] for axis in found.free) <= FEW_ROWS
    return (keys if few else queries)(chain, machine, found)


def predict(chain: Chain, machine: Machine, schedule: Schedule) -> float:
    """Seconds that a chain takes: what moves, or what is computed, whichever takes longer."""
    sizes = {axis.name: axis.size or 1 for axis in chain.axes}
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


def variants(schedule: Schedule) -> Iterator[Schedule]:
    """The neighbours of a schedule that a tuner may try."""
    for unroll in (1, 2, 4, 6, 8):
        for vectors in (1, 2, 4, 8):
            for block in (32, 64, 128, 256):
                yield replace(schedule, unroll=unroll, vectors=vectors, block=block)
