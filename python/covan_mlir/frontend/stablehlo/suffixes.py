"""Which files hold StableHLO: told by their names."""

STABLEHLO = (".mlir", ".mlirbc", ".stablehlo")
"""Modules: text, MLIR's bytecode, portable artifacts."""
JAX = ".jax"
"""What `jax.export` serialised."""
