"""Dropout outside of training, with its mask: torch-mlir's own lowering keeps no values of it apart."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from covan_mlir.frontend.rules.registry import rule


@rule(torch.ops.aten.native_dropout.default)
def native_dropout(x: Tensor, p: float, train: bool | None) -> Any:
    if train is not False:
        return NotImplemented
    return x.clone(), torch.ones_like(x, dtype=torch.bool)
