"""Operators of a compiled model: what each kernel of covan's computes, with the meaning of its integers told.

Behind `covan_mlir.fred`: a chain is a formula, an operator says what the formula is. Nothing here needs MLIR.
"""
