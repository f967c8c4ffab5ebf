"""``prov-strip``: a module without provenance."""

from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from covan_mlir.dialects.chain_holders import OPERATORS
from covan_mlir.dialects.kir_operator import forget_actions
from covan_mlir.dialects.prov import detach_table
from covan_mlir.dialects.prov_locations import TRACE, rewrite_locations, strip


@dataclass(frozen=True)
class ProvStrip:
    """Removes the table and every trace, keeping files, lines and other names in locations; what operators tell of the
    actions that they perform (``kir-consolidate``, ``kir-attach``) goes, too.

    Before::

        "prov.table"() ({ ... }) : () -> ()
        linalg.matmul ... loc(fused<#prov.trace<[3]>>["prov:3:mm"("model.py":7:0)])

    After::

        linalg.matmul ... loc("model.py":7:0)
    """

    name: ClassVar[str] = "prov-strip"
    op_name: ClassVar[str | None] = "builtin.module"
    drops_traces: ClassVar[bool] = True

    def run(self, op: ir.Operation) -> None:
        detach_table(op)
        rewrite_locations(op, strip)
        nothing = ir.DynamicAttr.get(TRACE, [ir.ArrayAttr.get([], op.context)], op.context)

        def visit(nested: ir.Operation) -> ir.WalkResult:
            if nested.name == "prov.perform":
                nested.attributes["trace"] = nothing
            elif nested.name in OPERATORS:
                forget_actions(nested)
            return ir.WalkResult.ADVANCE

        op.walk(visit)
