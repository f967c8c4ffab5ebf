"""StableHLO modules: what JAX exports, and files of others."""
