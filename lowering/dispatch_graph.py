"""The program as a graph of dispatches, right after they are formed: what each reads, gives, and computes.

This is all that the relation between source and program needs of the IR (`covan_mlir.provenance.relation`); as JSON,
because it travels to the caller's process. Values are named by where they come from::

    ["arg", 2]            third argument of the function
    ["const", [12, 40]]   a constant, with the parts that its location names
    ["global", "@name"]   a global
    ["node", 7, 0]        first result of node 7
    ["unknown"]           something else (an argument of a loop's body)
"""

from __future__ import annotations

from typing import Any

import iree.compiler.ir as ir

from covan_mlir.dialects.prov_locations import TraceReader, fused_of
from covan_mlir.lowering import marks

# Operations that say nothing about what is computed: their locations name whoever made them, often another action's.
SILENT = frozenset(
    {
        "arith.constant",
        "linalg.yield",
        "linalg.index",
        "linalg.fill",
        "tensor.empty",
        "tensor.dim",
        "flow.return",
        "flow.dispatch.workgroups",
        "flow.dispatch.tie_shape",
        "scf.yield",
        "affine.apply",
    }
)
_SILENT_DIALECTS = ("iree_tensor_ext.", "util.", "hal.")

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
_EMPTY = frozenset({"tensor.empty", "flow.tensor.empty", "flow.tensor.alloca"})
# A piece of the elements, moved and not changed.
_PIECES = frozenset({"flow.tensor.slice", "tensor.extract_slice"})
_DISPATCH = "flow.dispatch.workgroups"
_STORE = "iree_tensor_ext.dispatch.tensor.store"


class DispatchGraph:
    """Reads the graph off a module after dispatch creation, and marks its nodes.

    Attributes:
        nodes: rows with ``kind`` (``dispatch`` or ``transfer``), ``phase``, ``inputs`` (values), ``outputs`` (per
            result a chain of ``[how, ids]``, outermost first; how is ``view``, ``move``, ``compute`` or ``input``),
            and ``evidence``: ids in the locations of what computes.
        globals: per name, ``ids`` of its location and the ``value`` that an initialiser stores, or None.
        results: values that the function returns.
    """

    def __init__(self, read: TraceReader) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.globals: dict[str, dict[str, Any]] = {}
        self.results: list[Any] = []
        self._read = read
        self._values: dict[Any, Any] = {}

    def to_json(self) -> dict[str, Any]:
        return {"nodes": self.nodes, "globals": self.globals, "results": self.results}

    def build(self, module: Any) -> None:
        functions = [op.operation for op in module.regions[0].blocks[0]]
        for function in functions:
            if function.name == "util.global":
                name = function.attributes["sym_name"].value
                self.globals[name] = {"ids": self._ids(function), "value": None}
        # Initialisers first: they are what a function's globals come from.
        for function in sorted(functions, key=lambda op: op.name != "util.initializer"):
            if function.name in ("util.initializer", "util.func"):
                phase = "init" if function.name == "util.initializer" else "call"
                for index, argument in enumerate(function.regions[0].blocks[0].arguments):
                    self._values[argument] = ["arg", index]
                for block in function.regions[0]:
                    self._block(block, phase)

    def _ids(self, op: Any) -> list[int]:
        return sorted(self._read.ids(op.location))

    def _value(self, value: Any) -> Any:
        return self._values.get(value, ["unknown"])

    def _block(self, block: Any, phase: str) -> None:
        for view in block:
            op = view.operation
            name = op.name
            if name == "hal.tensor.import":
                self._values[op.results[0]] = ["arg", ir.BlockArgument(op.operands[0]).arg_number]
            elif name == "arith.constant":
                self._values[op.results[0]] = ["const", self._ids(op)]
            elif name in _EMPTY:
                self._values[op.results[0]] = ["const", []]
            elif name == "util.global.load":
                self._values[op.results[0]] = ["global", op.attributes["global"].value]
            elif name == "util.global.store":
                self.globals[op.attributes["global"].value]["value"] = self._value(op.operands[0])
            elif name == _DISPATCH:
                self._node(op, "dispatch", phase, self._outputs(op), performed(op, self._read))
            elif name == "flow.dispatch":  # of an executable that stands ready
                given, computed = fused_of(op.location) or ([self._ids(op)] * len(op.results), self._ids(op))
                outputs = [[["compute", ids]] for ids in given]
                self._node(op, "dispatch", phase, outputs, frozenset(computed))
            elif name == "hal.tensor.barrier":  # each result is an operand; behind them stands a fence
                for operand, result in zip(op.operands, op.results, strict=False):
                    self._values[result] = self._value(operand)
            elif name in VIEWS or name in ("hal.tensor.export", "hal.tensor.alias"):
                self._values[op.results[0]] = self._value(op.operands[0])
            elif name == "util.return":
                values = [self._value(operand) for operand in op.operands]
                if not self.results or values != [["unknown"]] * len(values):  # of a function that only calls another
                    self.results = values
            elif name.startswith(("flow.", "tensor.")) and len(op.results):
                ids = self._ids(op)
                # A slice is a piece of what it is given, whatever operation asked for it.
                how = [["input", []]] if name in _PIECES else [["move", ids]]
                if name != "tensor.dim":
                    self._node(op, "transfer", phase, [how] * len(op.results), frozenset(ids))
            else:
                for region in op.regions:
                    for inner in region:
                        self._block(inner, phase)

    def _node(self, op: Any, kind: str, phase: str, outputs: list[Any], evidence: frozenset[int]) -> None:
        index = len(self.nodes)
        self.nodes.append(
            {
                "kind": kind,
                "phase": phase,
                "inputs": [self._value(operand) for operand in op.operands if "tensor<" in str(operand.type)],
                "outputs": outputs,
                "evidence": sorted(evidence),
            }
        )
        for number, result in enumerate(op.results):
            self._values[result] = ["node", index, number]
        marks.mark(op, index)

    def _outputs(self, dispatch: Any) -> list[Any]:
        """For each result of a dispatch, what is stored to it: outermost operation first, up to one that computes.

        A result that is written into a part of an operand's memory (a tied one) is still what that operand was.
        """
        block = dispatch.regions[0].blocks[0]
        stored: dict[int, list[Any]] = {}
        partly: set[int] = set()
        for view in block:
            if view.operation.name == _STORE:
                value, whole = view.operation.operands[0], view.operation.operands[1]
                target = ir.BlockArgument(whole).arg_number
                stored.setdefault(target, []).extend(self._chain(value))
                if f":{value.type}>" not in str(whole.type):  # dispatch.tensor<readwrite:tensor<...>>
                    partly.add(target)
        fresh = (i for i, argument in enumerate(block.arguments) if "<writeonly:" in str(argument.type))
        tied = [i for i, argument in enumerate(block.arguments) if "<readwrite:" in str(argument.type)]
        operands = dispatch.attributes["tied_operands"] if "tied_operands" in dispatch.attributes else []  # noqa: SIM401  # no dict
        chains = []
        for number in range(len(dispatch.results)):
            if number < len(operands) and ir.IntegerAttr(operands[number]).value >= 0:
                target = tied.pop(0)
                before = self._of_node(dispatch.operands[target]) if target in partly else []
                chains.append([*stored.get(target, []), *before])
            else:
                chains.append(stored.get(next(fresh), []))
        return chains

    def _of_node(self, value: Any) -> list[Any]:
        """The chain of a value that a node gave, as the shape of what is written into it."""
        row = self._value(value)
        if row[0] != "node":
            return []
        return [["view", ids] for _, ids in self.nodes[row[1]]["outputs"][row[2]]]

    def _chain(self, value: Any) -> list[Any]:
        chain: list[Any] = []
        while True:
            op = value.owner
            if isinstance(op, ir.Block):
                return [*chain, ["input", []]]
            if op.name in _INNER_VIEWS:
                chain.append(["view", self._ids(op)])
                value = op.operands[0]
            elif op.name == "linalg.generic":
                return [*chain, self._payload(op, ir.OpResult(value).result_number)]
            elif op.name.startswith("iree_tensor_ext."):  # a load: the dispatch gives what it was given
                return [*chain, ["input", []]]
            else:
                return [*chain, ["compute", self._ids(op)]]

    def _payload(self, generic: Any, result: int) -> list[Any]:
        terminator = list(generic.regions[0].blocks[0])[-1].operation
        value = terminator.operands[result]
        while not isinstance(value.owner, ir.Block):
            ids = self._ids(value.owner)
            if ids:
                return ["compute", ids]
            if len(value.owner.operands) != 1:
                return ["compute", self._ids(generic)]
            value = value.owner.operands[0]
        return ["move", self._ids(generic)]


def performed(dispatch: Any, read: TraceReader) -> frozenset[int]:
    """Ids in the locations of the operations that compute inside a dispatch."""
    computing: set[int] = set()
    moving: set[int] = set()
    loud: list[Any] = []

    checks = _checks(dispatch)

    def visit(op: Any) -> Any:
        name = op.name
        if name not in SILENT and not name.startswith(_SILENT_DIALECTS) and op not in checks:
            loud.append(op)
        return ir.WalkResult.ADVANCE

    dispatch.walk(visit)
    for op in loud:
        ids = read.ids(op.location)
        if op.name == "linalg.generic":
            # Its payload speaks for itself; a generic that only moves data has none.
            payload = any(inner.operation.name not in SILENT for inner in op.regions[0].blocks[0])
            (moving if payload else computing).update(ids)
        elif op.name.startswith("tensor."):
            moving.update(ids)
        else:
            computing.update(ids)
    return frozenset(computing or moving or read.ids(dispatch.location))


def _checks(dispatch: Any) -> set[Any]:
    """The assertions in a dispatch and of what only they read: code generation drops them.

    An assertion about an operand may end up in the dispatch that gives it, which does none of the operation's work.
    """
    found: set[Any] = set()
    stack: list[Any] = list(marks.walk(dispatch, "cf.assert"))
    while stack:
        op = stack.pop()
        if op in found:
            continue
        found.add(op)
        for operand in op.operands:
            owner = operand.owner
            if not isinstance(owner, ir.Block) and all(
                use.owner.operation in found for result in owner.results for use in result.uses
            ):
                stack.append(owner)
    return found


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
