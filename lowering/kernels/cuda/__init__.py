"""Kernels of fused chains for NVIDIA GPUs: generated Triton source, compiled ahead of time to PTX."""
