"""A chain that is one sum of products with element-wise work around it, as the CPU's templates for products see it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from covan_mlir.fred.chain import Chain, Input
from covan_mlir.fred.expression import Expr
from covan_mlir.lowering.kernels.dense.chain import DenseChain
from covan_mlir.lowering.kernels.dense.matrix_product import matrix_product_of


@dataclass(frozen=True)
class Product(DenseChain):
    """``step[outer, rows, lane] = sum over contracted of scalars[outer, rows, contracted] * vectors[outer, contracted,
    lane]``, and maps of it.

    Attributes:
        chain: as it was given; its sizes may be known at run time only.
        scalars: the factor that does not depend on the lane axis, of inputs alone.
        vectors: the other one.
        outer: axes that are neither of the others, in the order of the result.
        rows: axes that ``scalars`` has and ``vectors`` has not, in the order of the result.
        lane: the last axis of the results; ``scalars`` has it not.
        contracted: the axes that are summed over; the last one is the one that lies closest together in memory.
    """

    scalars: Expr
    vectors: Expr
    outer: tuple[str, ...]
    rows: tuple[str, ...]
    lane: str
    contracted: tuple[str, ...]

    @cached_property
    def weight(self) -> Input | None:
        """The weight that is read as vectors, where it can be packed: nothing else of the chain reads it, and its
        elements are multiplied as they are."""
        weight = self.weight_of(self.vectors, self.scalars)
        return (
            weight if weight is not None and all(self.chain.sizes[axis] is not None for axis in weight.axes) else None
        )


def product_of(chain: Chain) -> Product:
    """The roles of a chain's axes.

    Raises:
        UnsupportedError: it is no such chain, or no axis can be that of the lanes.
    """
    roles = matrix_product_of(chain)
    outer = tuple(axis for axis in roles.step.axes if axis not in roles.rows and axis != roles.last)
    return Product(chain, roles.step, roles.left, roles.right, outer, roles.rows, roles.last, roles.contracted)
