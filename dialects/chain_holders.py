"""Names of the operations that hold a chain."""

CHAIN = "fred.chain"
OPERATORS = ("kir.linear", "kir.matmul", "kir.convolution", "kir.kernel")
"""Chains of which is told what they are."""
CHAINS = (CHAIN, *OPERATORS)
