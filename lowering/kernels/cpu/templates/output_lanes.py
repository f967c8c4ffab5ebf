"""Convolutions of small images and products of weights, with lanes along output channels.

Where an image has few positions, vectors along them are filled in part, and those along channels as a whole::

    for outer axes, panel of output channels in parallel:
        for block of input channels:
            planes = the image, in scratch, with what is outside around it    # nothing, of 1 x 1
            for positions, a register tile at a time:
                tile += scalars of the planes * panel of the filter, packed ahead of time
        results = the chain's maps of the sums, transposed in registers
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product as combinations
from typing import ClassVar

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.forms import Fusion
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size
from covan_mlir.lowering.kernels.cpu.convolution_roles import check_taps
from covan_mlir.lowering.kernels.cpu.dense import Writer
from covan_mlir.lowering.kernels.cpu.output_lanes import OutputLanesWriter, scratch
from covan_mlir.lowering.kernels.cpu.packed_weight import PADDING
from covan_mlir.lowering.kernels.cpu.product_roles import output_lanes_of
from covan_mlir.lowering.kernels.cpu.product_schedule import ProductSchedule
from covan_mlir.lowering.kernels.cpu.register_tile import register_tiles
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.cpu.templates.convolution import staging
from covan_mlir.lowering.kernels.cpu.templates.product import LONGEST_SUM, TILES, ProductMatch
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.registry import register
from covan_mlir.lowering.kernels.structure import Structure
from covan_mlir.lowering.kernels.template import ChainKind, Template
from covan_mlir.machine.elements import bits

DEPTHS = (64, 128, 256, 512, LONGEST_SUM)
LINE_BYTES = 64
"""Of a cache line."""
MOST_POSITIONS = 256
"""Of an image; along those of larger ones, vectors are filled."""
PUSHED_OUT = 0.45
"""Instructions for each vector of a panel: next to each other lie the scalars of a tile, not those of a position."""
TURNED = 12.0
"""Instructions for each vector of a block that is transposed, with its load and its store."""
BEGUN = 30.0
"""Instructions that begin with a channel's results."""


@dataclass(frozen=True)
class OutputLanesMatch(ProductMatch):
    """A chain whose weight has output channels."""

    def legal(self) -> Iterator[ProductSchedule]:
        """See `DenseMatch`."""
        machine, product = self.target.machine, self.task
        element = bits(product.step.dtype)
        lanes = machine.lanes(f"f{element}")
        rows, depth = product.count(product.rows), product.sizes[product.contracted[0]]
        most = max(1, LONGEST_SUM // product.count(product.contracted[1:]))
        for (height, vectors), longest in combinations(register_tiles(machine.registers, TILES), DEPTHS):
            # Blocks of equal lengths.
            blocks = -(-depth // min(longest, most))
            group = -(-rows // height) * height
            schedule = ProductSchedule(lanes, height, vectors, group, -(-depth // blocks), packed=True)
            packing = schedule.packed_panels(product)
            assert packing is not None
            if packing.padding <= PADDING and scratch(product, schedule) * element // 8 <= machine.stack:
                yield schedule

    def written(self, schedule: ProductSchedule) -> float:
        """See `ProductMatch`: blocks of as many positions as there are lanes are transposed, then written."""
        rows, lanes = self.task.count(self.task.rows), schedule.lanes
        each = TURNED + super().written(schedule)
        return lanes * (-(-rows // lanes) * each + BEGUN) / rows

    def beside(self, schedule: ProductSchedule) -> int:
        """See `ProductMatch`: of each position of what is contracted a tile reads another line."""
        planes = self.task.planes
        if planes is not None and len(planes.taps) > 1:
            return 0
        return schedule.depth * self.task.count(self.task.contracted[1:]) * LINE_BYTES

    @property
    def pushed_out(self) -> float:
        """See `ProductMatch`."""
        return PUSHED_OUT

    def staged(self, schedule: ProductSchedule) -> float:
        """See `ProductMatch`."""
        planes = self.task.planes
        return planes.convolution.channels * staging(planes, schedule.lanes) if planes is not None else 0.0

    def structure(self, schedule: ProductSchedule) -> Structure:
        """See `Match`: sums wait until they are transposed."""
        product = self.task
        assert product.weight is not None
        cached = (product.slid.window.name,) if product.slid is not None else ()
        return Structure("tiles", cached=cached, packed=(product.weight.name,), held=True)

    def writer(self, code: KernelBuilder, sizes: Mapping[str, Size], schedule: ProductSchedule) -> Writer:
        """See `DenseMatch`."""
        return OutputLanesWriter(code, self.task, sizes, schedule)


@register
class OutputLanesTemplate(Template[CpuTarget, ProductSchedule]):
    """A sum of products with a weight, lanes along an axis of the weight that the results do not have last."""

    name: ClassVar[str] = "output_lanes"
    target: ClassVar[str] = "cpu"
    chains: ClassVar[tuple[ChainKind, ...]] = ("rows", "products", "windows")

    def match(self, chain: Chain, target: CpuTarget, fusion: Fusion | None = None) -> OutputLanesMatch | Refusal:
        """See `Template`."""
        product = output_lanes_of(chain)
        if any(bits(value.dtype) < 32 for value in chain.inputs):
            return Refusal("halves are multiplied in pairs, or widened ahead of time")
        axes = (*product.rows, *product.contracted)
        if unknown := [axis for axis in axes if chain.sizes[axis] is None]:
            return Refusal(f"the sizes of {', '.join(unknown)} are only known at run time")
        if product.count(product.rows) > MOST_POSITIONS:
            return Refusal(f"its results have more than {MOST_POSITIONS} positions")
        if product.slid is not None:
            check_taps(product.slid.taps)
        match = OutputLanesMatch(product, target)
        return match if match.ranked else Refusal("no panel of it is without padding")
