"""What kernels of fused reductions share on every target."""
