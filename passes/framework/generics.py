"""Questions about ``linalg.generic``."""

from __future__ import annotations

from torch_mlir import ir


def in_place(op: ir.Operation) -> bool:
    """Whether an op is a ``linalg.generic`` that reads and writes all tensors in the same place."""
    if op.name != "linalg.generic":
        return False
    maps = [ir.AffineMapAttr(attribute).value for attribute in op.attributes["indexing_maps"]]
    return all(map_ == ir.AffineMap.get_identity(map_.n_dims) for map_ in maps)
