"""What a module says of substitutions, as attributes: rules that may be applied, and what was done."""

RULES = "covan.rules"
"""The text of a user's file of rules, each of which is proved, or assumed, already."""
ASSUMED = "covan.assumed"
"""Some of them are assumed."""
SUBSTITUTED = "covan.substituted"
"""What was done, as JSON of `covan_mlir.provenance.substitution.SubstitutedGraph`."""
