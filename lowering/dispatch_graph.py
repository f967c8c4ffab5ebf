"""The program as a graph of dispatches, right after they are formed: what each reads, gives, and computes.

This is all that the relation between source and program needs of the IR (`covan_mlir.provenance.relation`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

import iree.compiler.ir as ir
from msgspec.structs import replace

from covan_mlir.dialects.prov_control import ControlReader
from covan_mlir.dialects.prov_graph import has_no_elements
from covan_mlir.dialects.prov_locations import Fused, TraceReader, fused_of, is_prepared
from covan_mlir.lowering import marks
from covan_mlir.lowering.dispatch_work import SILENT, Performed
from covan_mlir.provenance.program_graph import (
    Argument,
    Constant,
    Definition,
    Definitions,
    Global,
    NodeKind,
    NodePhase,
    NodeResult,
    ProgramGraph,
    ProgramNode,
    Unknown,
    Value,
    joined,
)

# The same elements, seen in another shape: no node of the graph.
VIEWS = frozenset(
    {
        "flow.tensor.reshape",
        "flow.tensor.bitcast",
        "flow.tensor.tie_shape",
        "flow.tensor.transfer",
        "tensor.cast",
        "tensor.bitcast",
        "tensor.collapse_shape",
        "tensor.expand_shape",
        "iree_tensor_ext.compute_barrier.start",
        "iree_tensor_ext.compute_barrier.end",
        "util.optimization_barrier",
    }
)
# Inside a dispatch: what only changes the shape of what was computed before.
_INNER_VIEWS = frozenset({"tensor.cast", "tensor.collapse_shape", "tensor.expand_shape", "tensor.extract_slice"})
# The same elements in another layout (tiled, padded); their locations are those of some of who read or gave them.
_LAYOUTS = frozenset({"iree_encoding.set_encoding", "iree_encoding.unset_encoding", "flow.tensor.encode"})
EMPTY = frozenset({"tensor.empty", "flow.tensor.empty", "flow.tensor.alloca"})
# A piece of the elements, moved and not changed.
_PIECES = frozenset({"flow.tensor.slice", "tensor.extract_slice"})
_DISPATCH = "flow.dispatch.workgroups"
_UPDATE = "flow.tensor.update"
_SPLAT = "flow.tensor.splat"
_LOAD = "iree_tensor_ext.dispatch.tensor.load"
_STORE = "iree_tensor_ext.dispatch.tensor.store"


def filling(op: Any) -> Any | None:
    """Of an operation that writes into a piece of something what computes the one number that it writes there, if it is
    no constant and nobody else reads it: compilers fill the piece with it, by one command."""
    if op.name != _UPDATE:
        return None
    segments = ir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"])
    piece = op.operands[sum(segments[k] for k in range(3))]
    splat = piece.owner
    if isinstance(splat, ir.Block) or splat.name != _SPLAT or len(list(piece.uses)) > 1:
        return None
    number = splat.operands[0].owner
    return None if not isinstance(number, ir.Block) and number.name == "arith.constant" else splat.operation


def is_filling(op: Any) -> bool:
    """Whether an operation is the `filling` of another one, and no node."""
    readers = [use.owner.operation for use in op.results[0].uses] if op.name == _SPLAT else []
    return any(filling(reader) is not None for reader in readers)


def _is_part(store: Any) -> bool:
    """Whether a dispatch stores to a part of a tensor, as far as sizes are known."""
    value, whole = store.operands[0], store.operands[1]
    if f":{value.type}>" not in str(whole.type):  # dispatch.tensor<readwrite:tensor<...>>
        return True
    counts = list(ir.DenseI32ArrayAttr(store.attributes["operandSegmentSizes"]))
    ends = list(accumulate(counts))
    known, offsets, sizes = (list(store.operands[ends[k] - counts[k] : ends[k]]) for k in (2, 3, 4))
    return bool(offsets) or any(ir.DenseI64ArrayAttr(store.attributes["static_offsets"])) or sizes != known


Paddings = Mapping[tuple[int, ...], tuple[int, ...]]
"""By the ids of what is padded, those of the padding."""


def read_graph(
    module: Any, read: TraceReader, paddings: Paddings | None = None
) -> tuple[ProgramGraph, Callable[[Any], Value]]:
    """The graph of a module after dispatch creation, and what each value of the module is in it. Its nodes are marked
    with their positions (`marks`), but for those of control.

    Args:
        paddings: of the module before dispatches were formed (`read_paddings`).
    """
    reader = _Reader(read, paddings or {})
    reader.read(module)
    return ProgramGraph(tuple(reader.nodes), tuple(reader.results), reader.globals), reader.value


def read_paddings(module: Any, read: TraceReader) -> Paddings:
    """The paddings in a module, those that a convolution reads among them. They become insertions into memory that all
    paddings with the same number share, and lose their names; what is padded twice is left out."""
    reader = _Reader(read, {})
    paddings: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for pad in marks.walk(module, "tensor.pad"):
        ids, padded = tuple(sorted(read.ids(pad.location))), reader.stored(pad.operands[0])
        if padded:
            paddings.setdefault(padded, set()).add(ids)
    return {padded: next(iter(names)) for padded, names in paddings.items() if len(names) == 1}


class _Reader:
    def __init__(self, read: TraceReader, paddings: Paddings) -> None:
        self.nodes: list[ProgramNode] = []
        self.globals: dict[str, Value] = {}
        self.results: list[Value] = []
        self._read = read
        self._paddings = paddings
        self._values: dict[Any, Value] = {}
        self._varying: set[int] = set()
        """Nodes that an argument lies behind."""
        self._phase: NodePhase = "call"
        self._control = ControlReader(self)

    def read(self, module: Any) -> None:
        functions = [op.operation for op in module.regions[0].blocks[0]]
        # Initialisers first: they are what a function's globals come from.
        for function in sorted(functions, key=lambda op: op.name != "util.initializer"):
            if function.name in ("util.initializer", "util.func"):
                self._phase = "init" if function.name == "util.initializer" else "call"
                for index, argument in enumerate(function.regions[0].blocks[0].arguments):
                    self._values[argument] = Argument(index)
                for block in function.regions[0]:
                    self.body(block)

    def bind(self, result: Any, value: Value) -> None:
        """What a result of an operation with bodies is, or an argument of a block."""
        self._values[result] = value

    def join(self, name: str, inputs: tuple[Value, ...], op: Any) -> int:
        """Adds a node of control; -> its position."""
        self._varying.add(len(self.nodes))
        self.nodes.append(joined(name, self._phase, inputs))
        return len(self.nodes) - 1

    def rejoin(self, node: int, inputs: tuple[Value, ...]) -> None:
        """Gives a node of control its inputs."""
        self.nodes[node] = replace(self.nodes[node], inputs=inputs)

    def stored(self, value: Any) -> tuple[int, ...]:
        """Ids of the operation behind a value that computes or moves its elements; none of what is given."""
        return self._definitions(value)[-1].ids

    def _ids(self, op: Any) -> tuple[int, ...]:
        return tuple(sorted(self._read.ids(op.location)))

    def value(self, value: Any) -> Value:
        """What an operand is."""
        return self._values.get(value, Unknown())

    def body(self, block: Any) -> None:
        """Reads the operations of a block."""
        for view in block:
            op = view.operation
            name = op.name
            if name == "hal.tensor.import":
                self._values[op.results[0]] = Argument(ir.BlockArgument(op.operands[0]).arg_number)
            elif name == "arith.constant":
                self._values[op.results[0]] = Constant(self._ids(op))
            elif name in EMPTY and has_no_elements(op):
                inputs = tuple(self.value(operand) for operand in op.operands)
                self._values[op.results[0]] = NodeResult(self.join(name, inputs, op), 0)
            elif name in EMPTY:
                self._values[op.results[0]] = Constant()
            elif name == "util.global.load":
                self._values[op.results[0]] = Global(op.attributes["global"].value)
            elif name == "util.global.store":
                self.globals[op.attributes["global"].value] = self.value(op.operands[0])
            elif name == _DISPATCH:
                performed = Performed(op, self._read, self._varies)
                outputs, inserting = self._outputs(op)
                self._node(op, "dispatch", outputs, performed.ids | inserting, performed.data)
            elif name == "flow.dispatch":  # of an executable that stands ready
                named = list(self._ids(op))
                said = fused_of(op.location) or Fused([named] * len(op.results), named)
                outputs = [(Definition("compute", tuple(ids)),) for ids in said.results]
                self._node(op, "dispatch", outputs, said.performed)
            elif name == "hal.tensor.barrier":  # each result is an operand; behind them stands a fence
                for operand, result in zip(op.operands, op.results, strict=False):
                    self._values[result] = self.value(operand)
            elif name in VIEWS or name in ("hal.tensor.export", "hal.tensor.alias"):
                self._values[op.results[0]] = self.value(op.operands[0])
            elif name == "util.return":
                values = [self._returned(operand) for operand in op.operands]
                if not self.results or any(value != Unknown() for value in values):
                    self.results = values  # of a function that only calls another, nothing is known
            elif name.startswith(("flow.", "tensor.")) and len(op.results):
                ids = () if name in _LAYOUTS else self._ids(op)
                # A slice is a piece of what it is given, an encoding all of it, whatever operation asked for it.
                moved = name in _PIECES or name in _LAYOUTS
                definition = Definition("input") if moved else Definition("move", ids)
                if (fills := filling(op)) is not None:
                    ids = tuple(sorted({*ids, *self._ids(fills)}))
                if name != "tensor.dim" and not is_filling(op):
                    self._node(op, "transfer", [(definition,)] * len(op.results), ids)
            elif not self._control.read(op):
                for region in op.regions:
                    for inner in region:
                        self.body(inner)

    def _returned(self, value: Any) -> Value:
        """What a value is that a function returns. A number is computed beside the dispatches, by a node of its own."""
        known = self.value(value)
        if known != Unknown() or "tensor<" in str(value.type) or isinstance(value.owner, ir.Block):
            return known
        op = value.owner.operation
        if (ids := self._ids(op)) and not len(op.regions):
            self._node(op, "transfer", [(Definition("compute", ids),)] * len(op.results), ids)
        return self.value(value)

    def _varies(self, operand: Any) -> bool:
        """Whether an argument lies behind the elements of an operand; of a number that is none, whether a node does."""
        value = self.value(operand)
        if isinstance(value, Global):
            value = self.globals.get(value.name, Constant())
        match value:
            case NodeResult(node, _):
                return node in self._varying
            case Argument():
                return True
            case Unknown():
                return "tensor<" in str(operand.type)
        return False

    def _node(
        self,
        op: Any,
        kind: NodeKind,
        outputs: Iterable[Definitions],
        evidence: Iterable[int],
        data: Iterable[int] = (),
    ) -> None:
        index = len(self.nodes)
        fills = filling(op)
        pieces = list(fills.results) if fills is not None else []
        tensors = [operand for operand in op.operands if "tensor<" in str(operand.type) and operand not in pieces]
        given = tuple(map(self.value, tensors))
        beside = [*op.operands, *(fills.operands if fills is not None else ())]
        numbers = tuple(number for number in self._numbers(beside) if number not in given)
        self.nodes.append(
            ProgramNode(
                kind,
                self._phase,
                (*given, *numbers),
                tuple(outputs),
                tuple(sorted(set(evidence))),
                "" if op.name == _DISPATCH else op.name,
                tuple(sorted(set(data))),
            )
        )
        # How many elements there are says nothing of what they are.
        elements = self._numbers(op.operands[:1]) if op.name == _SPLAT else numbers
        if elements or any(map(self._varies, tensors)):
            self._varying.add(index)
        for number, result in enumerate(op.results):
            self._values[result] = NodeResult(index, number)
        marks.mark(op, index)

    def _numbers(self, operands: Sequence[Any]) -> list[NodeResult]:
        """What nodes give of which the numbers are computed that an operation reads beside tensors: where pieces begin
        and how long they are."""
        known: dict[NodeResult, None] = {}
        seen: set[Any] = set()
        stack = [operand for operand in reversed(operands) if "tensor<" not in str(operand.type)]
        while stack:
            number = stack.pop()
            if number in seen:
                continue
            seen.add(number)
            if isinstance(value := self.value(number), NodeResult):
                known[value] = None
            elif not isinstance(number.owner, ir.Block):
                operands = number.owner.operands
                stack += [operand for operand in reversed(list(operands)) if "tensor<" not in str(operand.type)]
        return list(known)

    def _outputs(self, dispatch: Any) -> tuple[list[Definitions], set[int]]:
        """-> (for each result of a dispatch, what is stored to it: outermost operation first, up to one that computes;
        ids of insertions that lost their name).

        A result that is written into a part of an operand's memory (a tied one) is still what that operand was.
        """
        inserting: set[int] = set()
        block = dispatch.regions[0].blocks[0]
        stored: dict[int, Definitions] = {}
        partly: dict[int, tuple[int, ...]] = {}
        work = self._work(block)
        for view in block:
            if view.operation.name == _STORE:
                value, whole = view.operation.operands[0], view.operation.operands[1]
                target = ir.BlockArgument(whole).arg_number
                stored[target] = stored.get(target, ()) + self._definitions(value)
                if _is_part(view.operation):
                    # An insertion that moved into a region lost its name: the store has that of work in there.
                    own = tuple(part for part in self._ids(view.operation) if part not in work)
                    partly[target] = partly.get(target, ()) + own
        fresh = (i for i, argument in enumerate(block.arguments) if "<writeonly:" in str(argument.type))
        tied = [i for i, argument in enumerate(block.arguments) if "<readwrite:" in str(argument.type)]
        operands = dispatch.attributes.get("tied_operands", [])
        workload = ir.DenseI32ArrayAttr(dispatch.attributes["operandSegmentSizes"])[0]
        outputs = []
        for number in range(len(dispatch.results)):
            if number < len(operands) and ir.IntegerAttr(operands[number]).value >= 0:
                target = tied.pop(0)
                into = dispatch.operands[workload + target]
                definitions = stored.get(target, ())
                if target in partly:
                    computed = {part for definition in definitions for part in definition.ids}
                    asked = tuple(part for part in partly[target] if part not in computed)
                    padding = self._paddings.get(definitions[-1].ids, ()) if definitions else ()
                    moved = all(definition.how == "input" for definition in definitions)
                    before = self._written_into(into, asked, padding, moved=moved)
                    definitions += before
                    inserting |= {
                        part for definition in before if definition.how == "compute" for part in definition.ids
                    }
                outputs.append(definitions)
            else:
                outputs.append(stored.get(next(fresh), ()))
        return outputs, inserting

    def _work(self, block: ir.Block) -> frozenset[int]:
        """Ids of what a dispatch does, other than to load and to store."""
        moving = {_LOAD, _STORE, *EMPTY}
        own = (view.operation for view in block if len(view.operation.results))
        return frozenset(part for op in own if op.name not in moving for part in self._ids(op))

    def _written_into(
        self, value: Any, asked: tuple[int, ...], padding: tuple[int, ...], *, moved: bool
    ) -> Definitions:
        """Those of a value that a node gave, as the shape of what is written into it; ``asked``: ids of those who
        write, which are to be believed where that value is data that several share, and where what is written is only
        ``moved``: then the store is the insertion. Where it is data and nobody is named, a ``padding`` writes into it:
        the one known, or who filled it."""
        match self.value(value):
            case NodeResult(node, result):
                if node not in self._varying:
                    filled = self.nodes[node].outputs[result]
                    if asked:
                        return (Definition("view", asked),)
                    return filled and (Definition("compute", padding or filled[0].ids),)
                if asked and moved:
                    return (Definition("move", asked),)
                return tuple(Definition("view", definition.ids) for definition in self.nodes[node].outputs[result])
        return ()

    def _definitions(self, value: Any) -> Definitions:
        views: list[Definition] = []
        while True:
            op = value.owner
            if isinstance(op, ir.Block):
                return (*views, Definition("input"))
            op = op.operation  # an attribute may be called as the operation's name is
            if op.name in _INNER_VIEWS:
                views.append(Definition("view", self._ids(op)))
                value = op.operands[0]
            elif op.name in _LAYOUTS or (is_prepared(op.location) and len(op.operands) and not self._ids(op)):
                value = op.operands[0]
            elif op.name == "linalg.generic":
                return (*views, self._payload(op, ir.OpResult(value).result_number))
            elif op.name.startswith("iree_tensor_ext."):  # a load: the dispatch gives what it was given
                return (*views, Definition("input"))
            else:
                return (*views, Definition("compute", self._ids(op)))

    def _payload(self, generic: Any, result: int) -> Definition:
        terminator = list(generic.regions[0].blocks[0])[-1].operation
        value = terminator.operands[result]
        while not isinstance(value.owner, ir.Block):
            ids = self._ids(value.owner)
            if ids:
                return Definition("compute", self._picked(generic, value, ids) or ids)
            if len(value.owner.operands) != 1:
                return Definition("compute", self._ids(generic))
            value = value.owner.operands[0]
        return Definition("move", self._ids(generic))

    def _picked(self, generic: Any, value: Any, ids: tuple[int, ...]) -> tuple[int, ...]:
        """Ids of the gather that a result is, where the last operation that computes it has others (``ids``).

        The compiler computes what a gather reads behind it, for the elements that are picked: the gather's own
        operation remains, around the body of what computes them.
        """
        own = set(self._ids(generic))
        if own & set(ids):
            return ()
        seen: set[Any] = set()
        picked: set[int] = set()
        stack = [value.owner]
        while stack:
            op = stack.pop()
            if isinstance(op, ir.Block) or op in seen:
                continue
            seen.add(op)
            if op.name == "tensor.extract":
                picked.update(self._ids(op))
            stack += [operand.owner for operand in op.operands]
        return tuple(sorted(picked & own))


def locate_payloads(module: Any, read: TraceReader) -> None:
    """Give the bodies of named operations the operation's location.

    A body is invisible until a pass turns the operation into a generic one and fuses it; built by a C++ region builder,
    it has no location of its own, and the action would be lost with the name.
    """
    for op in marks.walk(module, "linalg."):
        if op.name in SILENT:
            continue
        for region in op.regions:
            for inner in region.blocks[0]:
                if not read.ids(inner.operation.location):
                    inner.operation.location = op.location
