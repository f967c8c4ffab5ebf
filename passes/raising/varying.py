"""What a program computes anew at every call."""

from __future__ import annotations

from collections.abc import Sequence, Set

from torch_mlir import ir

from covan_mlir.dialects.arguments import ArgumentFacts


def varying(block: ir.Block, arguments: Sequence[ArgumentFacts]) -> Set[ir.Value]:
    """The values of a function that an argument decides on which is no weight.

    IREE computes all others once: while it compiles, or as the program is loaded.
    """
    values = {value for value, facts in zip(block.arguments, arguments, strict=True) if not facts.weight}

    def visit(op: ir.Operation) -> bool:
        """Whether an operation reads one, itself or in what is in it."""
        reads = any(operand in values for operand in op.operands)
        for region in op.regions:
            for inner in region:
                if reads:
                    values.update(inner.arguments)
                for nested in inner:
                    reads |= visit(nested.operation)
        if reads:
            values.update(op.results)
        return reads

    for view in block:
        visit(view.operation)
    return values
