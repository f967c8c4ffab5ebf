"""``fred-lower``: chains of reductions as linalg on tensors, the inverse of ``fred-raise``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch_mlir import ir
from torch_mlir.dialects import arith, linalg, tensor

from covan_mlir.dialects.fred_affine import affine_map
from covan_mlir.dialects.fred_chain import chains, read_chain
from covan_mlir.dialects.fred_scalars import attribute_of, write
from covan_mlir.dialects.fred_steps import tensor_type
from covan_mlir.fred.chain import Chain, Reduce, Step
from covan_mlir.fred.expression import Affine, Apply, Expr, Extent, Index, Read, Window, walk
from covan_mlir.passes.framework.index_values import (
    IndexValue,
    at_least_zero,
    dimension,
    pad,
    plus,
    slice_of,
    times,
)
from covan_mlir.passes.framework.interface import PassFailure
from covan_mlir.passes.framework.rewriter import Rewriter

_OUT = "<out>"


@dataclass(frozen=True)
class _View:
    """A tensor that a step reads, and where; ``read`` is what of the expression it stands for."""

    read: str | Window
    tensor: Any
    at: tuple[Affine, ...]


def _plain(axes: Sequence[str]) -> tuple[Affine, ...]:
    return tuple(Affine(((axis, 1),)) for axis in axes)


@dataclass(frozen=True)
class FredLower:
    """Makes each step of each ``fred.chain`` a ``linalg.generic``: plain and unfused, for whoever compiles it next.

    A ``fred.fused`` is lowered as the chain that it computes. What is read through a window is padded before, as far as
    positions lie outside of it.

    Before::

        %m = "fred.chain"(%x) ({
        ^bb0(%in: tensor<5x7xf32>):
          %v0 = "fred.reduce"() ({max of %in over j}) {value = "v0", axes = ["i"], over = ["j"]} : () -> tensor<5xf32>
          "fred.output"(%v0) : (tensor<5xf32>) -> ()
        }) {axes = ["i", "j"], sizes = [5, 7], ...} : (tensor<5x7xf32>) -> tensor<5xf32>

    After::

        %e = tensor.empty() : tensor<5xf32>
        %f = linalg.fill ins(%least : f32) outs(%e : tensor<5xf32>) -> tensor<5xf32>
        %m = linalg.generic {maximumf over d1} ins(%x : tensor<5x7xf32>) outs(%f : tensor<5xf32>) -> tensor<5xf32>
    """

    name: ClassVar[str] = "fred-lower"
    op_name: ClassVar[str | None] = "func.func"

    def run(self, op: ir.Operation) -> None:
        rewriter = Rewriter(op)
        for chain in chains(op, "fred.chain", "fred.fused"):
            lower_chain(chain, rewriter)


def lower_chain(op: ir.Operation, rewriter: Rewriter) -> None:
    """Replaces one ``fred.chain``, or ``fred.fused``."""
    chain = read_chain(op)
    locations = {
        view.operation.attributes["value"].value: rewriter.location_of(view.operation)
        for view in op.regions[0].blocks[0]
        if view.operation.name in ("fred.map", "fred.reduce")
    }
    with rewriter.replacing(op) as new:
        values = dict(zip([value.name for value in chain.inputs], op.operands, strict=True))
        lowering = _Lowering(chain, values, op.context)
        for step in chain.steps:
            with locations[step.name] if rewriter.reader.ids(locations[step.name]) else new.location:
                values[step.name] = lowering.step(step)
        new.results(*(values[name] for name in chain.outputs))


class _Lowering:
    def __init__(self, chain: Chain, values: Mapping[str, Any], context: ir.Context) -> None:
        self.chain = chain
        self.values = values
        self.context = context

    def step(self, step: Step) -> Any:
        over = step.over if isinstance(step, Reduce) else ()
        loops = (*step.axes, *over)
        views = self._views(step)
        # linalg takes the sizes of its loops from operands; a reduced axis that none has would have no size.
        covered = {at.axis for view in views for at in view.at}
        views += [self._of_size(axis) for axis in over if axis not in covered]
        element = ir.Type.parse(step.dtype, self.context)
        kind = tensor_type(step.dtype, [self.chain.sizes[axis] for axis in step.axes], self.context)
        out = tensor.EmptyOp([self._size(axis) for axis in step.axes], element).result
        if isinstance(step, Reduce):
            initial = arith.ConstantOp(element, attribute_of(step.initial, self.context)).result
            out = linalg.fill(initial, outs=[out])
        positions = [*(view.at for view in views), _plain(step.axes)]
        maps = [affine_map(at, loops, self.context) for at in positions]
        iterators = ["parallel"] * len(step.axes) + ["reduction"] * len(over)
        attributes = {
            "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(one) for one in maps]),
            "iterator_types": ir.ArrayAttr.get([ir.Attribute.parse(f"#linalg.iterator_type<{i}>") for i in iterators]),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(views), 1]),
        }
        operands = [*(view.tensor for view in views), out]
        op = ir.Operation.create("linalg.generic", [kind], operands, attributes=attributes, regions=1)
        elements = [value.type.element_type for value in operands]
        block = op.regions[0].blocks.append(*elements, arg_locs=[ir.Location.current] * len(elements))
        arguments: dict[str | Window, ir.Value] = dict(
            zip([*(view.read for view in views), _OUT], block.arguments, strict=True)
        )

        def leaf(node: Read | Window | Index | Extent) -> ir.Value:
            if isinstance(node, Window):
                return arguments[node]
            if isinstance(node, Read):
                return arguments[node.name]
            if isinstance(node, Extent):
                return self.extent(node.axis, ir.InsertionPoint(op))
            return linalg.IndexOp(loops.index(node.axis)).result

        with ir.InsertionPoint(block):
            value = write(self._combined(step), leaf, self.context)
            ir.Operation.create("linalg.yield", [], [value])
        return op.results[0]

    @staticmethod
    def _combined(step: Step) -> Expr:
        if not isinstance(step, Reduce):
            return step.expr
        return Apply(step.operation, (step.expr, Read(_OUT, step.dtype)), step.dtype)

    def _views(self, step: Step) -> list[_View]:
        """What a step reads, in the order of the chain's values."""
        order = list(self.chain.values)
        leaves = dict.fromkeys(node for node in walk(step.expr) if isinstance(node, Read | Window))
        views = []
        for node in sorted(leaves, key=lambda node: order.index(node.name)):
            if isinstance(node, Window):
                views.append(self._padded(node))
            else:
                views.append(_View(node.name, self.values[node.name], _plain(self.chain.values[node.name].axes)))
        return views

    def _of_size(self, axis: str) -> _View:
        """A tensor that has an axis, whose elements nobody reads."""
        name = self._shape_of(axis)
        if name is not None:
            return _View("", self.values[name], _plain(self.chain.values[name].axes))
        return _View("", tensor.EmptyOp([self._size(axis)], ir.Type.parse("i1", self.context)).result, _plain((axis,)))

    def _padded(self, window: Window) -> _View:
        """The input of a window with as much around it as positions reach. A dimension that is read at the positions of
        one axis is cut to these: linalg takes the axis to be as long as the dimension."""
        axes = self.chain.values[window.name].axes
        source = self.values[window.name]
        at, cut = list(window.at), False
        low, starts = [0] * len(axes), [0] * len(axes)
        sizes: list[IndexValue] = [dimension(source, k) for k in range(len(axes))]
        high: list[IndexValue] = [0] * len(axes)
        for k, (position, axis) in enumerate(zip(window.at, axes, strict=True)):
            if position.axis == axis:
                continue
            least, greatest = self._bounds(position)
            low[k] = max(0, -least)
            high[k] = at_least_zero(plus(greatest, plus(1, times(sizes[k], -1))))
            if [number for _, number in position.terms] == [1]:
                (name,) = position.axes
                cut, starts[k], sizes[k] = True, position.offset + low[k], self._size(name)
                at[k] = Affine(position.terms)
            else:
                sizes[k] = plus(plus(sizes[k], low[k]), high[k])
                at[k] = Affine(position.terms, position.offset + low[k])
        if any(number != 0 for number in (*low, *high)):
            source = pad(source, low, high, attribute_of(window.outside, self.context))
        return _View(window, slice_of(source, starts, sizes) if cut else source, tuple(at))

    def _bounds(self, position: Affine) -> tuple[int, IndexValue]:
        """The least and the greatest position."""
        least, greatest = position.offset, position.offset
        for axis, number in position.terms:
            size = self._size(axis)
            if number > 0:
                greatest = plus(greatest, times(plus(size, -1), number))
            elif isinstance(size, int):
                least += number * (size - 1)
            else:
                message = f"a window runs backwards along {axis}, whose size is known at run time only"
                raise PassFailure(message, ir.Location.current)
        return least, greatest

    def _size(self, axis: str) -> int | ir.Value:
        size = self.chain.sizes[axis]
        return self.extent(axis) if size is None else size

    def _shape_of(self, axis: str) -> str | None:
        """A value that has the axis, if there is one yet."""
        values = self.chain.values.items()
        return next((name for name, value in values if axis in value.axes and name in self.values), None)

    def extent(self, axis: str, at: ir.InsertionPoint | None = None) -> ir.Value:
        """The size of an axis as a value."""
        size = self.chain.sizes[axis]
        if size is not None:
            return arith.ConstantOp(ir.IndexType.get(self.context), size, ip=at).result
        name = self._shape_of(axis)
        if name is None:
            raise PassFailure(
                f"no value tells the size of {axis}, which is known at run time only", ir.Location.current
            )
        position = self.chain.values[name].axes.index(axis)
        index = arith.ConstantOp(ir.IndexType.get(self.context), position, ip=at).result
        return tensor.DimOp(self.values[name], index, ip=at).result
