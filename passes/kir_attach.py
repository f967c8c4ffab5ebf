"""``kir-attach``: operators say which operators of the user's own are part of them."""

from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from covan_mlir.dialects.chain_holders import OPERATORS
from covan_mlir.dialects.fred_chain import chains
from covan_mlir.dialects.fred_data import attribute
from covan_mlir.dialects.kir_operator import ATTACHED
from covan_mlir.dialects.prov_graph import functions
from covan_mlir.dialects.prov_table import ActionRow
from covan_mlir.passes.framework.actions import table_of
from covan_mlir.passes.framework.rewriter import Rewriter
from covan_mlir.provenance.attached import attached_in


@dataclass(frozen=True)
class KirAttach:
    """Tells of each operator the attached ones (docs/attaching.md) among the actions that it performs: one that is
    attached to a tensor of steps is a part of the operator which gives these, or an operator of its own, as any other
    is. An operator without such says nothing.

    Before, where action 3 is of the module ``attached.bytes``::

        %y = "kir.linear"(...) ({...}) {...} loc(fused<#prov.trace<[0, 3]>>["prov:0:linear", "prov:3:mul"])

    After::

        %y = "kir.linear"(...) ({...}) {..., attached = ["bytes"]} loc(...)
    """

    name: ClassVar[str] = "kir-attach"
    op_name: ClassVar[str | None] = "builtin.module"

    def run(self, op: ir.Operation) -> None:
        table = table_of(op)
        modules = {row.id: row.module for row in table.rows.values() if isinstance(row, ActionRow)}
        for function in functions(op):
            rewriter = Rewriter(function)
            for operator in chains(function, *OPERATORS):
                actions = sorted({table.action_of(part) for part in rewriter.trace(operator)})
                if names := attached_in(modules[action] for action in actions):
                    operator.attributes[ATTACHED] = attribute(list(names), op.context)
