"""``prov-reflect``: the executions of ops as values, action reflection on IR."""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch_mlir import ir

from covan_mlir.dialects.identity import address
from covan_mlir.dialects.prov_locations import TRACE
from covan_mlir.passes.framework.interface import PassFailure
from covan_mlir.passes.framework.rewriter import Rewriter
from covan_mlir.passes.framework.trace_check import current_journal, identity


@dataclass(frozen=True)
class ProvReflect:
    """Makes each op of a function body that carries a trace explicit as an action state, x → (op, x) → y.

    Control states are the values of the function, as before. An action state is a value of type ``!prov.state``:
    ``prov.perform`` holds the op, which waits for its inputs; each ``prov.enter`` goes from an operand to it; each
    ``prov.leave`` goes on to one of the results. ``prov-project`` is the left inverse.

    Before::

        func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
          %y = math.exp %x : tensor<4xf32> loc("prov:3:exp")
          return %y : tensor<4xf32>
        }

    After, everything new at the location of the op::

        func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
          %op = "prov.perform"() ({
          ^bb0(%inside: tensor<4xf32>):
            %r = math.exp %inside : tensor<4xf32>
            "prov.result"(%r) : (tensor<4xf32>) -> ()
          }) {op = "math.exp", trace = #prov.trace<[3]>} : () -> !prov.state
          %s = "prov.enter"(%op, %x) : (!prov.state, tensor<4xf32>) -> !prov.state
          %y = "prov.leave"(%s) {index = 0 : i64} : (!prov.state) -> tensor<4xf32>
          return %y : tensor<4xf32>
        }

    An op that has regions is one action with all that is in them; what these read from outside is entered after the
    operands. Terminators are control flow and stay. A reflected function is refused.

    Options:
        untraced: also ops that carry no trace.
    """

    name: ClassVar[str] = "prov-reflect"
    op_name: ClassVar[str | None] = "builtin.module"

    untraced: bool = False

    def run(self, op: ir.Operation) -> None:
        rewriter = Rewriter(op)
        for action in _body_ops(op):
            if action.name == "prov.perform":
                raise PassFailure("the function is reflected already", action.location)
            trace = sorted(rewriter.trace(action))
            if trace or self.untraced:
                new = _reflect(action, trace, rewriter.location_of(action))
                if not trace:
                    current_journal().untraced.update(map(identity, new))


def _body_ops(module: ir.Operation) -> list[ir.Operation]:
    """The ops that stand directly in functions, but for terminators."""
    body_ops: list[ir.Operation] = []
    functions: set[int] = set()

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "func.func":
            functions.add(address(op))
            return ir.WalkResult.ADVANCE
        if op.name == "builtin.module":
            return ir.WalkResult.ADVANCE
        parent = op.parent
        if parent is not None and address(parent) in functions and not op.has_trait(ir.IsTerminatorTrait):
            body_ops.append(op)
        return ir.WalkResult.SKIP

    module.walk(visit, ir.WalkOrder.PRE_ORDER)
    return body_ops


def _reflect(action: ir.Operation, trace: list[int], location: ir.Location) -> list[ir.Operation]:
    """Builds the execution of ``action`` around it; returns the new ops."""
    context = action.context
    i64 = ir.IntegerType.get_signless(64, context)
    ids = ir.ArrayAttr.get([ir.IntegerAttr.get(i64, id_) for id_ in trace], context)
    attributes = {
        "op": ir.StringAttr.get(action.name, context),
        "trace": ir.DynamicAttr.get(TRACE, [ids], context),
    }
    operands = list(action.operands)
    reads = _captures(action) if len(action.regions) else []
    inputs = operands + [value for value, _, _ in reads]
    new: list[ir.Operation] = []

    def build(name: str, results: list[ir.Type], operands: list[ir.Value], **parts: Any) -> ir.Operation:
        new.append(ir.Operation.create(name, results, operands, **parts))
        return new[-1]

    with context, location:
        state = ir.DynamicType.get("prov.state", [], context=context)
        with ir.InsertionPoint(action):
            perform = build("prov.perform", [state], [], attributes=attributes, regions=1)
            last = perform.results[0]
            for value in inputs:
                last = build("prov.enter", [state], [last, value]).results[0]
            for index, old in enumerate(action.results):
                number = {"index": ir.IntegerAttr.get(i64, index)}
                leave = build("prov.leave", [old.type], [last], attributes=number)
                old.replace_all_uses_with(leave.results[0])
        block = perform.regions[0].blocks.append(*[value.type for value in inputs], arg_locs=[location] * len(inputs))
        block.append(action)
        with ir.InsertionPoint(block):
            for result in action.results:
                build("prov.result", [], [result])
    arguments = list(block.arguments)
    for index, argument in enumerate(arguments[: len(operands)]):
        action.operands[index] = argument
    for argument, (_, reader, index) in zip(arguments[len(operands) :], reads, strict=True):
        reader.operands[index] = argument
    return new


def _captures(action: ir.Operation) -> list[tuple[ir.Value, ir.Operation, int]]:
    """What the regions of an op read from outside: value, reader, index of the operand."""
    inside: list[ir.Operation] = []
    ops: set[int] = set()
    blocks: set[ir.Block] = set()

    def visit(op: ir.Operation) -> ir.WalkResult:
        inside.append(op)
        ops.add(address(op))
        blocks.update(block for region in op.regions for block in region.blocks)
        return ir.WalkResult.ADVANCE

    action.walk(visit)
    captures: list[tuple[ir.Value, ir.Operation, int]] = []
    for op in inside:
        if op != action:
            for index, value in enumerate(op.operands):
                owner = value.owner
                if owner not in blocks if isinstance(owner, ir.Block) else address(owner) not in ops:
                    captures.append((value, op, index))
    return captures
