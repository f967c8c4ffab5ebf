"""Which operations of a program run kernels of covan's, in the words of each moment of a compilation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from covan_mlir.dialects.kir_graph import Label
from covan_mlir.lowering.kernels.declarations import KERNEL

_CALL, _DISPATCH = "func.call", "flow.dispatch"


def calls(module: Any) -> Label:
    """Names the kernel that a call in a module of either compiler is one of.

    Args:
        module: its operation; it declares the kernels.
    """
    views = [view.operation for view in module.regions[0].blocks[0]]
    declared = {_symbol(one) for one in views if KERNEL in one.attributes}

    def label(op: Any) -> str | None:
        if op.name != _CALL:
            return None
        name = str(op.attributes["callee"]).lstrip("@")
        return name if name in declared else None

    return label


def dispatches(last: Mapping[str, str]) -> Label:
    """Names the kernel whose results a dispatch gives.

    Args:
        last: of each kernel, by the symbol of the dispatch that does. Those before it leave partial results.
    """

    def label(op: Any) -> str | None:
        if op.name != _DISPATCH or "entry_points" not in op.attributes:
            return None
        return last.get(str(op.attributes["entry_points"][0]).rsplit("@", 1)[-1].strip('"'))

    return label


def _symbol(op: Any) -> str:
    return str(op.attributes["sym_name"]).strip('"')
