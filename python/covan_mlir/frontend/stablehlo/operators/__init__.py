"""What each StableHLO operation is in torch's operations: one file for operations of a kind."""

from covan_mlir.frontend.stablehlo.operators import (
    control,
    convolutions,
    elementwise,
    gathers,
    linear_algebra,
    products,
    reductions,
    scatters,
    shapes,
    slices,
    sorting,
    special,
    windows,
)

__all__ = [
    "control",
    "convolutions",
    "elementwise",
    "gathers",
    "linear_algebra",
    "products",
    "reductions",
    "scatters",
    "shapes",
    "slices",
    "sorting",
    "special",
    "windows",
]
