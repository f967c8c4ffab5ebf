"""Chains of reductions as vector code for CPUs, compiled by IREE inside ``hal.executable.source``."""
