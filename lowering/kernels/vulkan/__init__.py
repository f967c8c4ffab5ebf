"""Kernels of fused chains for Vulkan: the CPU's code generator, one lane wide, with an invocation for each row."""
