"""Kernels of fused chains for Vulkan: the CPU's writers, one lane wide, with an invocation for each row.

Of the CPU's room it uses the builder that `Invocation` is one of, `contraction`, `schedule` and, to have code written,
`emission`.
"""
