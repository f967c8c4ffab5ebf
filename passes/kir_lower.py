"""``kir-lower``: operators as the chains that they are, the inverse of ``kir-raise``."""

from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from covan_mlir.dialects.chain_holders import CHAIN, OPERATORS, holds_ops
from covan_mlir.dialects.fred_chain import chains, create, read_chain
from covan_mlir.passes.framework.place import visited
from covan_mlir.passes.framework.rewriter import Rewriter
from covan_mlir.passes.raising.left_over_ops import forget_numbers, lower_held, numbered_ops


@dataclass(frozen=True)
class KirLower:
    """Makes each operator a ``fred.chain``, which says what it computes and no longer what it is; of one that holds the
    ops which it was made of, these again, as they stood.

    Before::

        %y = "kir.linear"(%x, %w) ({...}) {first = {name = "x0", ...}, ...}

    After::

        %y = "fred.chain"(%x, %w) ({...}) {...}
    """

    name: ClassVar[str] = "kir-lower"
    op_name: ClassVar[str | None] = "func.func"

    def run(self, op: ir.Operation) -> None:
        operators = list(chains(op, *OPERATORS))
        rewriter = Rewriter(op) if operators else None
        around = numbered_ops(op) if operators else {}
        for operator in visited(operators):
            assert rewriter is not None
            if holds_ops(operator):
                lower_held(operator, rewriter, around)
                continue
            with rewriter.replacing(operator) as new:
                built = create(CHAIN, read_chain(operator), list(operator.operands), regions=1)
                operator.regions[0].blocks[0].append_to(built.regions[0])
                new.results(built)
        forget_numbers(around)
