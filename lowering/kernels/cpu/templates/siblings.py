"""Several sums of products that share a factor, in one dispatch.

::

    for product, outer axes, panel of columns, group of rows in parallel:
        as `covan_mlir.lowering.kernels.cpu.templates.product`
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.forms import Fusion
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size
from covan_mlir.lowering.kernels.cpu.dense import DenseMatch, DenseSchedule, Writer
from covan_mlir.lowering.kernels.cpu.product import scratch
from covan_mlir.lowering.kernels.cpu.product_schedule import ProductSchedule
from covan_mlir.lowering.kernels.cpu.siblings import SiblingsWriter
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.cpu.templates.product import (
    ProductMatch,
    ProductTemplate,
    in_one_form,
    seconds,
    united,
)
from covan_mlir.lowering.kernels.dense.apart import siblings_of
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.kernel import Preparation, Refusal
from covan_mlir.lowering.kernels.reductions.operands import elements, traffic
from covan_mlir.lowering.kernels.registry import register
from covan_mlir.lowering.kernels.structure import Structure
from covan_mlir.lowering.kernels.template import ChainKind, Cost, Template
from covan_mlir.machine.elements import bits


@dataclass(frozen=True)
class Products:
    """Products in one kernel.

    Attributes:
        chain: all of them.
        products: each alone.
    """

    chain: Chain
    products: tuple[ProductMatch, ...]

    def cost(self, seconds: float) -> Cost:
        """See `Task`."""
        return Cost(seconds, sum(one.task.flops for one in self.products), traffic(self.chain), elements(self.chain))


@dataclass(frozen=True)
class SiblingsSchedule(DenseSchedule):
    """A schedule.

    Attributes:
        products: the schedule of each.
    """

    products: tuple[ProductSchedule, ...]


@dataclass(frozen=True)
class SiblingsMatch(DenseMatch[SiblingsSchedule]):
    """Products that share a factor."""

    task: Products
    target: CpuTarget

    def legal(self) -> Iterator[SiblingsSchedule]:
        """The best ones of all products together, the second ones, and so on."""
        element = max(32, *(bits(one.task.step.dtype) for one in self.task.products)) // 8
        for schedules in zip(*(one.ranked for one in self.task.products), strict=False):
            held = sum(scratch(one.task, own) for one, own in zip(self.task.products, schedules, strict=True))
            alike = in_one_form(zip(self.task.products, schedules, strict=True))
            if alike and held * element <= self.target.machine.stack and len({own.lanes for own in schedules}) == 1:
                yield SiblingsSchedule(schedules[0].lanes, schedules)

    def _each(self, schedule: SiblingsSchedule) -> Iterator[tuple[ProductMatch, ProductSchedule]]:
        yield from zip(self.task.products, schedule.products, strict=True)

    def predict(self, schedule: SiblingsSchedule) -> float:
        """See `Match`."""
        return seconds([one.load(own) for one, own in self._each(schedule)], self.target.machine)

    def prepared(self, schedule: SiblingsSchedule) -> tuple[Preparation, ...]:
        """See `DenseMatch`."""
        return tuple(dict.fromkeys(item for one, own in self._each(schedule) for item in one.prepared(own)))

    def structure(self, schedule: SiblingsSchedule) -> Structure:
        """See `Match`."""
        return united(one.structure(own) for one, own in self._each(schedule))

    def writer(self, code: KernelBuilder, sizes: Mapping[str, Size], schedule: SiblingsSchedule) -> Writer:
        """See `DenseMatch`."""
        return SiblingsWriter(code, sizes, [one.writer(code, sizes, own) for one, own in self._each(schedule)])


@register
class SiblingsTemplate(Template[CpuTarget, SiblingsSchedule]):
    """Sums of products that share a factor, side by side."""

    name: ClassVar[str] = "siblings"
    target: ClassVar[str] = "cpu"
    chains: ClassVar[tuple[ChainKind, ...]] = ("products",)

    def match(self, chain: Chain, target: CpuTarget, fusion: Fusion | None = None) -> SiblingsMatch | Refusal:
        """See `Template`."""
        try:
            parts = siblings_of(chain)
        except UnsupportedError as error:
            return Refusal(str(error), suits=False)
        products: list[ProductMatch] = []
        for part in parts:
            product = ProductTemplate().match(part, target)
            if isinstance(product, Refusal):
                return product
            products.append(product)
        match = SiblingsMatch(Products(chain, tuple(products)), target)
        return match if match.ranked else Refusal("the panels of all of its products do not fit into a stack frame")
