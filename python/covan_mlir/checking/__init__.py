"""Verification: is a lineage true? See `covan_mlir.checking.verify`."""
