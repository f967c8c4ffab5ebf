"""A function as a graph of operations with their traces: what a program is before dispatches are formed.

A node is one operation; operations that compute nothing (constants, shapes, casts between type systems) are no nodes:
their values are what they are made of.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from covan_mlir.dialects.chain_holders import CHAINS
from covan_mlir.dialects.prov_control import ControlReader
from covan_mlir.dialects.prov_locations import UNTOLD, TraceReader, fused_of
from covan_mlir.provenance.program_graph import (
    Argument,
    Constant,
    Definition,
    Definitions,
    NodeKind,
    NodeResult,
    ProgramGraph,
    ProgramNode,
    Unknown,
    Value,
    joined,
)

_CONSTANT = frozenset(
    {
        "arith.constant",
        "tensor.dim",
        "linalg.index",
        "torch.vtensor.literal",
        "torch.aten.size.int",
        "flow.tensor.constant",
        "util.global.load",
        "hal.buffer_view.dim",
    }
)
# No node gives them, but numbers may decide how large they are: who writes into them reads those.
_MEMORY = frozenset({"tensor.empty", "linalg.fill", "flow.tensor.empty", "flow.tensor.splat"})
_CONSTANT_DIALECTS = ("torch.constant.",)
_ARITHMETIC = ("arith.", "affine.")
# Their value is their operands'.
_TRANSPARENT = frozenset(
    {
        "torch.prim.ListConstruct",
        "torch.prim.TupleConstruct",
        "torch.copy.to_tensor",
        "torch.copy.to_vtensor",
        "tensor.cast",
        "tensor.bitcast",
        "tensor.collapse_shape",
        "tensor.expand_shape",
        "tensor.reshape",
        "hal.tensor.import",
        "hal.tensor.export",
        "hal.tensor.alias",
        "util.optimization_barrier",
        "builtin.unrealized_conversion_cast",
        "scf.execute_region",
    }
)
# Those that stand for all of their operands; of others it is the first, behind which stand sizes.
_LISTS = frozenset({"torch.prim.ListConstruct", "torch.prim.TupleConstruct", "builtin.unrealized_conversion_cast"})
_TRANSPARENT_DIALECTS = (
    "torch_c.",
    "iree_tensor_ext.compute_barrier.",
    "iree_encoding.",
    "flow.tensor.tie_shape",
    "flow.tensor.reshape",
)
_PIECES = frozenset({"tensor.extract_slice", "flow.tensor.slice"})
_RETURNS = frozenset({"func.return", "util.return"})
_FUNCTIONS = frozenset({"func.func", "util.func"})
# Of a chain of reductions, in place of its operations.
_CALLS = frozenset({"func.call", "flow.dispatch"})
_NOTHING = re.compile(r"tensor<(?:[\d?]+x)*?0x")


def functions(module: Any) -> list[Any]:
    """The functions of a module that have a body."""
    operations = [view.operation for view in module.regions[0].blocks[0]]
    return [op for op in operations if op.name in _FUNCTIONS and len(op.regions[0].blocks)]


def has_no_elements(op: Any) -> bool:
    """Whether an operation gives a tensor without elements of a size that is known at run time only: nothing is written
    into it, and it is all that is left of what it stands for."""
    return len(op.operands) > 0 and _NOTHING.search(str(op.results[0].type)) is not None


class TraceGraph:
    """Reads the graph off a function, in torch-mlir's or IREE's context.

    Args:
        payloads: call operations that are told apart by what is in them after that, too: ``linalg.generic(math.exp)``.

    Attributes:
        operations: the operation of each node.
    """

    def __init__(self, read: TraceReader, *, payloads: bool = False) -> None:
        self.operations: list[Any] = []
        self._payloads = payloads
        self._nodes: list[ProgramNode] = []
        self._results: list[Value] = []
        self._read = read
        self._values: dict[Any, list[Value]] = {}
        self._control = ControlReader(self)

    @property
    def graph(self) -> ProgramGraph:
        """What was read. The evidence of a node is its trace."""
        return ProgramGraph(tuple(self._nodes), tuple(self._results))

    def build(self, function: Any) -> None:
        """Read the entry block of a function."""
        block = function.regions[0].blocks[0]
        for index, argument in enumerate(block.arguments):
            self._values[argument] = [Argument(index)]
        self.body(block)

    def value(self, operand: Any) -> Value:
        """What an operand is, as one value."""
        values = self._of([operand])
        return Unknown() if len(values) > 1 else values[0] if values else Constant()

    def bind(self, result: Any, value: Value) -> None:
        """What a result of an operation with bodies is, or an argument of a block."""
        self._values[result] = [] if isinstance(value, Constant) else [value]

    def join(self, name: str, inputs: tuple[Value, ...], op: Any) -> int:
        """Adds a node of control; -> its position."""
        self._nodes.append(joined(name, "call", inputs))
        self.operations.append(op)
        return len(self._nodes) - 1

    def rejoin(self, node: int, inputs: tuple[Value, ...]) -> None:
        """Gives a node of control its inputs."""
        self._nodes[node] = replace(self._nodes[node], inputs=inputs)

    def body(self, block: Any) -> None:
        """Reads the operations of a block."""
        for view in block:
            op = view.operation
            name = op.name
            operands = list(op.operands)
            if name in _RETURNS:
                self._results = [self.value(operand) for operand in operands]
            elif len(op.results) == 0 or self._control.read(op):
                continue
            elif name == "hal.tensor.barrier":  # each result is an operand; behind them stands a fence
                for operand, result in zip(operands, op.results, strict=False):
                    self._values[result] = self._of([operand])
            elif name in _CONSTANT or name.startswith(_CONSTANT_DIALECTS):
                for result in op.results:
                    self._values[result] = []
            elif name in _MEMORY and has_no_elements(op):
                self._values[op.results[0]] = [NodeResult(self.join(name, tuple(self._of(operands)), op), 0)]
            elif name in _MEMORY:
                for result in op.results:
                    self._values[result] = self._of(operands)
            elif (name.startswith(_ARITHMETIC) and self._of_sizes(op, operands)) or is_shape(op):
                # Whoever asked for them: merged freely, so their locations say little.
                for result in op.results:
                    self._values[result] = self._of(operands)
            else:
                self._operation(op, name, operands)

    def _of_sizes(self, op: Any, operands: Sequence[Any]) -> bool:
        """Whether an operation computes sizes, and comparisons of sizes: scalars that no element of a tensor is in."""
        kinds = [str(result.type) for result in op.results]
        return all(kind == "index" for kind in kinds) or (
            all(kind in ("i1", "i64") for kind in kinds) and not self._of(operands)
        )

    def _operation(self, op: Any, name: str, operands: Sequence[Any]) -> None:
        ids = tuple(sorted(self._read.ids(op.location)))
        if name == "scf.execute_region":  # a barrier (`covan_mlir.lowering.inlined`): what it yields
            operands = list(list(op.regions[0].blocks[0])[-1].operation.operands)
        transparent = name in _TRANSPARENT or name.startswith(_TRANSPARENT_DIALECTS)
        inputs = self._of(operands[:1] if transparent and name not in _LISTS else [*operands, *self._captured(op)])
        if transparent or not ids:
            for result in op.results:
                self._values[result] = inputs
            return
        moves = name in _PIECES and not self._of(operands[1:])  # at computed places it is work, as a gather is
        definition = Definition("input") if moves else Definition("compute", ids)
        outputs: list[Definitions] = [(definition,)] * len(op.results)
        if name == "linalg.generic" and len(ids) > 1:
            outputs = self._yielded(op, ids)
        elif name in CHAINS:
            outputs, ids = self._steps(op)
        elif name in _CALLS and (fused := fused_of(op.location)) is not None:
            outputs = [(Definition("compute", tuple(computed)),) for computed in fused.results]
            ids = tuple(fused.performed)
        for number, result in enumerate(op.results):
            self._values[result] = [NodeResult(len(self._nodes), number)]
        kind: NodeKind = "transfer" if moves else "dispatch"
        inside = _payload(op, name) if self._payloads else ""
        done = tuple(sorted(self._read.work(op))) if name == "linalg.generic" else ids
        self._nodes.append(ProgramNode(kind, "call", tuple(inputs), tuple(outputs), done, f"{name}{inside}"))
        self.operations.append(op)

    def _captured(self, op: Any) -> list[Any]:
        """Values from outside that the operation's body reads by itself: element by element, or as a number."""
        return [
            operand
            for region in op.regions
            for block in region
            for inner in block
            for operand in inner.operation.operands
            if operand in self._values and (inner.operation.name.startswith("tensor.") or str(operand.type) != "index")
        ]

    def _of(self, operands: Sequence[Any]) -> list[Value]:
        values: list[Value] = []
        for operand in operands:
            for value in self._values.get(operand, [Unknown()]):
                if value not in values:
                    values.append(value)
        return values

    def _steps(self, chain: Any) -> tuple[list[Definitions], tuple[int, ...]]:
        """What each result of a chain of reductions is, and what its steps compute: views are in its own trace only."""
        inside = [view.operation for view in chain.regions[0].blocks[0]]
        given = [op.operands[0].owner for op in inside if op.name == "fred.output"]
        steps = [op for op in inside if op.name in ("fred.map", "fred.reduce")]
        yields = [list(op.regions[0].blocks[0])[-1].operation for op in steps]
        computed = frozenset().union(*(self._read.ids(op.location) for op in (*steps, *yields)))
        return [(self._computed(op.location),) for op in given], tuple(sorted(computed))

    def _computed(self, location: Any) -> Definition:
        return Definition("compute", tuple(sorted(self._read.ids(location))))

    def _yielded(self, generic: Any, ids: tuple[int, ...]) -> list[Definitions]:
        """What each result of a fused operation is: the location of the operation whose value is yielded."""
        terminator = list(generic.regions[0].blocks[0])[-1].operation
        locations = [getattr(value.owner, "location", None) for value in terminator.operands]
        return [(Definition("compute", ids) if where is None else self._computed(where),) for where in locations]


def is_shape(op: Any) -> bool:
    """Whether an operation puts sizes together that nobody reads but as the shape of a view."""
    return op.name == "tensor.from_elements" and all(
        use.owner.name == "tensor.reshape" and use.operand_number == 1 for result in op.results for use in result.uses
    )


def _payload(op: Any, name: str) -> str:
    """What an operation does that its name does not say: ``(math.exp)``; empty if the name says it."""
    if name == "linalg.generic":
        names = [inner.operation.name for inner in op.regions[0].blocks[0]]
        names = [inner for inner in names if inner not in UNTOLD]
    elif name in _CALLS:
        names = [str(op.attributes["callee" if name == "func.call" else "entry_points"])]
    else:
        return ""
    return f"({', '.join(names)})" if names else ""
