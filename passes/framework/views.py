"""Ops that lay out a tensor anew, and compute nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import linalg, tensor

from covan_mlir.passes.framework.index_values import dimension

RESHAPES = frozenset({"tensor.collapse_shape", "tensor.expand_shape", "tensor.cast"})
TRANSPOSE = "linalg.transpose"


def laid_out(value: Any, views: Sequence[ir.Operation]) -> Any:
    """A value through the same views as another one of its shape, perhaps of another type."""
    for view in views:
        shape, element = view.results[0].type.shape, value.type.element_type
        kind = ir.RankedTensorType.get(list(shape), element)
        if view.name == TRANSPOSE:
            order = list(view.attributes["permutation"])
            sizes = [dimension(value, k) for k in order]
            empty = tensor.EmptyOp(sizes, element).result
            value = linalg.transpose(value, outs=[empty], permutation=order).results[0]
            continue
        attributes = {name: view.attributes[name] for name in view.attributes}
        operands = [value, *list(view.operands)[1:]]
        value = ir.Operation.create(view.name, results=[kind], operands=operands, attributes=attributes).results[0]
    return value
