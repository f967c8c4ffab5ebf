"""Decompositions that torch and torch-mlir do not have, or have wrong.

A rule is here because an operation gives wrong numbers, crashes, does not compile, multiplies zeros or computes at each
call what weights decide without it.
Operations that torch-mlir lowers well keep their lowering: a rule gives ``NotImplemented`` for all cases but those it
is for.
"""

from covan_mlir.frontend.rules import (
    arithmetic,
    bessel,
    chebyshev,
    comparisons,
    convolutions,
    distances,
    division,
    divisors,
    double,
    experts,
    fourier,
    gamma,
    halves,
    histograms,
    hyperbolic,
    indexing,
    jacobi,
    linear_algebra,
    losses,
    normalization,
    ordering,
    orthogonal,
    polynomials,
    pooling,
    resizing,
    sampling,
    segments,
    special,
    views,
)
from covan_mlir.frontend.rules.registry import RULES

__all__ = [
    "RULES",
    "arithmetic",
    "bessel",
    "chebyshev",
    "comparisons",
    "convolutions",
    "distances",
    "division",
    "divisors",
    "double",
    "experts",
    "fourier",
    "gamma",
    "halves",
    "histograms",
    "hyperbolic",
    "indexing",
    "jacobi",
    "linear_algebra",
    "losses",
    "normalization",
    "ordering",
    "orthogonal",
    "polynomials",
    "pooling",
    "resizing",
    "sampling",
    "segments",
    "special",
    "views",
]
