"""What leaves our dialects: torch to linalg, the IREE phases, and the worker process in which both run.

The caller's side is `covan_mlir.lowering.pool`; everything else here runs in the worker and imports no torch.
"""
