"""Sums of products with the same axes, of which results are made together: gates.

::

    for outer axes, panel of columns, group of rows in parallel:
        for each product: as `covan_mlir.lowering.kernels.cpu.templates.product`, into scratch
        results = the chain's maps of the sums
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.expression import Read, reads
from covan_mlir.fred.forms import Fusion
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size
from covan_mlir.lowering.kernels.cpu.dense import DenseMatch, Writer
from covan_mlir.lowering.kernels.cpu.gated import GatedWriter, sums_held
from covan_mlir.lowering.kernels.cpu.product import scratch
from covan_mlir.lowering.kernels.cpu.product_schedule import ProductSchedule
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.cpu.templates.product import (
    Load,
    ProductMatch,
    ProductTemplate,
    in_one_form,
    seconds,
    united,
)
from covan_mlir.lowering.kernels.cpu.templates.siblings import Products
from covan_mlir.lowering.kernels.dense.apart import restricted
from covan_mlir.lowering.kernels.kernel import Preparation, Refusal
from covan_mlir.lowering.kernels.reductions.hoist import Scope
from covan_mlir.lowering.kernels.reductions.operands import traffic
from covan_mlir.lowering.kernels.registry import register
from covan_mlir.lowering.kernels.structure import Structure
from covan_mlir.lowering.kernels.template import ChainKind, Template
from covan_mlir.machine.elements import bits


@dataclass(frozen=True)
class GatedMatch(DenseMatch[ProductSchedule]):
    """Products of the same axes; all of them have the same schedule."""

    task: Products
    target: CpuTarget

    def legal(self) -> Iterator[ProductSchedule]:
        """See `DenseMatch`."""
        first, *others = self.task.products
        known = [frozenset(one.ranked) for one in others]
        chain = self.task.chain
        scope = Scope(chain, {})
        results = [scope.inlined(Read(name, chain.values[name].dtype)) for name in chain.outputs]
        raw = {name for expr in results for name in reads(expr)} - {step.name for step in chain.reductions}
        for schedule in first.ranked:
            if schedule.tail:
                continue  # those columns are results at once
            held = 0
            for one in self.task.products:
                sums = sums_held(one.task, schedule) * schedule.vectors * schedule.lanes
                held += (scratch(one.task, schedule) + sums) * max(32, bits(one.task.step.dtype)) // 8
            if not in_one_form([(one, schedule) for one in self.task.products], raw):
                continue
            if all(schedule in legal for legal in known) and held <= self.target.machine.stack:
                yield schedule

    def predict(self, schedule: ProductSchedule) -> float:
        """See `Match`."""
        products = self.task.products
        loads = [one.load(schedule) for one in products]
        moved = traffic(self.task.chain) + sum(
            load.moved - traffic(one.task.chain) for load, one in zip(loads, products, strict=True)
        )
        # Workgroups of all of them are alike: one computes a tile of each.
        units = (
            (sum(each for each, _ in alike), alike[0][1]) for alike in zip(*(load.units for load in loads), strict=True)
        )
        return seconds([Load(tuple(units), moved)], self.target.machine)

    def prepared(self, schedule: ProductSchedule) -> tuple[Preparation, ...]:
        """See `DenseMatch`."""
        return tuple(dict.fromkeys(item for one in self.task.products for item in one.prepared(schedule)))

    def structure(self, schedule: ProductSchedule) -> Structure:
        """See `Match`."""
        both = united(one.structure(schedule) for one in self.task.products)
        return replace(both, held=True)  # the sums of one wait for those of the other

    def writer(self, code: KernelBuilder, sizes: Mapping[str, Size], schedule: ProductSchedule) -> Writer:
        """See `DenseMatch`."""
        return GatedWriter(code, self.task.chain, [one.task for one in self.task.products], sizes, schedule)


@register
class GatedTemplate(Template[CpuTarget, ProductSchedule]):
    """Sums of products with the same axes, one tile of each after the other."""

    name: ClassVar[str] = "gated"
    target: ClassVar[str] = "cpu"
    chains: ClassVar[tuple[ChainKind, ...]] = ("products",)

    def match(self, chain: Chain, target: CpuTarget, fusion: Fusion | None = None) -> GatedMatch | Refusal:
        """See `Template`."""
        if len(chain.reductions) < 2:
            return Refusal("it is one reduction", suits=False)
        axes = {*chain.reductions[0].axes}
        if any({*step.axes} != axes for step in chain.reductions):
            return Refusal("its products have different axes", suits=False)
        if unlike := [name for name in chain.outputs if {*chain.values[name].axes} != axes]:
            return Refusal(f"{unlike[0]} has other axes than its products", suits=False)
        products: list[ProductMatch] = []
        for step in chain.reductions:
            product = ProductTemplate().match(restricted(chain, (step.name,)), target)
            if isinstance(product, Refusal):
                return product
            products.append(product)
        first = products[0].task
        if any(
            (one.task.outer, one.task.rows, one.task.contracted) != (first.outer, first.rows, first.contracted)
            for one in products
        ):
            return Refusal("its products have different rows")
        if {chain.values[name].axes[-1] for name in (*chain.outputs, *(one.task.step.name for one in products))} != {
            first.lane
        }:
            return Refusal("its results and products end in different axes")
        match = GatedMatch(Products(chain, tuple(products)), target)
        return match if match.ranked else Refusal("the panels of all of its products do not fit into a stack frame")
