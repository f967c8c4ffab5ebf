"""Steps of chains as operations, and back: what the plain form of a chain and its fused form have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from torch_mlir import ir

from covan_mlir.dialects.fred_affine import affine_map, affine_of
from covan_mlir.dialects.fred_scalars import UnreadableError, attribute_of, constant, read_op, write
from covan_mlir.dialects.prov_locations import TRACE, TraceReader
from covan_mlir.fred.chain import Combine, Map, Reduce, Step
from covan_mlir.fred.expression import Affine, Expr, Extent, Index, Read, Window

COMBINES: frozenset[str] = frozenset(get_args(Combine))


class MalformedChain(ValueError):
    """What is wrong with a chain; ``op`` is where."""

    def __init__(self, message: str, op: Any) -> None:
        super().__init__(message)
        self.op = op


def tensor_type(dtype: str, sizes: Sequence[int | None], context: ir.Context) -> ir.Type:
    """The type of a tensor with these sizes, None where they are dynamic."""
    shape = "".join("?x" if size is None else f"{size}x" for size in sizes)
    return ir.Type.parse(f"tensor<{shape}{dtype}>", context)


def strings_of(attribute: Any, what: str, op: Any) -> tuple[str, ...]:
    """The strings of an array attribute.

    Raises:
        MalformedChain: it is none.
    """
    if not isinstance(attribute, ir.ArrayAttr) or not all(isinstance(name, ir.StringAttr) for name in attribute):
        raise MalformedChain(f"{what} must be an array of strings, got {attribute}", op)
    return tuple(name.value for name in attribute)


def strings(names: Sequence[str]) -> ir.ArrayAttr:
    """Strings as an attribute."""
    return ir.ArrayAttr.get([ir.StringAttr.get(name) for name in names])


def segments(number: int, places: int) -> ir.Attribute:
    """Sizes of the segments of ``places`` optional operands or results, of which the first ``number`` are there."""
    return ir.DenseI32ArrayAttr.get([1] * number + [0] * (places - number))


def only_block(op: ir.Operation, region: int = 0) -> ir.Block:
    """The block of a region.

    Raises:
        MalformedChain: it has none, or several.
    """
    blocks = list(op.regions[region].blocks)
    if len(blocks) != 1:
        raise MalformedChain(f"must have one block in its region, has {len(blocks)}", op)
    return blocks[0]


def traced(trace: frozenset[int], here: ir.Location) -> ir.Location:
    """The location of what performs some parts; ``here`` for none."""
    if not trace:
        return here
    i64 = ir.IntegerType.get_signless(64)
    ids = ir.ArrayAttr.get([ir.IntegerAttr.get(i64, id_) for id_ in sorted(trace)])
    return ir.Location.fused([], ir.DynamicAttr.get(TRACE, [ids]))


class StepReader:
    """Reads steps whose values are tensors over the axes that ``sizes`` names.

    Attributes:
        known: name and element type of each tensor.
        scalars: constants that stand outside of expressions, where canonicalization puts them.
    """

    def __init__(self, sizes: Mapping[str, int | None]) -> None:
        self.sizes = sizes
        self.known: dict[ir.Value, tuple[str, str]] = {}
        self.scalars: dict[ir.Value, Expr] = {}
        self._traces = TraceReader()

    def define(self, value: ir.Value, name: str, axes: Sequence[str], op: ir.Operation) -> str:
        """A tensor's name from here on -> its element type.

        Raises:
            MalformedChain: its type is not that of a value over these axes.
        """
        kind: Any = value.type
        if not isinstance(kind, ir.RankedTensorType):
            raise MalformedChain(f"works on ranked tensors, not on a {kind}", op)
        dtype = str(kind.element_type)
        missing = [axis for axis in axes if axis not in self.sizes]
        if missing:
            raise MalformedChain(f"has the axis {missing[0]}, which the chain does not name", op)
        expected = tensor_type(dtype, [self.sizes[axis] for axis in axes], value.context)
        if kind != expected:
            raise MalformedChain(f"a value over [{', '.join(axes)}] is a {expected}, not a {kind}", op)
        self.known[value] = (name, dtype)
        return dtype

    def constant(self, op: ir.Operation) -> None:
        """An ``arith.constant`` that stands among steps."""
        self.scalars[op.results[0]] = self._scalar(op)

    def step(self, op: ir.Operation) -> Step:
        """One ``fred.map`` or ``fred.reduce``, whose result is known from here on.

        Raises:
            MalformedChain: it is no step.
        """
        attributes = op.attributes
        axes = strings_of(attributes["axes"], "axes", op)
        expr = self.expression(op)
        name = attributes["value"].value
        dtype = self.define(op.results[0], name, axes, op)
        if expr.dtype != dtype:
            raise MalformedChain(f"yields a {expr.dtype} and gives a tensor of {dtype}", op)
        trace = self._trace(op)
        if op.name == "fred.map":
            return Map(name, axes, expr, dtype, trace)
        combine: Any = attributes["combine"].value
        if combine not in COMBINES:
            raise MalformedChain(f"cannot combine by {combine!r}: one of {', '.join(sorted(COMBINES))}", op)
        initial = constant(attributes["initial"])
        if initial is None or initial.dtype != dtype:
            raise MalformedChain(f"starts from {attributes['initial']}, which is no {dtype}", op)
        over = strings_of(attributes["over"], "over", op)
        if not over:
            raise MalformedChain("reduces over no axis", op)
        for axis in over:
            if axis not in self.sizes:
                raise MalformedChain(f"reduces over {axis}, which is no axis of the chain", op)
        return Reduce(name, axes, over, combine, expr, initial, dtype, trace)

    def _trace(self, op: ir.Operation) -> frozenset[int]:
        ids: set[int] = set()

        def visit(nested: ir.Operation) -> ir.WalkResult:
            ids.update(self._traces.ids(nested.location))
            return ir.WalkResult.ADVANCE

        op.walk(visit)
        return frozenset(ids)

    def expression(self, step: ir.Operation) -> Expr:
        """The expression in an op's region.

        Raises:
            MalformedChain: there is none.
        """
        block = only_block(step)
        if len(block.arguments):
            raise MalformedChain("has an expression with arguments; it reads by fred.read", step)
        scalars = self.scalars.copy()
        for view in block:
            op = view.operation
            if op.name == "fred.yield":
                if op.operands[0] not in scalars:
                    raise MalformedChain("yields a value from outside of the expression", op)
                return scalars[op.operands[0]]
            scalars[op.results[0]] = self._scalar(op, scalars)
        raise MalformedChain("has an expression without a fred.yield", step)

    def _scalar(self, op: ir.Operation, scalars: Mapping[ir.Value, Expr] | None = None) -> Expr:
        if op.name == "fred.read":
            definition = self.known.get(op.operands[0])
            if definition is None:
                raise MalformedChain("reads a value that is neither an input nor an earlier step", op)
            if str(op.results[0].type) != definition[1]:
                raise MalformedChain(f"reads a tensor of {definition[1]} as a {op.results[0].type}", op)
            return Read(*definition)
        if op.name == "fred.window":
            return self._window(op)
        if op.name == "fred.index":
            return Index(op.attributes["axis"].value)
        if op.name == "fred.extent":
            return Extent(op.attributes["axis"].value)
        args: list[Expr] = []
        for operand in op.operands:
            if scalars is None or operand not in scalars:
                raise MalformedChain(f"'{op.name}' reads a value from outside of the expression", op)
            args.append(scalars[operand])
        try:
            return read_op(op, tuple(args))
        except UnreadableError as error:
            raise MalformedChain(str(error), op) from error

    def _window(self, op: ir.Operation) -> Window:
        definition = self.known.get(op.operands[0])
        if definition is None or not isinstance(op.operands[0].owner, ir.Block):
            raise MalformedChain("reads through a window, which can be of an input only", op)
        name, dtype = definition
        if str(op.results[0].type) != dtype:
            raise MalformedChain(f"reads a tensor of {dtype} as a {op.results[0].type}", op)
        outside = constant(op.attributes["outside"])
        if outside is None or outside.dtype != dtype:
            raise MalformedChain(f"gives {op.attributes['outside']} outside of the tensor, which is no {dtype}", op)
        return Window(name, dtype, _positions(op), outside)


def _positions(window: ir.Operation) -> tuple[Affine, ...]:
    """The positions of a ``fred.window``: the map's results, over the axes that ``along`` names."""
    axes = strings_of(window.attributes["along"], "along", window)
    attribute = window.attributes["at"]
    if not isinstance(attribute, ir.AffineMapAttr):
        raise MalformedChain(f"at must be an affine map, got {attribute}", window)
    at = attribute.value
    if at.n_symbols or at.n_dims != len(axes) or len(set(axes)) != len(axes):
        raise MalformedChain(f"has {len(axes)} axes along, each of which must be one dimension of {at}", window)
    kind: Any = window.operands[0].type
    if len(at.results) != kind.rank:
        raise MalformedChain(f"has {len(at.results)} positions in a tensor of {kind.rank} dimensions", window)
    positions = [affine_of(result, axes) for result in at.results]
    if None in positions:
        raise MalformedChain(f"at must be sums of multiples of positions, got {at}", window)
    return tuple(position for position in positions if position is not None)


class StepWriter:
    """Builds steps at the current insertion point and location; the counterpart of `StepReader`.

    Attributes:
        tensors: the values by name; steps that are built are added.
    """

    def __init__(self, sizes: Mapping[str, int | None], tensors: Mapping[str, ir.Value], context: ir.Context) -> None:
        self.sizes = sizes
        self.tensors = dict(tensors)
        self.context = context

    def kind(self, axes: Sequence[str], dtype: str) -> ir.Type:
        """The type of a value over some axes."""
        return tensor_type(dtype, [self.sizes[axis] for axis in axes], self.context)

    def step(self, step: Step) -> ir.Operation:
        """One step."""
        attributes: dict[str, ir.Attribute] = {"value": ir.StringAttr.get(step.name), "axes": strings(step.axes)}
        if isinstance(step, Reduce):
            attributes["over"] = strings(step.over)
            attributes["combine"] = ir.StringAttr.get(step.combine)
            attributes["initial"] = attribute_of(step.initial, self.context)
        name = "fred.reduce" if isinstance(step, Reduce) else "fred.map"
        results = [self.kind(step.axes, step.dtype)]
        op = ir.Operation.create(name, results, [], attributes=attributes, regions=1)
        self.expression(op, step.expr)
        self.tensors[step.name] = op.results[0]
        return op

    def expression(self, op: ir.Operation, expr: Expr) -> None:
        """An expression as the region of an op that has none yet."""

        def leaf(node: Read | Window | Index | Extent) -> ir.Value:
            if isinstance(node, Window):
                return self._window(node)
            if isinstance(node, Read):
                element = ir.Type.parse(node.dtype)
                return ir.Operation.create("fred.read", [element], [self.tensors[node.name]]).results[0]
            axis = {"axis": ir.StringAttr.get(node.axis)}
            name = "fred.index" if isinstance(node, Index) else "fred.extent"
            return ir.Operation.create(name, [ir.IndexType.get()], attributes=axis).results[0]

        with ir.InsertionPoint(op.regions[0].blocks.append()):
            ir.Operation.create("fred.yield", [], [write(expr, leaf, self.context)])

    def _window(self, window: Window) -> ir.Value:
        axes = sorted(window.axes)
        attributes = {
            "along": strings(axes),
            "at": ir.AffineMapAttr.get(affine_map(window.at, axes, self.context)),
            "outside": attribute_of(window.outside, self.context),
        }
        element = ir.Type.parse(window.dtype)
        op = ir.Operation.create("fred.window", [element], [self.tensors[window.name]], attributes=attributes)
        return op.results[0]
