"""Templates for CPUs: each file registers one."""
