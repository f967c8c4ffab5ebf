"""Dense 3 x 3 convolutions, with strides of 1 or 2, by Winograd's minimal filtering, F(2x2, 3x3) and
F(4x4, 3x3), with what is done to their elements.

::

    for blocks of tiles, vector of channels in parallel:          # or each workgroup below for itself
        parts = the input's tiles, transformed
    for panel of output channels, block of tiles in parallel:
        for point of a tile:
            products = sum over channels of parts * filters, transformed ahead of time
        results = the chain's maps of the products, transformed back

A filter that is no weight, as those of a network that is trained, is transformed by a dispatch before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from covan_mlir.fred.chain import Chain, Input
from covan_mlir.fred.forms import Fusion
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size
from covan_mlir.lowering.kernels.cpu.convolution_roles import Convolution, convolution_of
from covan_mlir.lowering.kernels.cpu.dense import DenseMatch, Writer
from covan_mlir.lowering.kernels.cpu.elements import computed
from covan_mlir.lowering.kernels.cpu.executable import joined
from covan_mlir.lowering.kernels.cpu.register_tile import register_tiles
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.cpu.templates.product import LONGEST_SUM
from covan_mlir.lowering.kernels.cpu.winograd import TransformWriter, WinogradWriter, parts_name
from covan_mlir.lowering.kernels.cpu.winograd_algebra import SIZES, STRIDES, TAPS, Algorithm
from covan_mlir.lowering.kernels.cpu.winograd_filter import FilterWriter, TransformedFilter
from covan_mlir.lowering.kernels.cpu.winograd_layout import WinogradLayout, WinogradSchedule
from covan_mlir.lowering.kernels.kernel import Dispatch, Executable, Operand, Preparation, Refusal, with_prepared
from covan_mlir.lowering.kernels.reductions.operands import operands
from covan_mlir.lowering.kernels.reductions.profitability import EXPOSED
from covan_mlir.lowering.kernels.registry import register
from covan_mlir.lowering.kernels.structure import Structure
from covan_mlir.lowering.kernels.template import ChainKind, Template
from covan_mlir.lowering.source_lines import SourceLines
from covan_mlir.machine.description import Machine

TILES = ((14, 2), (12, 2), (8, 3), (6, 4), (8, 2), (7, 2), (4, 4), (4, 3), (6, 2), (5, 2), (4, 2), (8, 1), (4, 1))
"""Tiles and vectors of output channels of register tiles."""
MOST_TILES = 32
"""Of a block."""
LEAST_TILES = 4
"""Of a block, where there are as many: filters are read again for each."""
HIDING = 16
"""Tiles of a block that hide as much of the time in which filters come from memory as more of them do: with half as
many, 1.5 times as long is waited."""
TALL = 8
"""Rows of a register tile that hide as much of it as more of them do."""
ASKED = 0.45
"""Of that time, what is left where filters are asked for a point ahead."""
STAYS = 0.7
"""Of the second cache, what stays there while something else is streamed through it."""
PICKED = 1.5
"""Instructions that gather an element of a filter."""


@dataclass(frozen=True)
class WinogradMatch(DenseMatch[WinogradSchedule]):
    """A chain that is a convolution by a 3 x 3 filter.

    Attributes:
        weight: the filter.
        sizes: of tiles, whose error is allowed.
    """

    task: Convolution
    target: CpuTarget
    weight: Input
    sizes: tuple[int, ...]

    def legal(self) -> Iterator[WinogradSchedule]:
        """See `DenseMatch`."""
        machine, convolution = self.target.machine, self.task
        assert convolution.height is not None
        lanes = machine.lanes("f32")
        registers = register_tiles(machine.registers, TILES)
        for size in self.sizes:
            high, wide = (-(-slides.outside // size) for slides in (convolution.height, convolution.width))
            for across in _shares(wide):
                for down in _shares(high):
                    tiles = down * across
                    if not min(LEAST_TILES, high * wide) <= tiles <= MOST_TILES:
                        continue
                    for rows, vectors in registers:
                        if rows > tiles and rows > min(tile[0] for tile in registers if tile[1] == vectors):
                            continue
                        for fused in (True, False):
                            schedule = WinogradSchedule(lanes, size, rows, vectors, down, across, fused)
                            layout = WinogradLayout(convolution, schedule)
                            if 4 * max(layout.scratch, layout.staged) <= machine.stack:
                                yield schedule

    def predict(self, schedule: WinogradSchedule) -> float:
        """Products at the rate of a register tile, transforms at those of their operations, or what memory gives."""
        machine, convolution = self.target.machine, self.task
        layout, lanes = WinogradLayout(convolution, schedule), schedule.lanes
        span, size, points = layout.algorithm.span, schedule.size, layout.points
        blocks = convolution.count(convolution.outer) * layout.blocks[0] * layout.blocks[1]
        vectors = -(-layout.filters // lanes)
        operations = layout.algorithm.operations
        part = 2.0 * span * operations + 3.0 * points
        turn = 8.0 * lanes
        staged = layout.lines * (layout.image[0] * -(-layout.image[1] // lanes) * turn + layout.tiles * part)
        rows, rest = schedule.rows, layout.tiles % schedule.rows
        products = layout.tiles // rows * _each(rows, schedule.vectors)
        products += _each(rest, schedule.vectors) if rest else 0.0
        products *= points * layout.channels * layout.panels
        groups = -(-schedule.across // layout.group)
        back = layout.tiles * (2.0 * span * (span + size) + 3.0 * points) / 1.5
        back += schedule.down * groups * size * (turn + 8.0 * lanes)
        back *= vectors
        units = blocks if schedule.fused else blocks * layout.panels
        share = -(-units // machine.cores) / units
        if not schedule.fused:
            lines = blocks * layout.lines
            staged *= -(-lines // machine.cores) / lines / share
        rate = machine.flops / (2 * lanes)
        computed = blocks * (staged + products + back) / rate * share
        # Tiles that one dispatch leaves for the next, and filters that do not stay in the second cache between blocks,
        # come from the last one, if that holds them. Of two dispatches the cores share panels, and so filters.
        parts = 0 if schedule.fused else 4 * layout.parts * blocks
        filters = 4 * points * layout.channels * layout.panels * layout.panel
        near = filters / (1 if schedule.fused else layout.panels) <= STAYS * machine.l2
        again = 0 if near else filters * (blocks - 1)
        reads = machine.cores if parts <= STAYS * machine.l2 else layout.panels
        computed += parts * (2 + reads) / machine.cores / _bandwidth(machine, parts)
        moved = convolution.traffic - 4 * TAPS * TAPS * layout.channels * layout.filters
        supplied = max(again / _bandwidth(machine, filters), moved / (machine.bandwidth * machine.cores))
        far = filters / (1 if schedule.fused else min(machine.cores, layout.panels))
        waited = far / machine.bandwidth * math.sqrt(max(1.0, HIDING / layout.tiles))
        waited *= math.sqrt(max(1.0, TALL / schedule.rows)) * (ASKED if layout.asks_next else 1.0)
        transformed = 0.0 if self.weight.weight else self._transforming(layout)
        return max(computed, supplied) + EXPOSED * min(computed, supplied) + waited + transformed

    def _transforming(self, layout: WinogradLayout) -> float:
        """Seconds that a filter takes which is transformed at each call."""
        machine, span = self.target.machine, layout.algorithm.span
        # In double precision, of which a register holds half as many.
        each = PICKED * layout.schedule.lanes * TAPS**2 + 2.0 * 2 * span * (TAPS + span) + 3.0 * layout.points
        vectors = layout.channels * layout.panels * layout.schedule.vectors
        rate = machine.flops / (2 * layout.schedule.lanes) * machine.cores
        written = 4 * layout.points * layout.channels * layout.panels * layout.panel
        return machine.dispatch + max(vectors * each / rate, written / _bandwidth(machine, written) / machine.cores)

    def prepared(self, schedule: WinogradSchedule) -> tuple[Preparation, ...]:
        """See `DenseMatch`."""
        filters = TransformedFilter(WinogradLayout(self.task, schedule), self.weight)
        return (filters.preparation,) if self.weight.weight else ()

    def structure(self, schedule: WinogradSchedule) -> Structure:
        """See `Match`: sums of all points wait until they are transformed back."""
        packed = (self.weight.name,) if self.weight.weight else ()
        return Structure("tiles", "winograd", (self.task.window.name,), packed, held=True)

    def writer(self, code: KernelBuilder, sizes: Mapping[str, Size], schedule: WinogradSchedule) -> Writer:
        """See `DenseMatch`."""
        layout = WinogradLayout(self.task, schedule)
        return WinogradWriter(code, layout, sizes, TransformedFilter(layout, self.weight).operand.name)

    def emit(self, schedule: WinogradSchedule, name: str, lines: SourceLines) -> Executable:
        """See `Match`."""
        if schedule.fused and self.weight.weight:
            return super().emit(schedule, name, lines)
        chain, prepared = self.task.chain, self.prepared(schedule)
        inputs, outputs = operands(chain)
        layout = WinogradLayout(self.task, schedule)
        filters, parts = TransformedFilter(layout, self.weight), self._parts(layout)
        before: list[tuple[Dispatch, Callable[[KernelBuilder, Mapping[str, Size]], Writer]]] = []
        read = {value.name: value for value in with_prepared(inputs, prepared)}
        if not self.weight.weight:
            first = Dispatch(f"{name}_filters", (read[self.weight.name],), (filters.operand,))
            before.append((first, lambda code, sizes: FilterWriter(code, filters)))
            read[self.weight.name] = filters.operand
        if not schedule.fused:
            window = self.task.window.name
            first = Dispatch(f"{name}_parts", (read[window],), (parts,))
            before.append((first, lambda code, sizes: TransformWriter(code, layout, sizes)))
            read[window] = parts
        last = Dispatch(name, tuple(read.values()), outputs)
        texts = []
        for dispatch, writer in (*before, (last, lambda code, sizes: self.writer(code, sizes, schedule))):
            code = KernelBuilder(dispatch.name, dispatch.inputs, dispatch.outputs, schedule.lanes, chain.extents)
            code.masks = self.target.machine.store_masks
            texts.append(_written(code, chain, writer(code, {**chain.nominal.known_sizes, **code.extents})))
        dispatches = (*(dispatch for dispatch, _ in before), last)
        return Executable(name, joined(*texts), inputs, outputs, dispatches, chain.extents, prepared)

    def _parts(self, layout: WinogradLayout) -> Operand:
        """What the first of two dispatches leaves for the second."""
        chain = self.task.chain
        outer = {axis: chain.sizes[axis] for axis in self.task.outer}
        shape = (*(-1 if size is None else size for size in outer.values()), *layout.blocks, layout.parts)
        unknown = tuple(axis for axis, size in outer.items() if size is None)
        return Operand(parts_name(layout), shape, "f32", unknown)


def _written(code: KernelBuilder, chain: Chain, writer: Writer) -> str:
    sizes = chain.nominal.known_sizes
    return code.write(writer.write, lambda given: writer.workgroups({**sizes, **given}))


def _bandwidth(machine: Machine, held: int) -> float:
    """Bytes per second of what the last cache holds, or does not, of so many bytes."""
    return machine.cache_bandwidth if held <= machine.llc / 2 else machine.bandwidth


def _each(rows: int, vectors: int) -> float:
    """What a position of the contracted axis takes of a register tile, in multiply-adds."""
    held = rows * vectors
    return max(float(held), rows + 3.0 * vectors, 8.0)


def _shares(count: int) -> list[int]:
    """What it takes at most to share a number among 1, 2, ... blocks evenly."""
    return sorted({-(-count // -(-count // n)) for n in range(1, min(count, MOST_TILES) + 1)})


@register
class WinogradTemplate(Template[CpuTarget, WinogradSchedule]):
    """A dense 3 x 3 convolution by transforms, lanes along channels."""

    name: ClassVar[str] = "winograd"
    target: ClassVar[str] = "cpu"
    chains: ClassVar[tuple[ChainKind, ...]] = ("windows",)

    def match(self, chain: Chain, target: CpuTarget, fusion: Fusion | None = None) -> WinogradMatch | Refusal:
        """See `Template`."""
        convolution = convolution_of(chain)
        if (reason := _unsuited(convolution)) is not None:
            return Refusal(reason, suits=False)
        weight = convolution.alone(convolution.scalars)
        if weight is None or None in [chain.sizes[axis] for axis in weight.axes]:
            return Refusal("its filter is no input of its own", suits=False)
        if not weight.weight and weight.dtype != "f32":
            return Refusal("its filter is of halves, and would be transformed at every call", suits=False)
        errors = {size: Algorithm(size, convolution.width.stride).error for size in SIZES}
        sizes = tuple(size for size, error in errors.items() if error <= target.winograd)
        if not sizes:
            least = min(errors.values())
            return Refusal(
                f"its error may be {target.winograd:g} times that of the direct sum, and is {least:.1f} times that",
                suits=False,
            )
        match = WinogradMatch(convolution, target, weight, sizes)
        return match if match.ranked else Refusal("no block of its tiles fits into a stack frame")


def _unsuited(convolution: Convolution) -> str | None:
    """Why a convolution is none that is computed this way, or None."""
    height, width = convolution.height, convolution.width
    if height is None or (height.taps, width.taps) != (TAPS, TAPS):
        return f"its window is not {TAPS} x {TAPS}"
    if height.stride != width.stride or width.stride not in STRIDES:
        return f"its window has strides of {height.stride} and {width.stride}"
    if any(slides.dilation != 1 for slides in (height, width)):
        return "its window is dilated"
    filters = convolution.input_of(convolution.scalars)
    own = filters.axes if filters is not None else ()
    if len(convolution.rows) != 1 or len(convolution.contracted) != 1 or set(convolution.outer) & set(own):
        return "it has groups"
    if any(computed(dtype) != "f32" for dtype in (convolution.step.dtype, convolution.window.dtype)):
        return "it is not computed in single precision"
    if convolution.window.outside.value != 0:
        return "what is outside of its input is not 0"
    if any(position.axis is None for position in convolution.window.at[:-2]):
        return "its channels are not read one by one"
    if convolution.count(convolution.contracted) > LONGEST_SUM:
        return f"it sums over more than {LONGEST_SUM} channels"
    return None
