"""What operators compute, on NumPy arrays: the meaning of their integers, to the bit.

Steps are read, multiplied, summed and given as the operator says; sums are exact. What an operator does with its
numbers besides is arithmetic in the element types that it says, of which each operation is rounded once. Of
transcendental functions (``math.erf``, ``math.exp``) kernels have approximations of their own, and a result near the
border between two steps may be the other one.
"""

from __future__ import annotations

from collections.abc import Mapping

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.scalars import Array
from covan_mlir.kir.evaluation import Overflow, run
from covan_mlir.kir.operators import Operator
from covan_mlir.kir.recognition import operator_of

__all__ = ["Overflow", "interpret"]


def interpret(chain: Chain, arrays: Mapping[str, Array], operator: Operator | None = None) -> dict[str, Array]:
    """The results of an operator, by name.

    Args:
        chain: the formula of the operator: where its values are, and what it does with its numbers.
        arrays: the inputs by name, each of the shape of its axes; steps as integers of 8 bits, with a sign or without.
        operator: what the chain is, if that is known.

    Raises:
        ChainError: an input is missing or has the wrong shape.
        Overflow: a sum does not fit the accumulator: machines would wrap it around, silently.
    """
    return run(chain, arrays, operator or operator_of(chain))
