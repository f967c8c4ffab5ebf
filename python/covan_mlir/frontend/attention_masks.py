"""Masks of `nn.Transformer` are not looked at while it is exported.

Its layers ask whether a mask is the causal one, of which attention has a way of its own: the same numbers, computed
faster. torch.export follows no question about the elements of a tensor, and the answer changes no result.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from torch import Tensor
from torch.nn.modules import transformer


@contextmanager
def not_looked_at() -> Iterator[None]:
    """While active, a mask is causal only if the model says so (``is_causal=True``)."""
    with patch.object(transformer, "_detect_is_causal_mask", _said_to_be_causal):
        yield


def _said_to_be_causal(mask: Tensor | None, is_causal: bool | None = None, size: int | None = None) -> bool:
    return is_causal is True
