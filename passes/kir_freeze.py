"""``kir-freeze``: from here on, nothing changes the graph of operators."""

from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from covan_mlir.dialects.chain_holders import OPERATORS
from covan_mlir.dialects.kir_graph import freeze, operator_graph, result_types


@dataclass(frozen=True)
class KirFreeze:
    """Has a function carry the graph of its operators along: who reads whose results, whatever views and copies are
    between. ``kir-check``, and the compiler after each of its later steps, compare kernels with it.

    Before::

        func.func @main(...) { %y = "kir.linear"(...) ... %z = "kir.kernel"(%y) ... }

    After::

        func.func @main(...) attributes {kir.frozen = "[{\\22label\\22:\\22tensor<5x16xi8>\\22, ...}, ...]"}
    """

    name: ClassVar[str] = "kir-freeze"
    op_name: ClassVar[str | None] = "func.func"

    def run(self, op: ir.Operation) -> None:
        freeze(op, operator_graph(op, lambda one: result_types(one) if one.name in OPERATORS else None))
