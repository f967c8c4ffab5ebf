"""Everything that writes, chooses and measures kernels."""
