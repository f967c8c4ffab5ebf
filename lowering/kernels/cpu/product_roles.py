"""A chain that is one sum of products with element-wise work around it, as the CPU's templates for products see it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from covan_mlir.fred.chain import Chain, Input
from covan_mlir.fred.expression import Expr, reads
from covan_mlir.lowering.kernels.cpu.convolution_roles import Convolution, are_one, convolution_of, rows_are_one
from covan_mlir.lowering.kernels.cpu.narrow_weight import NarrowWeight
from covan_mlir.lowering.kernels.cpu.planes import PlaneLayout
from covan_mlir.lowering.kernels.cpu.scalar_rows import weight_by_rows
from covan_mlir.lowering.kernels.cpu.words import Words
from covan_mlir.lowering.kernels.dense.chain import DenseChain
from covan_mlir.lowering.kernels.dense.matrix_product import matrix_product_of
from covan_mlir.lowering.kernels.errors import UnsupportedError


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
        lane: the axis that vectors run along; ``scalars`` has it not.
        contracted: the axes that are summed over; the last one is the one that lies closest together in memory.
        slid: the convolution that this is, where ``scalars`` is read through a window.
        words: how the machine multiplies integers a word at a time.
    """

    scalars: Expr
    vectors: Expr
    outer: tuple[str, ...]
    rows: tuple[str, ...]
    lane: str
    contracted: tuple[str, ...]
    slid: Convolution | None = None
    words: tuple[Words, ...] = ()

    @cached_property
    def planes(self) -> PlaneLayout | None:
        """Of all of an image, where ``scalars`` is read through a window."""
        if self.slid is None:
            return None
        height = self.slid.height
        return PlaneLayout(self.slid, height.outside if height is not None else 1, self.slid.width.outside)

    @cached_property
    def turned(self) -> bool:
        """Whether lanes run along another axis than the last one of the results."""
        return self.chain.values[self.chain.outputs[0]].axes[-1] != self.lane

    @cached_property
    def looped(self) -> tuple[str, ...]:
        """Contracted axes that are looped over; of a convolution the others are written out, tap by tap."""
        return self.contracted if self.slid is None else self.slid.contracted

    @cached_property
    def weight(self) -> Input | None:
        """The weight that is read as vectors, where it can be packed: nothing else of the chain reads it, and its
        elements are multiplied as they are."""
        return self.packable(self.vectors, self.scalars)

    @cached_property
    def narrow(self) -> NarrowWeight | None:
        """The weight of steps that is read as vectors: these are made floats before they are multiplied."""
        return NarrowWeight.of(self, self.vectors, self.scalars, self.lane, self.contracted)

    @cached_property
    def scalar_weight(self) -> Input | None:
        """The weight that is read as scalars, where it can be packed by rows."""
        return weight_by_rows(self, self.scalars, self.rows, self.vectors)


def product_of(chain: Chain, *, words: tuple[Words, ...] = ()) -> Product:
    """The roles of a chain's axes; lanes run along the last axis of the results.

    Args:
        words: of integers, which are multiplied in place of floating-point numbers.

    Raises:
        UnsupportedError: it is no such chain, or no axis can be that of the lanes.
    """
    roles = matrix_product_of(chain, integers=bool(words))
    outer = tuple(axis for axis in roles.step.axes if axis not in roles.rows and axis != roles.last)
    factors = (roles.left, roles.right)
    return Product(chain, roles.step, *factors, outer, roles.rows, roles.last, roles.contracted, words=words)


def output_lanes_of(chain: Chain) -> Product:
    """The roles of a chain's axes where lanes run along an axis of the weight that is not the last one of the results:
    along the output channels of a convolution.

    Raises:
        UnsupportedError: it is no such chain.
    """
    if chain.windowed:
        product = _convolved(convolution_of(chain))
    else:
        roles = matrix_product_of(chain)
        if len(roles.rows) != 1:
            raise UnsupportedError("its weight has not one axis of its own")
        rows = next(
            roles.columns[n:]
            for n in range(len(roles.columns))
            if n == len(roles.columns) - 1 or are_one(chain, roles.columns[n:], reads(roles.right))
        )
        outer = tuple(axis for axis in roles.step.axes if axis not in (*roles.rows, *rows))
        product = Product(chain, roles.step, roles.right, roles.left, outer, rows, roles.rows[0], roles.contracted)
    if product.weight is None:
        raise UnsupportedError("what has output channels is no weight that can be packed")
    return product


def _convolved(convolution: Convolution) -> Product:
    if convolution.scalars is None or len(convolution.rows) != 1 or not convolution.contracted:
        raise UnsupportedError("it is no convolution that sums over channels, of one axis of output channels")
    if not rows_are_one(convolution):
        raise UnsupportedError("what is done to its sums tells rows apart")
    slides = [one for one in (convolution.height, convolution.width) if one is not None]
    return Product(
        convolution.chain,
        convolution.step,
        convolution.window,
        convolution.scalars,
        convolution.outer,
        tuple(one.axis for one in slides),
        convolution.rows[0],
        (*convolution.contracted, *(one.tap for one in slides if one.tap is not None)),
        convolution,
    )
