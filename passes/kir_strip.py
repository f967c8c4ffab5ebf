"""``kir-strip``: operators without provenance."""

from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from covan_mlir.dialects.chain_holders import OPERATORS
from covan_mlir.dialects.fred_chain import chains
from covan_mlir.dialects.kir_operator import forget_actions
from covan_mlir.dialects.prov_locations import rewrite_locations, strip


@dataclass(frozen=True)
class KirStrip:
    """Takes off operators, and all that is in them, the traces, and what they tell of actions (``kir-consolidate``,
    ``kir-attach``). Files and lines stay, and so does the rest of the module (``prov-strip`` strips all of it). What is
    compiled of an operator is the same without.

    Before::

        %y = "kir.linear"(...) ({...}) {..., trace = #prov.trace<[0, 3]>} loc(fused<#prov.trace<[0, 3]>>[...])

    After::

        %y = "kir.linear"(...) ({...}) {...} loc("model.py":7:0)
    """

    name: ClassVar[str] = "kir-strip"
    op_name: ClassVar[str | None] = "builtin.module"
    drops_traces: ClassVar[bool] = True

    def run(self, op: ir.Operation) -> None:
        for operator in chains(op, *OPERATORS):
            rewrite_locations(operator, strip)
            forget_actions(operator)
