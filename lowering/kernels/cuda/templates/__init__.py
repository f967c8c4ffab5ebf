"""Templates for CUDA: each file registers one."""
