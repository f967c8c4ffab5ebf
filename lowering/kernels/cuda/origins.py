"""Which step of a chain as it was given an expression belongs to; fusing writes steps into each other."""

from __future__ import annotations

from covan_mlir.fred.chain import Chain, Map
from covan_mlir.fred.expression import Apply, Expr, Read, rebuild, walk
from covan_mlir.lowering.kernels.reductions.hoist import Scope


def momentless(expr: Expr) -> Expr:
    """The expression with statistics read without a moment."""
    return rebuild(
        expr, lambda n: Read(n.name.partition(".")[0], n.dtype) if isinstance(n, Read) and "." in n.name else n
    )


def origins(chain: Chain) -> dict[Expr, str]:
    """The first map of a chain that computes each expression, its own operands written out."""
    first_maps: dict[Expr, str] = {}
    scope = Scope(chain, {})
    for step in chain.steps:
        if isinstance(step, Map):
            for node in walk(scope.inlined(step.expr)):
                if isinstance(node, Apply):
                    first_maps.setdefault(momentless(node), step.name)
    return first_maps
