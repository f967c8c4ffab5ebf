"""The operations that hold a chain: their names, and what else they hold."""

from typing import Any

from covan_mlir.kir.operators import KINDS

CHAIN = "fred.chain"
OPERATORS = tuple(f"kir.{kind}" for kind in KINDS)
"""Chains of which is told what they are."""
CHAINS = (CHAIN, *OPERATORS)
OUTPUT = "fred.output"
HELD = 1
"""The region of an operator that holds the ops which it was made of, where it is no kernel."""


def holds_ops(op: Any) -> bool:
    """Whether an operation is an operator that holds the ops which it was made of: no kernel is written for it."""
    return op.name in OPERATORS and len(list(op.regions[HELD].blocks)) > 0
