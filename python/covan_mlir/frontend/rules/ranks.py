"""Operations that torch defines for fewer axes than torch-mlir lowers them for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

from covan_mlir.frontend.rules.registry import Rule

aten = torch.ops.aten

ALONG_AN_AXIS: tuple[OpOverload, ...] = (
    aten._softmax.default,
    aten._log_softmax.default,
    aten.logsumexp.default,
    aten.max.dim,
    aten.min.dim,
    aten.amax.default,
    aten.all.dim,
    aten.any.dim,
    aten.linalg_vector_norm.default,
    aten.amin.default,
    aten.argmax.default,
    aten.argmin.default,
    aten.prod.dim_int,
    aten.cumsum.default,
    aten.sort.default,
    aten.topk.default,
    aten.gather.default,
    aten.scatter.src,
    aten.scatter.value,
    aten.scatter_add.default,
    aten.scatter_reduce.two,
    aten.index_select.default,
    aten.index_add.default,
    aten.index_copy.default,
    aten.index_fill.int_Scalar,
    aten.aminmax.default,
    aten.roll.default,
    aten.flip.default,
    aten.nonzero.default,
)
"""A tensor without axes counts as one with a single element along its axis 0."""

POOLING: dict[OpOverload, int] = {
    aten.max_pool2d.default: 2,
    aten.max_pool2d_with_indices.default: 2,
    aten.adaptive_max_pool2d.default: 2,
    aten.max_pool3d.default: 3,
    aten.max_pool3d_with_indices.default: 3,
    aten.adaptive_max_pool3d.default: 3,
    aten.avg_pool2d.default: 2,
    aten.avg_pool3d.default: 3,
}
"""Number of spatial axes; the batch axis may be missing."""


def with_an_axis(op: OpOverload, otherwise: Rule | None) -> Rule:
    """A rule for ``op`` that gives tensors without axes one, and goes on with ``otherwise``."""

    def decomposition(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        if x.dim() != 0:
            return otherwise(x, *args, **kwargs) if otherwise else NotImplemented
        shape = args[1].shape if op is aten.gather.default else ()  # as many elements as there are indices
        args, kwargs = torch.utils._pytree.tree_map_only(
            Tensor, lambda t: t.reshape(1) if t.dim() == 0 else t, (args, kwargs)
        )
        result = op(x.reshape(1), *args, **kwargs)
        if op is aten.nonzero.default:
            return result[:, :0]
        return torch.utils._pytree.tree_map_only(Tensor, lambda t: t.reshape(shape), result)

    return decomposition


def with_a_batch(op: OpOverload, axes: int, otherwise: Rule | None) -> Rule:
    """A rule for ``op`` that adds the batch axis where it is missing, and goes on with ``otherwise``."""

    def decomposition(x: Tensor, *args: Any, **kwargs: Any) -> Any:
        if x.dim() != axes + 1:
            return otherwise(x, *args, **kwargs) if otherwise else NotImplemented
        result = op(x.unsqueeze(0), *args, **kwargs)
        return torch.utils._pytree.tree_map_only(Tensor, lambda t: t.squeeze(0), result)

    return decomposition
