"""Schedules of products of matrices: tiles of rows and columns, blocks of what is contracted, and what they take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product as combinations

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.expression import Apply, Expr, Read, Window, reads, windows
from covan_mlir.lowering.kernels.cuda.device import CudaDevice
from covan_mlir.lowering.kernels.cuda.integer_products import DEPTH
from covan_mlir.lowering.kernels.cuda.layout import power_of_two
from covan_mlir.lowering.kernels.cuda.schedule import LEAST, TileSchedule
from covan_mlir.lowering.kernels.dense.matrix_product import MatrixProduct
from covan_mlir.lowering.kernels.reductions.operands import traffic
from covan_mlir.machine.elements import bits

TILES = (16, 32, 64, 128, 256)
"""Rows and columns of tiles."""
DEPTHS = (16, 32, 64, 128)
"""Contracted positions of a block; half as many at most in single precision."""
PARTS = (1, 2, 4, 8, 16, 32)
GROUPS = (0, 4, 8, 16)
_SHORTEST = 256  # contracted positions of a part that is worth a launch to merge it
_STEP = 0.3e-6  # seconds from one block to the next: a barrier, the way to registers, a matrix instruction
_MERGE = 4e-6  # seconds of a second launch


@dataclass(frozen=True)
class ProductTask:
    """What schedules are chosen by.

    Attributes:
        batch, rows, columns, depth: numbers of positions.
        axes: the rows', as one dimension of tiles.
        halves: whether matrix instructions multiply halves; single precision takes three, of operands in two pieces.
        integers: whether they multiply integers of 8 bits, twice as many of them at a time as halves.
        bytes: of an element of the factors in memory.
        gathers: factors that are read through a window, position by position.
        beside: tensors that are read for each element of the results.
        traffic: bytes of inputs and outputs.
    """

    batch: int
    rows: int
    columns: int
    depth: int
    axes: tuple[str, ...]
    halves: bool
    integers: bool
    bytes: int
    gathers: int
    beside: int
    traffic: int


def task_of(product: MatrixProduct) -> ProductTask:
    """What a product asks of a schedule."""
    chain, factors = product.chain, (product.left, product.right)
    kinds = [_kind(chain, factor) for factor in factors]
    known = {kind for kind in kinds if kind}
    # A computed factor is rounded to bf16 beside one that is in bf16, and to nothing less than f32 beside one in f16.
    halves = len(known) == 1 and known <= {"f16", "bf16"} and (all(kinds) or known == {"bf16"})
    inputs = {name: chain.values[name] for factor in factors for name in reads(factor)}
    return ProductTask(
        product.count(product.batch),
        product.count(product.rows),
        product.count(product.columns),
        product.count(product.contracted),
        product.rows,
        halves,
        product.step.dtype == "i32",
        max(bits(value.dtype) // 8 for value in inputs.values()),
        sum(bool(windows(factor)) for factor in factors),
        sum({*product.step.axes} <= {*value.axes} for value in chain.inputs),
        traffic(chain),
    )


def _kind(chain: Chain, factor: Expr) -> str:
    """Element type of the input that a factor is, whatever it is converted to; empty if it is computed."""
    while isinstance(factor, Apply) and factor.op in ("arith.extf", "arith.truncf"):
        (factor,) = factor.args
    return chain.values[factor.name].dtype if isinstance(factor, Read | Window) else ""


def configs(task: ProductTask, device: CudaDevice) -> list[TileSchedule]:
    """Every schedule that fits, by predicted time; of each tile with the group that reads least from memory."""
    schedules = [schedule for schedule in _candidates(task, device) if legal(task, device, schedule)]
    schedules = [
        min((replace(schedule, group=g) for g in _groups(task, schedule)), key=lambda s: _read(task, device, s))
        for schedule in schedules
    ]
    return sorted(schedules, key=lambda schedule: seconds(task, device, schedule))


def _candidates(task: ProductTask, device: CudaDevice) -> Iterator[TileSchedule]:
    for tall, broad, deep, warps, stages, parts in combinations(TILES, TILES, DEPTHS, (2, 4, 8), (2, 3, 4), PARTS):
        held = tall * broad / (32 * warps)
        if not (8 <= held <= 128 or (warps == 2 and held < 8)) or parts > max(1, task.depth // _SHORTEST):
            continue
        least = DEPTH if task.integers else LEAST
        fits = all(
            block <= max(LEAST, power_of_two(size)) for block, size in ((tall, task.rows), (broad, task.columns))
        )
        if deep * task.bytes <= 256 and fits and least <= deep <= max(least, power_of_two(task.depth)):
            yield TileSchedule("loop", task.axes, tall, deep, broad, parts, warps, stages, device.precision)


def _groups(task: ProductTask, schedule: TileSchedule) -> list[int]:
    tall, broad = _tiles(task, schedule)
    return [group for group in GROUPS if group < tall and (broad > 1 or not group)]


def _tiles(task: ProductTask, schedule: TileSchedule) -> tuple[int, int]:
    return -(-task.rows // schedule.block_rows), -(-task.columns // schedule.block_wide)


def shared_memory(task: ProductTask, schedule: TileSchedule) -> int:
    """Bytes of shared memory of a program, about: blocks of both factors, as many as are on their way."""
    block = (schedule.block_rows + schedule.block_wide) * schedule.block_stream * task.bytes
    return block * schedule.num_stages


def registers(task: ProductTask, device: CudaDevice, schedule: TileSchedule) -> float:
    """Registers of a thread that tiles take, about: in the loop, or behind it, with what the results are made of."""
    held = schedule.block_rows * schedule.block_wide / (32 * schedule.num_warps)
    operands = 0.0
    words = 0.25 if task.integers else 0.5 if task.halves else 1 if schedule.precision == "tf32" else 2
    if not _asynchronous(task, device, schedule):  # a warp holds its operands of a whole block
        operands = sum(_part(task, device, schedule)) * schedule.block_stream / 32 * words
    # Addresses and masks of what is on its way.
    gathered = task.gathers * schedule.block_stream * schedule.block_wide / (32 * schedule.num_warps)
    return max(held + operands + gathered, held * (1 + 0.75 * task.beside))


def _asynchronous(task: ProductTask, device: CudaDevice, schedule: TileSchedule) -> bool:
    wide_enough = schedule.block_rows >= 64 and schedule.num_warps >= 4
    return device.architecture.wgmma and (task.halves or task.integers) and wide_enough


def _part(task: ProductTask, device: CudaDevice, schedule: TileSchedule) -> tuple[int, int]:
    """Rows and columns of a tile that read their operands by themselves: a warp's, or those of four together."""
    rows, columns, warps = schedule.block_rows, schedule.block_wide, schedule.num_warps
    while warps > (4 if _asynchronous(task, device, schedule) else 1):
        rows, columns = (rows // 2, columns) if rows >= columns else (rows, columns // 2)
        warps //= 2
    return rows, columns


def legal(task: ProductTask, device: CudaDevice, schedule: TileSchedule) -> bool:
    """Whether a schedule fits the device."""
    most = min(255, device.architecture.registers // (32 * schedule.num_warps)) - 48
    fits = shared_memory(task, schedule) <= device.architecture.shared_memory
    return fits and registers(task, device, schedule) <= most


def _resident(task: ProductTask, device: CudaDevice, schedule: TileSchedule) -> int:
    """Programs that a multiprocessor runs at a time."""
    each = 32 * schedule.num_warps * (registers(task, device, schedule) + 40)
    return max(
        1,
        min(
            device.architecture.warps // schedule.num_warps,
            device.architecture.shared_memory // shared_memory(task, schedule),
            int(device.architecture.registers // each),
        ),
    )


def _read(task: ProductTask, device: CudaDevice, schedule: TileSchedule) -> float:
    """Bytes of the factors that come from memory: of programs that run at a time, each block once."""
    tall, broad = _tiles(task, schedule)
    at_a_time = min(tall * broad, device.multiprocessors * _resident(task, device, schedule))
    high = min(schedule.group or tall, at_a_time)
    across = min(broad, -(-at_a_time // high))
    rows, columns = min(task.rows, high * schedule.block_rows), min(task.columns, across * schedule.block_wide)
    turns = -(-tall * broad // at_a_time)
    return float(task.batch * turns * (rows + columns) * task.depth * task.bytes)


def seconds(task: ProductTask, device: CudaDevice, schedule: TileSchedule) -> float:
    """Predicted time: the longest of products, what moves from memory and what moves from the cache."""
    tall, broad = _tiles(task, schedule)
    rows, columns, deep, warps = schedule.block_rows, schedule.block_wide, schedule.block_stream, schedule.num_warps
    programs = task.batch * tall * broad * schedule.parts
    steps = -(-task.depth // (schedule.parts * deep))
    queue = -(-programs // device.multiprocessors)
    resident = min(_resident(task, device, schedule), queue)
    # Products, at the rate of the instructions as far as shared memory keeps up.
    rate = device.flops if _asynchronous(task, device, schedule) else device.synchronous
    if task.integers:
        rate *= 2
    elif not task.halves:
        rate *= 1 / 2 if schedule.precision == "tf32" else 1 / 6  # half as many, three for one
    tall_part, broad_part = _part(task, device, schedule)
    intensity = tall_part * broad_part / (tall_part + broad_part)
    rate *= intensity / (intensity + 8) * (0.6, 0.8, 0.95, 1.0)[schedule.num_stages - 1]
    rate *= min(1.0, 0.5 + resident * warps / 16) * (deep / (deep + 8))
    products = queue * 2.0 * rows * columns * steps * deep / (rate / device.multiprocessors)
    # Positions of windows are computed for each element, and a few bytes at a time are not copied asynchronously.
    gathered = task.gathers * programs * steps * deep * columns * 12 / (device.plain / 2)
    products *= 1.0 + 0.5 * task.gathers
    waiting = steps * _STEP * -(-queue // resident)
    # Bytes on their way per multiprocessor: some 50 KB hide the latency of memory (Little's law).
    flight = resident * (rows + columns) * deep * task.bytes * max(0.5, schedule.num_stages - 1.0)
    reached = device.bandwidth * min(1.0, 0.2 + flight / 50e3) * min(1.0, programs / device.multiprocessors)
    states = 4.0 * task.batch * task.rows * task.columns * schedule.parts if schedule.parts > 1 else 0.0
    memory = (max(task.traffic, _read(task, device, schedule)) + states) / reached
    again = programs * steps * (rows + columns) * deep * task.bytes / (3 * device.bandwidth)
    times = (products + gathered, waiting, memory, again)
    merge = _MERGE + states / device.bandwidth if states else 0.0
    return 0.9 * max(times) + 0.1 * sum(times) + merge
