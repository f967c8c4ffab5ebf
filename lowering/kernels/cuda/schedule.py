"""Schedules of tiles: how a chain is laid out on a GPU. Data; `configs` lists those that fit, the likeliest first."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Literal

from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.cuda.device import CudaDevice
from covan_mlir.lowering.kernels.cuda.layout import SweepRoles, power_of_two
from covan_mlir.lowering.kernels.template import Schedule
from covan_mlir.machine.elements import bits

Shape = Literal["whole", "loop"]
"""Whether a program holds whole rows, or goes over them in blocks with the derived repairs."""

MAX_WHOLE = 1 << 15
"""Elements of the longest row that is held whole."""
LEAST = 16
"""Positions of a dimension that matrix instructions work on."""


@dataclass(frozen=True)
class TileSchedule(Schedule):
    """A schedule.

    Attributes:
        rows: axes whose positions are the rows of a tile, as one dimension; other row axes have a program each.
        block_rows: rows of a tile.
        block_stream: positions of a block of the loop; all of them where rows are held whole.
        block_wide: features of a tile.
        parts: into how many parts the loop is split; their states are merged by a second launch.
        num_warps: of a program.
        num_stages: blocks of the loop that are on their way from memory at a time.
        precision: of matrix products of f32.
        backwards: the last tiles of rows run first: under a causal mask they take longest.
        fold: factors move into exponentials of base 2, which rounds differently.
        group: tiles of rows whose programs run beside each other for all tiles of features, so that what they read is
            in cache; 0: all.
    """

    shape: Shape
    rows: tuple[str, ...]
    block_rows: int
    block_stream: int
    block_wide: int = 1
    parts: int = 1
    num_warps: int = 4
    num_stages: int = 1
    precision: Literal["tf32x3", "tf32", "ieee"] = "tf32x3"
    backwards: bool = False
    fold: bool = False
    group: int = 0


@dataclass(frozen=True)
class Problem:
    """What schedules are chosen by.

    Attributes:
        length: positions of the stream.
        rows: rows in all.
        shared_rows: rows that share what is streamed, along all free axes.
        depth, wide: contracted positions and features, as tiles have them; 0 for none.
        bytes: of an element of what is streamed.
        products: whether there are matrix products.
        live: tiles of rows and positions that are held at a time.
        share: part of the positions that no mask leaves out.
    """

    chain: Chain
    roles: SweepRoles
    length: int
    rows: int
    shared_rows: int
    depth: int
    wide: int
    bytes: int
    live: int
    share: float = 1.0

    @property
    def products(self) -> bool:
        """Whether rows share what is streamed."""
        return self.roles.shared

    @property
    def splits(self) -> bool:
        """Whether the loop may be split: it is all there is."""
        return sum(bool(stage.axes) for stage in self.roles.stages) == 1 and not any(
            s.writes for s in self.roles.stages
        )


def problem(chain: Chain, roles: SweepRoles, share: float = 1.0) -> Problem:
    """What a fused chain asks of a schedule."""
    sizes = chain.known_sizes
    streamed = [v for v in chain.inputs if set(roles.reduction_axes) & set(v.axes)]
    doubles = any(step.dtype == "f64" for step in chain.reductions)
    deep = [prod(sizes[a] for a in step.over) for step in roles.inner]
    wide = prod(sizes[a] for a in roles.feature_axes)
    return Problem(
        chain,
        roles,
        prod(sizes[a] for a in roles.reduction_axes),
        prod(sizes[a] for a in roles.rows),
        prod(sizes[a] for a in roles.free) if roles.shared else 1,
        max(LEAST, power_of_two(max(deep))) if deep else 0,
        max(LEAST, power_of_two(wide)) if roles.feature_axes else 0,
        max((bits(v.dtype) // 8 for v in streamed), default=4),
        max(1, sum(bool(set(roles.rows) & set(v.axes)) for v in streamed)) + 2 * doubles,
        share,
    )


def shared_memory(task: Problem, schedule: TileSchedule) -> int:
    """Bytes of shared memory of a program, about: operands of matrix instructions, buffered."""
    if not task.products or schedule.block_rows < LEAST:
        return 4 * schedule.num_warps * 32
    stages = max(1, schedule.num_stages)
    streamed = schedule.block_stream * (task.depth + min(task.wide, schedule.block_wide)) * task.bytes
    words = 3 if task.bytes == 4 and schedule.precision == "tf32x3" else 1
    weights = schedule.block_rows * schedule.block_stream * task.bytes if words > 1 else 0
    return streamed * (stages + (words > 1)) + schedule.block_rows * task.depth * task.bytes + weights


def registers(task: Problem, device: CudaDevice, schedule: TileSchedule) -> float:
    """Registers of a thread that tiles take, about."""
    threads = 32 * schedule.num_warps
    if not task.products:
        return schedule.block_rows * schedule.block_stream * task.live * max(task.bytes, 4) / 4 / threads
    if schedule.block_rows < LEAST:
        return schedule.block_stream * (task.depth + 2 * min(task.wide, schedule.block_wide)) / threads
    rows = schedule.block_rows
    held = rows * min(task.wide, schedule.block_wide) + 1.5 * rows * schedule.block_stream
    if task.bytes == 4 and schedule.precision == "tf32x3":  # three products for one, of operands in two pieces each
        held = (1.4 if rows >= 16 * schedule.num_warps else 2.0) * (
            held + rows * schedule.block_stream + rows * task.depth
        )
    elif not (device.architecture.wgmma and rows >= 64):
        held += rows * task.depth / 2  # queries stay in registers
    return held / threads


def seconds(task: Problem, device: CudaDevice, schedule: TileSchedule) -> float:
    """Predicted time: the longest of products, exponentials and what moves, as far as programs fill the device."""
    sizes = task.chain.known_sizes
    moved: float = sum(
        prod(sizes[a] for a in task.chain.values[name].axes) * bits(task.chain.values[name].dtype) // 8
        for name in (*(v.name for v in task.chain.inputs), *task.chain.outputs)
    )
    tiled = prod(sizes[a] for a in schedule.rows)
    programs = task.rows // tiled * -(-tiled // schedule.block_rows) * schedule.parts
    fits = min(
        device.architecture.warps // schedule.num_warps,
        device.architecture.shared_memory // max(1, shared_memory(task, schedule)),
        int(device.architecture.registers // (32 * schedule.num_warps * (registers(task, device, schedule) + 40))),
    )
    queue = -(-programs // device.multiprocessors)
    resident = min(max(1, fits), queue)
    filled = programs / (queue * device.multiprocessors)
    # Bytes on their way per multiprocessor: some 40 KB hide the latency of memory (Little's law).
    width = task.depth + min(task.wide, schedule.block_wide) if task.products else schedule.block_rows * task.live
    ahead = max(0.5, schedule.num_stages - 1.0) if task.products and schedule.block_rows >= LEAST else 1.0
    flight = resident * schedule.block_stream * width * task.bytes * ahead
    if schedule.parts > 1:
        moved += 2 * 4 * task.rows * schedule.parts * (task.wide + 2)
    if not task.products:
        moved *= 0.5 + 0.5 * (1 if schedule.shape == "whole" else _sweeps(task))
    spread = min(1.0, programs / device.multiprocessors)
    memory = moved / device.bandwidth / (min(1.0, 0.2 + flight / 50e3) * spread)
    merge = 4e-6 if schedule.parts > 1 else 0.0
    if not task.products:
        held = schedule.block_rows * schedule.block_stream / (32 * schedule.num_warps)
        uneven = abs(math.log2(held / 8)) * 0.03 + (schedule.num_warps > 8) * 0.05
        wasted: float = power_of_two(task.length) / task.length if schedule.shape == "whole" else 1.0
        return memory * (1 + uneven) * float(wasted**0.2) + merge
    rows = schedule.block_rows
    # Masks end within blocks, and tiles of rows run what any of their rows sees.
    seen = task.length * task.share + (rows / 2 + schedule.block_stream if task.share < 1 else 0)
    pairs = programs * rows * min(task.length, seen) / schedule.parts
    work = 2.0 * pairs * (task.depth + task.wide)
    rate = device.flops * (1.0 if task.bytes == 2 else 0.125 if schedule.precision == "tf32x3" else 0.375)
    if rows < LEAST:
        rate = device.multiprocessors * 128 * 1.5e9
    elif device.architecture.wgmma and task.bytes == 2:
        rate *= 0.75 if rows * 4 >= 64 * schedule.num_warps and schedule.num_warps >= 4 else 0.3
    else:
        rate *= 1 / (1 + 6 * max(1, schedule.num_warps) / rows)  # a warp reads all keys for its own rows
    ramp = 2048 if rows >= LEAST else 512  # positions of a tile that hide what a step costs besides
    rate *= 1 / (1 + ramp / (rows * schedule.block_stream))
    rate *= (0.7, 0.7, 0.9, 0.97, 1.0)[schedule.num_stages] * min(1.0, 0.6 + resident * schedule.num_warps / 20)
    again = pairs / max(rows, 1) * (task.depth + task.wide) * task.bytes / (2 * device.bandwidth)  # from the cache
    exponentials = pairs / (device.multiprocessors * 16 * 1.5e9)
    # Each block waits for the one before: products, exponentials and shuffles follow each other.
    steps = pairs / programs / rows / schedule.block_stream * -(-queue // resident)
    times = (work / rate / filled + 0.5 * exponentials / filled, again / filled, memory, steps * 0.35e-6)
    return 0.9 * max(times) + 0.1 * sum(times) + merge


def _sweeps(task: Problem) -> int:
    return sum(bool(stage.axes) for stage in task.roles.stages)


def legal(task: Problem, device: CudaDevice, schedule: TileSchedule) -> bool:
    """Whether a schedule fits the device."""
    most = min(255, device.architecture.registers // (32 * schedule.num_warps)) - (87 if task.products else 28)
    return (
        shared_memory(task, schedule) <= device.architecture.shared_memory
        and registers(task, device, schedule) <= most
        and schedule.num_warps <= 32
        and schedule.block_stream <= max(LEAST, 2 * power_of_two(task.length))
    )


def configs(task: Problem, device: CudaDevice) -> list[TileSchedule]:
    """Every schedule that fits, by predicted time."""
    schedules = [schedule for schedule in _candidates(task, device) if legal(task, device, schedule)]
    return sorted(schedules, key=lambda schedule: seconds(task, device, schedule))


def _candidates(task: Problem, device: CudaDevice) -> Iterator[TileSchedule]:
    if not task.products:
        yield from _rows(task, device)
        return
    halves = task.bytes == 2
    base = TileSchedule("loop", (), 1, 16, precision=device.precision, fold=halves, backwards=task.share < 1)
    sizes = task.chain.known_sizes
    parts = _parts(task, device)
    if task.shared_rows <= 2:
        # A row or two do not fill matrix instructions.
        for block, warps, count in product((16, 32, 64, 128), (1, 2, 4, 8), parts):
            yield replace(base, block_stream=block, block_wide=task.wide, num_warps=warps, parts=count)
    if not task.roles.free:
        return
    longest = max(task.roles.free, key=lambda axis: sizes[axis])
    alone = sizes[longest] >= 64 or len(task.roles.free) == 1
    rows = (longest,) if alone else task.roles.free
    size = prod(sizes[a] for a in rows)
    largest = max(LEAST, power_of_two(size))
    for tile, block, warps, stages, count in product(
        (16, 32, 64, 128), (16, 32, 64, 128), (1, 2, 4, 8), (1, 2, 3, 4), parts
    ):
        if tile > largest or (tile > 16 * warps if tile <= 32 else not 4 <= warps <= tile // 16):
            continue
        yield replace(
            base, rows=rows, block_rows=tile, block_stream=block, block_wide=task.wide, num_warps=warps,
            num_stages=stages, parts=count,
        )  # fmt: skip


def _parts(task: Problem, device: CudaDevice) -> list[int]:
    """Numbers of parts that are worth a try: up to some programs for each multiprocessor, of some blocks each."""
    if not task.splits:
        return [1]
    whole = max(1, task.rows // max(1, task.shared_rows) * -(-task.shared_rows // 64))
    most = min(-(-device.multiprocessors * 4 // whole), task.length // 256)
    return [1, *(n for n in (2, 4, 8, 16, 32, 64, 128) if n <= most)]


def _rows(task: Problem, device: CudaDevice) -> Iterator[TileSchedule]:
    sizes = task.chain.known_sizes
    widest = max(task.chain.inputs, key=lambda v: len(v.axes))
    strided = widest.axes[-1] not in task.roles.reduction_axes
    whole = power_of_two(task.length)
    contiguous = sizes[widest.axes[-1]] if strided else 1
    for tile, warps in product((1, 2, 4, 8, 16, 32, 64, 128), (1, 2, 4, 8, 16, 32)):
        if tile > 2 * task.rows or (strided and tile < min(32, contiguous)):
            continue
        for block in {whole, *(() if whole <= 4096 else (1024, 2048, 4096, 8192)), *((64,) if whole > 64 else ())}:
            work = tile * block
            if not 4 <= work / (32 * warps) <= 64 and not (work <= 4 * 32 * warps and warps == 1):
                continue
            shape: Shape = "whole" if block == whole and whole <= MAX_WHOLE else "loop"
            for count in _parts(task, device) if shape == "loop" else [1]:
                yield TileSchedule(shape, task.roles.rows, tile, block, 1, count, warps, 2 if shape == "loop" else 1)
