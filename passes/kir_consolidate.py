"""``kir-consolidate``: operators say which actions of the model they perform."""

from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from covan_mlir.dialects.chain_holders import OPERATORS
from covan_mlir.dialects.fred_chain import chains
from covan_mlir.dialects.kir_operator import ACTIONS
from covan_mlir.dialects.prov_graph import functions
from covan_mlir.dialects.prov_locations import TRACE
from covan_mlir.passes.framework.actions import table_of
from covan_mlir.passes.framework.rewriter import Rewriter


@dataclass(frozen=True)
class KirConsolidate:
    """Tells of each operator the actions that it performs: the parts in its locations, and in those of what its region
    holds, as the calls of the model that decompositions made them of. The table says which (``prov.table``, or what
    ``prov-drop-table{keep=true}`` left of it). Locations stay as they are.

    Before, where part 4 is one of action 1::

        %y = "kir.linear"(...) ({...}) {...} loc(fused<#prov.trace<[0, 4]>>["prov:0:linear", "prov:4:mul"])

    After::

        %y = "kir.linear"(...) ({...}) {..., trace = #prov.trace<[0, 1]>} loc(...)
    """

    name: ClassVar[str] = "kir-consolidate"
    op_name: ClassVar[str | None] = "builtin.module"

    def run(self, op: ir.Operation) -> None:
        table = table_of(op)
        for function in functions(op):
            rewriter = Rewriter(function)
            for operator in chains(function, *OPERATORS):
                actions = sorted({table.action_of(part) for part in rewriter.trace(operator)})
                ids = [ir.IntegerAttr.get(ir.IntegerType.get_signless(64, op.context), action) for action in actions]
                trace = ir.DynamicAttr.get(TRACE, [ir.ArrayAttr.get(ids, op.context)], op.context)
                operator.attributes[ACTIONS] = trace
