"""Which range of a tensor's values its steps cover. Needs torchao."""

from __future__ import annotations

from typing import Any

import torch
from torchao.quantization.pt2e import HistogramObserver, MinMaxObserver

from covan_mlir.quantizing.scheme import ObserverKind

_TAIL = 1e-4
"""Of the values, how many steps may leave out at each end."""


class PercentileObserver(HistogramObserver):  # type: ignore[misc]  # torchao is untyped
    """All values but the outermost at each end, of a histogram of what was observed."""

    def calculate_qparams(self) -> Any:
        """Scale and zero point, tensors of one element each."""
        total = self.histogram.sum()
        if not bool(total > 0) or bool(self.min_val == self.max_val):
            return self._calculate_qparams(self.min_val, self.max_val)
        below = torch.cumsum(self.histogram, 0) / total
        first = int((below <= _TAIL).sum())
        last = int((below < 1.0 - _TAIL).sum())
        width = (self.max_val - self.min_val) / self.bins
        return self._calculate_qparams(self.min_val + width * first, self.min_val + width * (last + 1))


OBSERVERS: dict[ObserverKind, type] = {
    "minmax": MinMaxObserver,
    "percentile": PercentileObserver,
    "mse": HistogramObserver,  # the range of the least square error
}
