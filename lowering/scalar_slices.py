"""Slices of one element that lost all their axes, where what reads them has more axes than what was sliced.

IREE moves the new axes before the slice. Of a slice that has none left it makes one of more axes than what it is cut
from, which its own verifier refuses. Such a slice keeps its axes, and loses them behind::

    %s = tensor.extract_slice %x[1] [1] [1]                 %1 = tensor.extract_slice %x[1] [1] [1]
           : tensor<7xf32> to tensor<f32>            =>            : tensor<7xf32> to tensor<1xf32>
    %e = tensor.expand_shape %s [] output_shape [1, 1]      %s = tensor.collapse_shape %1 []
                                                            %e = tensor.expand_shape %s [] output_shape [1, 1]
"""

from __future__ import annotations

from typing import Any

import iree.compiler.ir as ir
from iree.compiler.dialects import tensor

from covan_mlir.lowering import marks
from covan_mlir.lowering.pipeline import PipelineState


def keep_axes(state: PipelineState) -> None:
    """The step, before IREE forms dispatches, that has such slices keep their axes."""
    with state.session.context:
        for op in marks.walk(state.module.operation, "tensor.extract_slice"):
            cut = op.opview
            if cut.result.type.rank == 0 and _gets_more(cut):
                _keep(cut)


def _gets_more(cut: Any) -> bool:
    """Whether a slice's element gets more axes than it was cut from."""
    readers = (use.owner for use in cut.result.uses)
    return any(
        reader.name == "tensor.expand_shape" and reader.results[0].type.rank > cut.source.type.rank
        for reader in readers
    )


def _keep(cut: Any) -> None:
    kind = cut.result.type
    ones = [1] * cut.source.type.rank
    with ir.InsertionPoint(cut), cut.location:
        whole = tensor.ExtractSliceOp(
            ir.RankedTensorType.get(ones, kind.element_type),
            cut.source,
            cut.offsets,
            cut.sizes,
            cut.strides,
            cut.static_offsets,
            cut.static_sizes,
            cut.static_strides,
        )
        bare = tensor.CollapseShapeOp(kind, whole.result, [])
    cut.result.replace_all_uses_with(bare.result)
    cut.erase()
