"""Sums of products with what is done to their elements: matrix products of any batch and transposition, convolutions.

::

    for batch, group of tiles of rows, tile of columns, tile of block_rows rows in programs:
        for block of block_stream contracted positions:     # num_stages of them on their way from memory
            tile (block_rows, block_wide) += left (rows, block) @ right (block, columns)
        results = the chain's maps of the sums

A convolution is the same nest, as an implicit matrix product: the contracted positions are channels and taps, the
columns (or rows) positions of the image, and a block of what the window slides over is read at affine positions, 0
outside of the image. Long sums with few tiles are split into parts, which a second launch adds::

    for tile of rows, tile of columns in programs:
        for part in parts: tile += sums of the part
        results
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.forms import Fusion
from covan_mlir.lowering.kernels.cuda.match import TileMatch
from covan_mlir.lowering.kernels.cuda.product_schedule import ProductTask, configs, seconds, task_of
from covan_mlir.lowering.kernels.cuda.product_sweep import swept
from covan_mlir.lowering.kernels.cuda.schedule import TileSchedule
from covan_mlir.lowering.kernels.cuda.target import CudaTarget
from covan_mlir.lowering.kernels.dense.matrix_product import MatrixProduct, matrix_product_of
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.registry import register
from covan_mlir.lowering.kernels.template import ChainKind, Cost, Template


@dataclass(frozen=True, eq=False)
class ProductMatch(TileMatch):
    """A chain that is a sum of products."""

    product: MatrixProduct

    @cached_property
    def task(self) -> ProductTask:
        """What schedules are chosen by."""
        return task_of(self.product)

    @cached_property
    def _configs(self) -> tuple[TileSchedule, ...]:
        return tuple(configs(self.task, self.target.device))

    def schedules(self) -> tuple[TileSchedule, ...]:
        """See `Match`."""
        return self._configs

    def predict(self, schedule: TileSchedule) -> float:
        """See `Match`."""
        return seconds(self.task, self.target.device, schedule)

    def cost(self, schedule: TileSchedule) -> Cost:
        """See `Match`."""
        return self.product.cost(self.predict(schedule))


@lru_cache(256)
def _match(chain: Chain, target: CudaTarget) -> ProductMatch:
    integers = any(step.dtype[0] == "i" for step in chain.reductions)
    product = matrix_product_of(chain, integers=integers)
    if not product.rows:
        raise UnsupportedError("one of its factors has no axis of its own: there is no tile of rows and columns")
    if product.step.dtype == "f64":
        raise UnsupportedError(f"{product.step.name} is a matrix product in f64")
    fusion, roles = swept(product)
    return ProductMatch(chain, fusion, roles, target, product)


@register
class Product(Template[CudaTarget, TileSchedule]):
    """Tiles of a matrix product. What a tile takes is only estimated, so several schedules are tried."""

    name: ClassVar[str] = "product"
    target: ClassVar[str] = "cuda"
    chains: ClassVar[tuple[ChainKind, ...]] = ("products", "windows")
    tries: ClassVar[int] = 4

    def match(self, chain: Chain, target: CudaTarget, fusion: Fusion | None = None) -> ProductMatch | Refusal:
        """See `Template`."""
        if unknown := chain.extents:
            raise UnsupportedError(f"the sizes of {', '.join(unknown)} are only known at run time")
        return _match(chain, target)
