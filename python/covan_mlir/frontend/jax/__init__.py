"""JAX functions and exported ones, by way of StableHLO."""
