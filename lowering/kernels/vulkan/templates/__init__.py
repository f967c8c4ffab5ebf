"""Templates for Vulkan: each file registers one."""
