"""The theory of fused reductions: chains, the algebra of repairs, and their proofs. Needs no MLIR.

A reduction that depends on another one of the same loop has to wait for it. Fusing them breaks the dependence: the
second runs with a preliminary value of the first, and its partial result is repaired when that value changes. Which
repair that is follows from the expressions alone, and is proved before it is used.
"""
