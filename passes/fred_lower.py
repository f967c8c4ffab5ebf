"""``fred-lower``: chains of reductions as linalg on tensors, the inverse of ``fred-raise``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch_mlir import ir
from torch_mlir.dialects import arith, linalg, tensor

from covan_mlir.dialects.fred_chain import chains, read_chain
from covan_mlir.dialects.fred_scalars import attribute_of, write
from covan_mlir.dialects.fred_steps import tensor_type
from covan_mlir.fred.chain import Chain, Reduce, Step
from covan_mlir.fred.expression import Apply, Expr, Extent, Index, Read, reads
from covan_mlir.passes.framework.rewriter import Rewriter

_COMBINES = {
    "add": ("arith.addf", "arith.addi"),
    "mul": ("arith.mulf", "arith.muli"),
    "max": ("arith.maximumf", "arith.maxsi"),
    "min": ("arith.minimumf", "arith.minsi"),
    "maxnum": ("arith.maxnumf", "arith.maxsi"),
    "minnum": ("arith.minnumf", "arith.minsi"),
    "and": ("", "arith.andi"),
    "or": ("", "arith.ori"),
}
_OUT = "<out>"


@dataclass(frozen=True)
class FredLower:
    """Makes each step of each ``fred.chain`` a ``linalg.generic``: plain and unfused, for whoever compiles it next.

    A ``fred.fused`` is lowered as the chain that it computes.

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
        view.operation.attributes["value"].value: view.operation.location
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
        # linalg takes the sizes of its loops from operands; a reduced axis that none has would have no size.
        read = sorted(reads(step.expr), key=list(self.chain.values).index)
        covered = {axis for name in read for axis in self.chain.values[name].axes}
        read += [self._shape_of(axis) for axis in over if axis not in covered]
        element = ir.Type.parse(step.dtype, self.context)
        kind = tensor_type(step.dtype, [self.chain.sizes[axis] for axis in step.axes], self.context)
        out = tensor.EmptyOp([self._size(axis) for axis in step.axes], element).result
        if isinstance(step, Reduce):
            initial = arith.ConstantOp(element, attribute_of(step.initial, self.context)).result
            out = linalg.fill(initial, outs=[out])
        maps = [self._map(loops, self.chain.values[name].axes) for name in read] + [self._map(loops, step.axes)]
        iterators = ["parallel"] * len(step.axes) + ["reduction"] * len(over)
        attributes = {
            "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(one) for one in maps]),
            "iterator_types": ir.ArrayAttr.get([ir.Attribute.parse(f"#linalg.iterator_type<{i}>") for i in iterators]),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(read), 1]),
        }
        operands = [*(self.values[name] for name in read), out]
        op = ir.Operation.create("linalg.generic", [kind], operands, attributes=attributes, regions=1)
        elements = [value.type.element_type for value in operands]
        block = op.regions[0].blocks.append(*elements, arg_locs=[ir.Location.current] * len(elements))
        arguments = dict(zip([*read, _OUT], block.arguments, strict=True))

        def leaf(node: Read | Index | Extent) -> ir.Value:
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
        floats, integers = _COMBINES[step.combine]
        op = floats if step.dtype.startswith(("f", "bf")) else integers
        return Apply(op, (step.expr, Read(_OUT, step.dtype)), step.dtype)

    def _map(self, loops: Sequence[str], axes: Sequence[str]) -> ir.AffineMap:
        dims = [ir.AffineDimExpr.get(loops.index(axis), self.context) for axis in axes]
        return ir.AffineMap.get(len(loops), 0, dims, self.context)

    def _size(self, axis: str) -> int | ir.Value:
        size = self.chain.sizes[axis]
        return self.extent(axis) if size is None else size

    def _shape_of(self, axis: str) -> str:
        """An input that has the axis."""
        return next(name for name, value in self.chain.values.items() if axis in value.axes and name in self.values)

    def extent(self, axis: str, at: ir.InsertionPoint | None = None) -> ir.Value:
        """The size of an axis as a value."""
        size = self.chain.sizes[axis]
        if size is not None:
            return arith.ConstantOp(ir.IndexType.get(self.context), size, ip=at).result
        name = self._shape_of(axis)
        position = self.chain.values[name].axes.index(axis)
        index = arith.ConstantOp(ir.IndexType.get(self.context), position, ip=at).result
        return tensor.DimOp(self.values[name], index, ip=at).result
