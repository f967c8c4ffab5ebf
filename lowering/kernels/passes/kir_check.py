"""``kir-check``: are kernels and operators one to one?"""

from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from covan_mlir.dialects.chain_holders import OPERATORS
from covan_mlir.dialects.kir_graph import frozen, operator_graph, result_types
from covan_mlir.dialects.prov_graph import functions
from covan_mlir.kir.graph import difference
from covan_mlir.lowering.kernels.called import calls
from covan_mlir.passes.framework.interface import PassFailure


@dataclass(frozen=True)
class KirCheck:
    """Fails where the graph of operators and calls of kernels is no longer the one that ``kir-freeze`` left; the module
    stays as it is. Functions that carry none are passed over.

    Before, and After, for nothing changes::

        func.func @main(...) attributes {kir.frozen = "..."} { %y = call @fred_linear_5x16(...) ... }
    """

    name: ClassVar[str] = "kir-check"
    op_name: ClassVar[str | None] = "builtin.module"

    def run(self, op: ir.Operation) -> None:
        call = calls(op)
        for function in functions(op):
            graph = frozen(function)
            if graph is None:
                continue
            now = operator_graph(
                function, lambda one: result_types(one) if one.name in OPERATORS or call(one) else None
            )
            if said := difference(graph, now):
                raise PassFailure(f"kernels and operators are not one to one: {said}", function.location)
