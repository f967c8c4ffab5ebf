"""Products of rows with the matrix of their expert: a grouped product, over rows that are sorted by expert."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from covan_mlir.frontend.rules.registry import foreign_rule, rule, wide

aten = torch.ops.aten


@rule(aten._grouped_mm.default)
def grouped_mm(
    x: Tensor,
    weight: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Any:
    """Of ``[rows, k]`` with ``[experts, k, n]``."""
    if offs is None or bias is not None or x.dim() != 2 or weight.dim() != 3:
        return NotImplemented
    return grouped(wide(x), wide(weight), offs).to(out_dtype or x.dtype)


@foreign_rule("transformers::grouped_mm_fallback")
def grouped(x: Tensor, weight: Tensor, offs: Tensor) -> Tensor:
    """``[rows, k]``, ``[experts, k, n]`` and where the rows of each expert end, to ``[rows, n]``; 0 behind the last.

    How many rows an expert has is known at run time only. Where there are fewer rows than experts each row reads its
    matrix; else each matrix is read once, and multiplied with all rows.
    """
    rows, experts = x.shape[0], weight.shape[0]
    expert = (torch.arange(rows).unsqueeze(1) >= offs).sum(1)
    known = (expert < experts).unsqueeze(1)
    chosen = expert.clamp(max=experts - 1)
    if isinstance(rows, int) and rows <= experts:
        products = torch.bmm(x.unsqueeze(1), weight.index_select(0, chosen)).squeeze(1)
    else:
        products = torch.bmm(x.unsqueeze(0).expand(experts, -1, -1), weight)[chosen, torch.arange(rows)]
    return torch.where(known, products, 0.0)
