"""``prov-project``: action states forgotten, the left inverse of ``prov-reflect``."""

from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from covan_mlir.dialects.prov_states import read_execution


@dataclass(frozen=True)
class ProvProject:
    """Puts every op in place of its action state. After ``prov-reflect``, this gives the module back as it was.

    Before::

        %op = "prov.perform"() ({
        ^bb0(%inside: tensor<4xf32>):
          %r = math.exp %inside : tensor<4xf32>
          "prov.result"(%r) : (tensor<4xf32>) -> ()
        }) {op = "math.exp", trace = #prov.trace<[3]>} : () -> !prov.state
        %s = "prov.enter"(%op, %x) : (!prov.state, tensor<4xf32>) -> !prov.state
        %y = "prov.leave"(%s) {index = 0 : i64} : (!prov.state) -> tensor<4xf32>

    After::

        %y = math.exp %x : tensor<4xf32>
    """

    name: ClassVar[str] = "prov-project"
    op_name: ClassVar[str | None] = "builtin.module"

    def run(self, op: ir.Operation) -> None:
        executions: list[ir.Operation] = []

        def visit(nested: ir.Operation) -> ir.WalkResult:
            if nested.name == "prov.perform":
                executions.append(nested)
            return ir.WalkResult.ADVANCE

        op.walk(visit)
        for perform in executions:
            _project(perform)


def _project(perform: ir.Operation) -> None:
    execution = read_execution(perform)
    action = execution.action
    arguments = list(perform.regions[0].blocks[0].arguments)
    for inside, enter in zip(arguments, execution.enters, strict=True):
        inside.replace_all_uses_with(enter.operands[1])
    # Where the last step into the state was, for there all inputs are known.
    action.move_before(execution.enters[-1] if execution.enters else perform)
    for result, leave in zip(action.results, execution.leaves, strict=True):
        # The prov.result goes on reading the op until it is erased with its region.
        leave.results[0].replace_all_uses_with(result)
        leave.erase()
    for enter in reversed(execution.enters):
        enter.erase()
    perform.erase()
