"""Reads a block of linalg on tensors as a graph of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch_mlir import ir

from covan_mlir.dialects.arguments import ArgumentFacts
from covan_mlir.dialects.fred_scalars import UnreadableError, held, read_op
from covan_mlir.fred.chain import COMBINES
from covan_mlir.fred.expression import Affine, Apply, Const, Expr, Index, Read, rebuild, substitute, walk
from covan_mlir.passes.raising.gathers import SOURCE, picking, read_gather
from covan_mlir.passes.raising.linalg_graph import Dims, LinalgGraph, LinalgNode, LinalgResult, NodeOperand, is_cheap
from covan_mlir.passes.raising.sizes import SizeReader, regroup
from covan_mlir.passes.raising.windows import affine_maps, projected, read_window, single_points

# Named ops that do not say how they index: operands, then the result.
_NAMED: dict[str, tuple[Dims, ...]] = {
    "linalg.matvec": ((0, 1), (1,), (0,)),
    "linalg.vecmat": ((1,), (1, 0), (0,)),
    "linalg.batch_matvec": ((0, 1, 2), (0, 2), (0, 1)),
    "linalg.batch_vecmat": ((0, 2), (0, 2, 1), (0, 1)),
    "linalg.dot": ((0,), (0,), ()),
}


def read_block(block: ir.Block, arguments: Sequence[ArgumentFacts]) -> LinalgGraph:
    """The block as data.

    Args:
        arguments: what is known of each argument of the block.
    """
    return _BlockReader(block, arguments).graph


class _BlockReader:
    def __init__(self, block: ir.Block, arguments: Sequence[ArgumentFacts]) -> None:
        self.graph = LinalgGraph()
        self._numbers: dict[ir.Value, int] = {}
        self._sizes = SizeReader(self._value)
        self.graph.extents = self._sizes.extents
        self.graph.sums = self._sizes.sums
        for value, argument in zip(block.arguments, arguments, strict=True):
            number = self._value(value)
            if argument.weight:
                self.graph.weights.add(number)
                self.graph.parameters.add(number)
            self._sizes.argument(value, argument.sizes)
        for view in block:
            self._node(view.operation)

    def _value(self, value: Any) -> int:
        number = self._numbers.get(value)
        if number is None:
            graph = self.graph
            number = self._numbers[value] = len(graph.values)
            graph.values.append(value)
            kind = value.type
            if isinstance(kind, ir.RankedTensorType):
                # ShapedType.shape marks dynamic sizes by a negative number.
                graph.shapes.append(tuple(None if size < 0 else size for size in kind.shape))
                graph.dtypes.append(str(kind.element_type))
            else:
                graph.shapes.append(())
                graph.dtypes.append("")
        return number

    def _node(self, op: Any) -> None:
        graph = self.graph
        index = len(graph.nodes)
        name = op.name
        node: LinalgNode | None = None
        for result in op.results:
            graph.definition[self._value(result)] = index
        self._sizes.read(op)
        if name == "arith.constant":
            number = self._value(op.results[0])
            literal = held(op)
            if literal is not None:
                graph.constants[number] = literal
            else:
                graph.weights.add(number)
        elif name == "linalg.fill":
            filled = graph.constants.get(self._value(op.operands[0]))
            if filled is not None:
                graph.constants[self._value(op.results[0])] = filled
        elif name in (
            "tensor.expand_shape",
            "tensor.collapse_shape",
            "tensor.cast",
            "tensor.reshape",
            "linalg.transpose",
        ):
            node = self._view(index, op, name)
        elif name == "tensor.pad":
            node = LinalgNode(
                index, op, "opaque", source=self._value(op.operands[0]), result=self._value(op.results[0])
            )
        elif name.startswith("linalg."):
            node = self._compute(index, op)
        node = node or LinalgNode(index, op, "opaque")
        graph.nodes.append(node)
        self._note_users(node, op)
        self._classify(node)

    def _note_users(self, node: LinalgNode, op: Any) -> None:
        taken = [self._value(operand) for operand in op.operands]

        def visit(nested: Any) -> ir.WalkResult:
            taken.extend(self._numbers[value] for value in nested.operands if value in self._numbers)
            return ir.WalkResult.ADVANCE

        if len(op.regions):
            op.walk(visit)
        definition = self.graph.definition
        self.graph.needs.append({definition[value] for value in taken if value in definition} - {node.index})
        # Shapes are no data: who only gives or asks a size does not read the elements.
        if op.name in ("tensor.empty",):
            return
        read = [node.source] if node.kind == "view" else [operand.value for operand in node.operands]
        for value in dict.fromkeys(taken if node.kind == "opaque" else read):
            self.graph.users.setdefault(value, []).append(node.index)

    def _view(self, index: int, op: Any, name: str) -> LinalgNode | None:
        source, result = self._value(op.operands[0]), self._value(op.results[0])
        ranks = len(self.graph.shapes[source]), len(self.graph.shapes[result])
        groups: list[tuple[tuple[int, ...], tuple[int, ...]]]
        if name == "linalg.transpose":
            permutation = list(op.attributes["permutation"])
            groups = [((from_,), (to,)) for to, from_ in enumerate(permutation)]
        elif name == "tensor.cast":
            if not isinstance(op.operands[0].type, ir.RankedTensorType) or ranks[0] != ranks[1]:
                return None
            groups = [((i,), (i,)) for i in range(ranks[0])]
        elif name == "tensor.reshape":
            groups = regroup(self._sizes.of(op.operands[0]), self._sizes.of(op.results[0]))
        else:
            reassociation = [tuple(position.value for position in dims) for dims in op.attributes["reassociation"]]
            if name == "tensor.expand_shape":
                groups = [((i,), dims) for i, dims in enumerate(reassociation)]
            else:
                groups = [(dims, (i,)) for i, dims in enumerate(reassociation)]
            if not reassociation:  # to or from a single element
                groups = [((), tuple(range(ranks[1])))] if ranks[1] else [(tuple(range(ranks[0])), ())]
        return LinalgNode(index, op, "view", groups=tuple(groups), source=source, result=result)

    def _compute(self, index: int, op: Any) -> LinalgNode | None:
        positions = affine_maps(op)
        if (positions is None and op.name not in _NAMED) or len(op.regions) != 1:
            return None
        maps = list(_NAMED[op.name]) if positions is None else [projected(at) for at in positions]
        numbers = [self._value(operand) for operand in op.operands]
        first = len(numbers) - len(op.results)
        sizes = self._loops(numbers, maps)
        if sizes is None or None in maps[first:]:
            return None
        yielded = self._body(op, first)
        plain = [dims for dims in maps if dims is not None]
        if len(plain) == len(maps) and (yielded is None or None in yielded):
            gather = self._gather(index, op, plain, numbers, sizes)
            if gather is not None:
                return gather
        if yielded is None:
            return None
        named = {node.name for expr in yielded if expr is not None for node in walk(expr) if isinstance(node, Read)}
        pools = len({f"#{k}" for k in range(first)} & named) < 2
        reads = self._operands(numbers[:first], maps, positions or [], sizes, pools=pools)
        if reads is None:
            return None
        windowed = len(plain) < len(maps)
        parts: list[LinalgResult | None] = []
        for k, expr in enumerate(yielded):
            part, dims = None, maps[first + k]
            assert dims is not None
            if expr is not None:
                part = self._part(expr, first + k, dims, sizes, numbers, self._value(op.results[k]), windowed)
            if part is None and any(True for _ in op.results[k].uses):
                return None
            if part is not None and part.added is not None:
                part = replace(part, added=Read(f"#{len(reads)}", part.added.dtype))
                reads.append(NodeOperand(numbers[first + k], dims))
            parts.append(part)
        used = {int(node.name[1:]) for part in parts if part for node in walk(part.expr) if isinstance(node, Read)}
        if not any(parts) or any(k >= first for k in used):
            return None
        # Operands that no expression reads are dropped: numbers of the others stay.
        node = LinalgNode(index, op, "compute", sizes, tuple(reads), tuple(parts))
        return node if node.reduces or not windowed else None

    def _loops(self, numbers: list[int], maps: Sequence[Dims | None]) -> tuple[int | None, ...] | None:
        """The sizes of the loops that index operands; None where they do not fit, or an operand has none of its own."""
        loops: dict[int, int | None] = {}
        for number, dims in zip(numbers, maps, strict=True):
            shape = self.graph.shapes[number]
            if dims is None:
                continue
            if len(shape) != len(dims):
                return None
            for dim, size in zip(dims, shape, strict=True):
                if dim is None:
                    if size != 1:
                        return None
                elif loops.get(dim) is None:
                    loops[dim] = size
        count = max(loops, default=-1) + 1
        return tuple(loops[i] for i in range(count)) if set(loops) == set(range(count)) else None

    def _operands(
        self,
        numbers: list[int],
        maps: Sequence[Dims | None],
        positions: Sequence[tuple[Affine, ...]],
        sizes: tuple[int | None, ...],
        *,
        pools: bool,
    ) -> list[NodeOperand] | None:
        operands: list[NodeOperand] = []
        for k, number in enumerate(numbers):
            dims = maps[k]
            if dims is not None:
                operands.append(NodeOperand(number, dims))
                continue
            window = read_window(self.graph, number, positions[k], sizes, self._value, patches=not pools)
            if window is None:
                return None
            single = single_points(window) if not window.through else None
            operands.append(NodeOperand(number, (), window) if single is None else NodeOperand(number, single))
        return operands

    def _gather(
        self, index: int, op: Any, maps: list[Dims], numbers: list[int], sizes: tuple[int | None, ...]
    ) -> LinalgNode | None:
        first = len(numbers) - 1
        if len(op.results) != 1 or {dim for dim in maps[first] if dim is not None} != set(range(len(sizes))):
            return None
        gather = read_gather(op, first, len(sizes), self._number)
        source = None if gather is None else self._numbers.get(gather.source)
        if gather is None or source is None:
            return None
        shape, dtype = self.graph.shapes[source], self.graph.dtypes[source]
        for dim, size in zip(gather.dims, shape, strict=True):
            if size != 1 if dim is None else dim != gather.picked and size != sizes[dim]:
                return None
        length = shape[gather.dims.index(gather.picked)]
        if length == 1:
            return None
        # A dimension of one position is indexed by a loop of one round.
        dims = tuple(
            None if dim is not None and dim != gather.picked and sizes[dim] == 1 else dim for dim in gather.dims
        )
        combine, nothing = picking(dtype)
        expr = substitute(gather.expr, {SOURCE: Read(f"#{first}", dtype)})
        operands = (*(NodeOperand(numbers[k], maps[k]) for k in range(first)), NodeOperand(source, dims))
        value = self._value(op.results[0])
        part = LinalgResult(value, maps[first], expr, combine, "", nothing, gather.at)
        return LinalgNode(index, op, "compute", (*sizes, length), operands, (part,))

    def _number(self, value: Any) -> Expr | None:
        """A value from outside of a body, where it is known, or computed from sizes."""
        number = self._numbers.get(value)
        if number is None:
            return None
        return self.graph.constants.get(number, self._sizes.scalars.get(number))

    def _body(self, op: Any, first: int) -> list[Expr | None] | None:
        """What the region yields; None for what is no expression."""
        block = op.regions[0].blocks[0]
        scalars: dict[Any, Expr | None] = {}
        for k, argument in enumerate(block.arguments):
            scalars[argument] = Read(f"#{k}", str(argument.type))
        for view in block:
            inner = view.operation
            if inner.name == "linalg.yield":
                return [self._scalar(value, scalars) for value in inner.operands]
            if inner.name == "linalg.index":
                scalars[inner.results[0]] = Index(f"@{inner.attributes['dim'].value}")
                continue
            args = [self._scalar(value, scalars) for value in inner.operands]
            known = [arg for arg in args if arg is not None]
            if len(known) != len(args):
                for result in inner.results:
                    scalars[result] = None
                continue
            try:
                scalars[inner.results[0] if len(inner.results) else None] = read_op(inner, tuple(known))
            except UnreadableError:
                if not len(inner.results):  # an assertion: it must not get lost
                    return None
                for result in inner.results:
                    scalars[result] = None
        return None

    def _scalar(self, value: Any, scalars: dict[Any, Expr | None]) -> Expr | None:
        return scalars[value] if value in scalars else self._number(value)

    def _part(
        self,
        expr: Expr,
        out: int,
        dims: Dims,
        sizes: tuple[int | None, ...],
        numbers: list[int],
        value: int,
        windowed: bool,
    ) -> LinalgResult | None:
        kept = {dim for dim in dims if dim is not None}
        over = [i for i in range(len(sizes)) if i not in kept]
        own = f"#{out}"
        if not over:
            return LinalgResult(value, dims, expr)
        if not isinstance(expr, Apply) or expr.op not in COMBINES or len(expr.args) != 2:
            return None
        left, right = expr.args
        if isinstance(left, Read) and left.name == own:
            left, right = right, left
        if not (isinstance(right, Read) and right.name == own):
            return None
        if any(isinstance(node, Read) and node.name == own for node in walk(left)):
            return None
        initial = self.graph.constants.get(numbers[out])
        if initial is None and windowed and COMBINES[expr.op] == "add":
            nothing = Const(0.0 if expr.op == "arith.addf" else 0, expr.dtype)
            return LinalgResult(value, dims, left, "add", expr.op, nothing, added=right)
        if initial is None:
            return None
        if all(sizes[i] == 1 for i in over):
            return LinalgResult(value, dims, Apply(expr.op, (left, initial), expr.dtype))
        return LinalgResult(value, dims, left, COMBINES[expr.op], expr.op, initial)

    def _classify(self, node: LinalgNode) -> None:
        graph = self.graph
        if node.kind == "view":
            if node.source in graph.constants:
                graph.constants[node.result] = graph.constants[node.source]
            if node.source in graph.weights:
                graph.weights.add(node.result)
            if node.source in graph.parameters:
                graph.parameters.add(node.result)
            if node.source in graph.closed and not self._closed_view(node):
                graph.weights.add(node.result)
        elif node.kind == "compute":
            tensors = [o.value for o in node.operands if o.value not in graph.constants and o.value not in graph.closed]
            if (tensors and all(value in graph.weights for value in tensors)) or (
                not tensors and not self._closed_compute(node)
            ):
                graph.weights.update(part.value for part in node.parts if part is not None)
                if any(value in graph.parameters for value in tensors):
                    graph.parameters.update(part.value for part in node.parts if part is not None)

    def _closed_view(self, node: LinalgNode) -> bool:
        """Whether a view of a closed value is one: not where dimensions are taken apart or joined."""
        graph = self.graph
        moves: dict[int, int | None] = {}
        for sources, results in node.groups:
            wide = [i for i in sources if graph.shapes[node.source][i] != 1]
            onto = [i for i in results if graph.shapes[node.result][i] != 1]
            if len(wide) > 1 or len(wide) != len(onto):
                return False
            moves.update(dict.fromkeys(sources))
            moves.update(zip(wide, onto, strict=True))
        graph.closed[node.result] = place(graph.closed[node.source], [moves[i] for i in range(len(moves))])
        graph.sources[node.result] = graph.sources[node.source] | {node.index}
        return True

    def _closed_compute(self, node: LinalgNode) -> bool:
        graph = self.graph
        part = node.parts[0] if len(node.parts) == 1 else None
        if part is None or part.combine is not None or None in part.dims or not is_cheap(part.expr):
            return False
        sources = {node.index}
        values: dict[str, Expr] = {}
        for k, operand in enumerate(node.operands):
            if operand.value in graph.constants:
                values[f"#{k}"] = graph.constants[operand.value]
            else:
                values[f"#{k}"] = place(graph.closed[operand.value], operand.dims)
                sources |= graph.sources[operand.value]
        onto: dict[int, int] = {loop: dim for dim, loop in enumerate(part.dims) if loop is not None}
        if any(i not in onto and size != 1 for i, size in enumerate(node.loops)):
            return False
        graph.closed[part.value] = place(substitute(part.expr, values), [onto.get(i) for i in range(len(node.loops))])
        graph.sources[part.value] = frozenset(sources)
        return True


def place(expr: Expr, positions: Any) -> Expr:
    """The expression with ``Index("@k")`` moved to ``positions[k]``; None for a position that is always 0."""

    def change(node: Expr) -> Expr:
        if not isinstance(node, Index):
            return node
        onto = positions[int(node.axis[1:])]
        return Const(0, "index") if onto is None else Index(f"@{onto}")

    return rebuild(expr, change)
