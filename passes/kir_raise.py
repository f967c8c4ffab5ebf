"""``kir-raise``: chains of reductions, and what else computes with steps, as operators that say what they are."""

import json
from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from covan_mlir.dialects.chain_holders import CHAIN, HELD
from covan_mlir.dialects.fred_chain import chains, create, read_chain
from covan_mlir.dialects.kir_graph import LEFT_OVER
from covan_mlir.dialects.kir_operator import operator_attributes, operator_name
from covan_mlir.kir.recognition import operator_of
from covan_mlir.passes.framework.place import visited
from covan_mlir.passes.framework.rewriter import Rewriter
from covan_mlir.passes.raising.left_over_ops import raise_left_over


@dataclass(frozen=True)
class KirRaise:
    """Makes each ``fred.chain`` the operator that it is: which integers it multiplies, what these stand for, and how
    its results are quantised, become attributes. Its region stays as it is.

    Before::

        %y = "fred.chain"(%x, %w) ({sums of (extui %x - 121) * extsi %w, ...}) {axes = ["i", "j", "k"], ...}

    After::

        %y = "kir.linear"(%x, %w) ({...}) {first = {name = "x0", signed = false, zero = 121, at = ["i", "k"]},
            second = {name = "x1", ...}, scales = [3.0e-02], results = [{inverse = 18.2, zero = 3, ...}], ...}

    A chain that is nothing of which there is a name is a ``kir.kernel``.

    In a function that computes with steps, so is linalg that is no chain (`covan_mlir.passes.raising.left_over`): each
    operator holds, in a second region, the ops that it was made of, which ``kir-lower`` puts back. What was raised is
    the function's ``kir.left_over``, as JSON.
    """

    name: ClassVar[str] = "kir-raise"
    op_name: ClassVar[str | None] = "func.func"

    def run(self, op: ir.Operation) -> None:
        if left_over := raise_left_over(op):
            told = json.dumps([record.to_json() for record in left_over])
            op.attributes[LEFT_OVER] = ir.StringAttr.get(told, op.context)
        raised = list(chains(op, CHAIN))
        rewriter = Rewriter(op) if raised else None
        for chain_op in visited(raised):
            assert rewriter is not None
            chain = read_chain(chain_op)
            operator = operator_of(chain)
            with rewriter.replacing(chain_op) as new:
                built = create(operator_name(operator), chain, list(chain_op.operands), regions=HELD + 1)
                chain_op.regions[0].blocks[0].append_to(built.regions[0])
                for name, value in operator_attributes(operator, chain, op.context).items():
                    built.attributes[name] = value
                new.results(built)
            built.location = new.location
