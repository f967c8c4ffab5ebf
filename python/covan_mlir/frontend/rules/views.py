"""Views of tensors whose elements lie otherwise in memory than the exporter saw.

The exporter writes ``view`` where a tensor's strides allow one. Decompositions may give the same tensor with other
strides (attention, layer norm), of which a view cannot be made: there the elements are put in order first, which costs
nothing, since a compiled tensor has no strides.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._prims_common import infer_size
from torch._subclasses.fake_impls import _compute_stride

from covan_mlir.frontend.rules.registry import plain, rule

aten = torch.ops.aten


@rule(aten.view.default)
def view(x: Tensor, size: Any) -> Any:
    if x.is_contiguous() or _compute_stride(x.shape, x.stride(), infer_size(size, x.numel())) is not None:
        return NotImplemented
    return plain(aten.view.default, x.clone(memory_format=torch.contiguous_format), size)


@rule(aten.split_with_sizes.default)
def split_with_sizes(x: Tensor, sizes: list[Any], dim: int = 0) -> Any:
    """Sizes that the program computes: slices one behind the other. torch-mlir splits where sizes are known."""
    if all(isinstance(size, int) for size in sizes):
        return NotImplemented
    pieces, start = [], 0
    for size in sizes:
        pieces.append(torch.narrow(x, dim, start, size))
        start = start + size
    return pieces


@rule(aten.copy.default)
def copy(x: Tensor, source: Tensor, non_blocking: bool = False) -> Any:
    """What is written over something in another shape or type does not read what was there."""
    if x.shape == source.shape and x.dtype == source.dtype:
        return NotImplemented
    return source.to(x.dtype).expand(x.shape)
