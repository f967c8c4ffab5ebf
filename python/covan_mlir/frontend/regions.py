"""Operators that take functions, as operations with regions: `torch.cond`, ``while_loop``, ``scan`` and ``map``.

torch-mlir's importer calls functions for bodies and knows loops without operands from outside only. Here bodies stand
in the regions, each operation with its own location:

    cond         torch.prim.If
    while_loop   torch.prim.Loop that the condition ends (decided ahead: `graph_passes.rotate`)
    scan, map    torch.prim.Loop over the leading axis: elements are selected, results scattered into their places
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree
from torch_mlir import ir
from torch_mlir.extras import fx_importer as fx

from covan_mlir.frontend.control import Key


class RegionImporter(fx.GraphNodeImporter):  # type: ignore[misc]  # the bindings are untyped
    """torch-mlir's importer of nodes, with bodies in regions."""

    def _import_hop_cond(self, loc: Any, node: Node, hop: Any) -> None:
        predicate, then, otherwise, operands = node.args
        given = [self._import_argument(loc, operand) for operand in pytree.tree_leaves(operands)]
        types = self._types(node)
        branch = ir.Operation.create(
            "torch.prim.If",
            types,
            [self._bool(self._where(loc, predicate), self._import_argument(loc, predicate))],
            regions=2,
            loc=loc,
        )
        for region, body in zip(branch.regions, (then, otherwise), strict=True):
            block = ir.Block.create_at_start(region, [])
            results = self._body(loc, block, _module(body), given)
            self._in(block, "torch.prim.If.yield", self._converted(loc, block, results, types), loc)
        self._bind(node, branch.results)

    def _import_hop_while_loop(self, loc: Any, node: Node, hop: Any) -> None:
        decided, body, carried, additional = node.args  # as `graph_passes.rotate` leaves it
        outside = [self._import_argument(loc, value) for value in pytree.tree_leaves(additional)]
        start = [self._import_argument(loc, value) for value in pytree.tree_leaves(carried)]
        types = self._types(node)
        # torch-mlir takes a loop whose first condition is a constant for one that the number of iterations ends. It
        # computes nothing of "any" at compile time.
        where = self._where(loc, decided)
        first = self._tensor(where, self._import_argument(loc, decided))
        first = ir.Operation.create("torch.aten.any", [self._flag], [first], loc=where).result

        def iteration(block: Any, index: Any, values: Sequence[Any]) -> tuple[Any, list[Any]]:
            again, *after = self._body(loc, block, _module(body), [*values, *outside])
            condition = self._where(loc, pytree.tree_leaves(_module(body).graph.output_node().args[0])[0])
            return self._at(block, lambda: self._bool(condition, again)), self._converted(loc, block, after, types)

        many = self._integer(loc, torch.iinfo(torch.int64).max)
        self._bind(node, self._loop(loc, many, self._bool(where, first), start, types, iteration))

    def _import_hop_scan(self, loc: Any, node: Node, hop: Any) -> None:
        body, init, sequences, additional = node.args
        self._over_leading_axis(loc, node, _module(body), pytree.tree_leaves(init), sequences, additional)

    def _import_hop_map_impl(self, loc: Any, node: Node, hop: Any) -> None:
        body, sequences, additional = node.args
        self._over_leading_axis(loc, node, _module(body), [], sequences, additional)

    def _over_leading_axis(
        self, loc: Any, node: Node, body: GraphModule, init: Sequence[Any], sequences: Any, additional: Any
    ) -> None:
        """``carried, y[i] = body(carried, x[i])`` for each i; the results are carried and the y, stacked."""
        leaves = pytree.tree_leaves(sequences)
        outside = [self._import_argument(loc, value) for value in pytree.tree_leaves(additional)]
        whole = [self._import_argument(loc, value) for value in leaves]
        start = [self._import_argument(loc, value) for value in init]
        types = self._types(node)
        elements = [self._element(leaf.meta["val"]) for leaf in leaves]
        axis = self._integer(loc, 0)
        length = ir.Operation.create("torch.aten.size.int", [self._cc.torch_int_type], [whole[0], axis], loc=loc).result
        stacks = [self._empty(loc, value, length) for value in node.meta["val"][len(start) :]]

        def iteration(block: Any, index: Any, values: Sequence[Any]) -> tuple[Any, list[Any]]:
            carried, stacked = values[: len(start)], values[len(start) :]
            parameters = body.graph.find_nodes(op="placeholder")[len(start) :]
            selected = [
                self._in(
                    block,
                    "torch.aten.select.int",
                    [value, axis, index],
                    self._cc.passage_location(node, parameter),
                    kind,
                )
                for value, kind, parameter in zip(whole, elements, parameters, strict=False)
            ]
            results = self._body(loc, block, body, [*carried, *selected, *outside])
            kept = [
                self._in(
                    block,
                    "torch.aten.select_scatter",
                    [into, y, axis, index],
                    self._cc.passage_location(node, Key("stacked", node, number)),
                    into.type,
                )
                for number, (into, y) in enumerate(zip(stacked, results[len(start) :], strict=True))
            ]
            after = self._converted(loc, block, results[: len(start)], types)
            return self._at(block, lambda: self._truth(loc)), [*after, *kept]

        self._bind(node, self._loop(loc, length, self._truth(loc), [*start, *stacks], types, iteration))

    def _loop(
        self,
        loc: Any,
        most: Any,
        first: Any,
        start: Sequence[Any],
        types: Sequence[Any],
        iteration: Callable[[Any, Any, Sequence[Any]], tuple[Any, list[Any]]],
    ) -> Sequence[Any]:
        """A loop of at most so many iterations; ``iteration`` fills a block: -> (whether to go on, values then)."""
        operands = [most, first, *self._converted(loc, self._b, start, types)]
        loop = ir.Operation.create("torch.prim.Loop", types, operands, regions=1, loc=loc)
        kinds = [self._cc.torch_int_type, *types]
        block = ir.Block.create_at_start(loop.regions[0], kinds, [loc] * len(kinds))
        index, *values = block.arguments
        again, after = iteration(block, index, values)
        self._in(block, "torch.prim.Loop.condition", [again, *after], loc)
        return list(loop.results)

    def _body(self, loc: Any, block: Any, body: GraphModule, given: Sequence[Any]) -> list[Any]:
        """The operations of a body at the end of a block; -> what it returns. A body may stand in several places."""
        for bound in [key for key in self._v if key[0].graph is body.graph]:
            del self._v[bound]
        parameters = [node for node in body.graph.nodes if node.op == "placeholder"]
        for node, value in zip(parameters, given, strict=True):
            self.bind_node_value(node, value)
        calls = [node for node in body.graph.nodes if node.op == "call_function"]

        def fill() -> list[Any]:
            self.import_nodes(calls, skip_placeholders_outputs=True)
            returned = pytree.tree_leaves(body.graph.output_node().args[0])
            return [self._import_argument(loc, value) for value in returned]

        values: list[Any] = self._at(block, fill)
        return values

    def _at(self, block: Any, fill: Callable[[], Any]) -> Any:
        """What ``fill`` gives, with what it makes at the end of a block."""
        outer: Any = self._b
        self._b: Any = block
        try:
            with ir.InsertionPoint(block):
                return fill()
        finally:
            self._b = outer

    def _in(self, block: Any, name: str, operands: Sequence[Any], loc: Any, kind: Any = None) -> Any:
        """An operation at the end of a block; -> its result, if it has one."""
        types = [] if kind is None else [kind]
        op = self._at(block, lambda: ir.Operation.create(name, types, list(operands), loc=loc))
        return op.result if types else None

    def _bind(self, node: Node, results: Sequence[Any]) -> None:
        self._multi_result_nodes.add(node)
        for index, value in enumerate(results):
            self.bind_node_value(node, value, index)

    def _types(self, node: Node) -> list[Any]:
        return [self._cc.value_info_to_type(value) for value in node.meta["val"]]

    @property
    def _flag(self) -> Any:
        return self._cc.get_vtensor_type(torch.Size([]), torch.bool)

    def _element(self, value: torch.Tensor) -> Any:
        return self._cc.get_vtensor_type(value.shape[1:], value.dtype)

    def _empty(self, loc: Any, value: torch.Tensor, length: Any) -> Any:
        """Memory for a result that iterations give piece by piece, of so many of them."""
        if not all(isinstance(size, int) for size in value.shape[1:]):
            raise NotImplementedError("results of an iteration have sizes that are known at run time only")
        sizes = [length, *(self._integer(loc, int(size)) for size in value.shape[1:])]
        shape = ir.Operation.create(
            "torch.prim.ListConstruct", [ir.Type.parse("!torch.list<int>", self._c)], sizes, loc=loc
        )
        with loc:
            none = ir.Operation.create("torch.constant.none", [self._cc.torch_none_type]).result
        dtype = self._integer(loc, fx.TORCH_DTYPE_TO_INT[value.dtype])
        kind = self._cc.get_vtensor_type(value.shape, value.dtype)
        operands = [shape.result, dtype, none, none, none, none]
        return ir.Operation.create("torch.aten.empty.memory_format", [kind], operands, loc=loc).result

    def _where(self, loc: Any, value: Any) -> Any:
        """The location of what computes a condition; if nothing does, the operator's."""
        computed = isinstance(value, Node) and value.op == "call_function"
        return self._cc.get_node_location(value) if computed else loc

    def _integer(self, loc: Any, value: int) -> Any:
        with loc:
            return fx._make_constant_op(
                "torch.constant.int", self._cc.integer_attr(value, 64), self._cc.torch_int_type
            ).result

    def _truth(self, loc: Any) -> Any:
        with loc:
            one = self._cc.integer_attr(1, 1)
            return fx._make_constant_op("torch.constant.bool", one, self._cc.torch_bool_type).result

    def _bool(self, loc: Any, value: Any) -> Any:
        """A condition as a number."""
        if value.type == self._cc.torch_bool_type:
            return value
        return ir.Operation.create("torch.aten.Bool.Tensor", [self._cc.torch_bool_type], [value], loc=loc).result

    def _tensor(self, loc: Any, value: Any) -> Any:
        """A condition as a tensor."""
        if value.type != self._cc.torch_bool_type:
            return value
        number = ir.Operation.create("torch.aten.Int.bool", [self._cc.torch_int_type], [value], loc=loc).result
        kind = self._cc.get_vtensor_type(torch.Size([]), torch.int64)
        return ir.Operation.create("torch.prim.NumToTensor.Scalar", [kind], [number], loc=loc).result

    def _converted(self, loc: Any, block: Any, values: Sequence[Any], types: Sequence[Any]) -> list[Any]:
        """Values with more or fewer of their sizes in their types."""
        return [
            value if value.type == kind else self._in(block, "torch.tensor_static_info_cast", [value], loc, kind)
            for value, kind in zip(values, types[: len(values)], strict=True)
        ]


def _module(body: Any) -> GraphModule:
    module = getattr(body.graph.owning_module, body.target)
    assert isinstance(module, GraphModule)
    return module
