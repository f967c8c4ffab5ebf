"""Targets by name: what the compilers need to know of a device, and what a device must offer for the result."""

from covan_mlir.lowering.targets.parse import parse, parse_all
from covan_mlir.lowering.targets.target import Target

__all__ = ["Target", "parse", "parse_all"]
