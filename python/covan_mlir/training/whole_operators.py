"""Operators that are differentiated as a whole, by an operator of torch's own for it, where torch would take them apart
before: resizing as gathers, whose gradient is a scatter, and not the sums that it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch._C import DispatchKey
from torch._ops import OpOverload

_PREFIXES = ("upsample_", "_upsample_")
_AUTOGRAD, _COMPOSITE = DispatchKey.Autograd, DispatchKey.CompositeImplicitAutograd


@contextmanager
def differentiated_whole() -> Iterator[None]:
    """While active, resizing has its own derivatives: Python kernels that take it apart are put aside."""
    aside = []
    for op in _resizing():
        keys = (_AUTOGRAD, _COMPOSITE) if op._overloadname == "vec" else (_AUTOGRAD,)
        for key in keys:
            if (kernel := op.py_kernels.pop(key, None)) is not None:
                aside.append((op, key, kernel))
        op._dispatch_cache.clear()
    try:
        yield
    finally:
        for op, key, kernel in aside:
            op.py_kernels[key] = kernel
        for op in _resizing():
            op._dispatch_cache.clear()


def _resizing() -> Iterator[OpOverload]:
    for name in dir(torch.ops.aten):
        if name.startswith(_PREFIXES):
            packet = getattr(torch.ops.aten, name)
            yield from (getattr(packet, overload) for overload in packet.overloads())
