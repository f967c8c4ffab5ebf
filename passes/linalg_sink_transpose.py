"""``linalg-sink-transpose``: what is done to each element of a window's results is done before they are transposed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch_mlir import ir
from torch_mlir.dialects import tensor

from covan_mlir.passes.framework.generics import in_place
from covan_mlir.passes.framework.index_values import dimension
from covan_mlir.passes.framework.place import visited
from covan_mlir.passes.framework.rewriter import Rewriter
from covan_mlir.passes.framework.views import RESHAPES, TRANSPOSE, laid_out
from covan_mlir.passes.raising.windows import affine_maps

_DEEPEST = 8


@dataclass(frozen=True)
class LinalgSinkTranspose:
    """Moves element-wise ops before the transpositions and reshapes between a convolution or pooling and all they read.

    Kernels for windows give their results in the order of axes of what the window slides over: an activation behind a
    transposition would be a loop of its own, which reads across memory. A transposition alone is one that whoever
    reads it may read through.

    Before::

        %0 = linalg.conv_1d_ncw_fcw ins(%x, %w) ...
        %1 = linalg.transpose ins(%0 : tensor<1x8x16xf32>) ... permutation = [0, 2, 1]
        %2 = linalg.generic ins(%1 : tensor<1x16x8xf32>) ... { math.tanh }

    After::

        %0 = linalg.conv_1d_ncw_fcw ins(%x, %w) ...
        %1 = linalg.generic ins(%0 : tensor<1x8x16xf32>) ... { math.tanh }
        %2 = linalg.transpose ins(%1 : tensor<1x8x16xf32>) ... permutation = [0, 2, 1]

    What is behind the op lays out its result, and has its trace. Several tensors must have come the same way: ``y`` and
    ``sigmoid(y)`` of ``y * sigmoid(y)``.
    """

    name: ClassVar[str] = "linalg-sink-transpose"
    op_name: ClassVar[str | None] = "func.func"

    def run(self, op: ir.Operation) -> None:
        rewriter: Rewriter | None = None
        for generic in visited([view for block in op.regions[0] for view in block]):
            if not _element_wise(generic):
                continue
            paths = [_views(value) for value in _tensors(generic)]
            if _alike(paths) and _of_windows(paths[0][0].operands[0]):
                rewriter = rewriter or Rewriter(op)
                _sink(generic, paths, rewriter)


def _tensors(generic: ir.Operation) -> list[Any]:
    """What an element-wise op reads: all but the memory that it writes into."""
    return list(generic.operands)[: -len(generic.results)]


def _element_wise(op: ir.Operation) -> bool:
    """Whether an op computes each element of its result from those of tensors in the same place, and they are alone."""
    if len(op.results) != 1 or len(op.operands) < 2 or not in_place(op):
        return False
    block = op.regions[0].blocks[0]
    inside = [view.operation for view in block]
    kept = block.arguments[len(block.arguments) - 1]
    return (
        len(inside) > 1  # a copy is one op, which ends the body
        and not any(True for _ in kept.uses)
        and all(inner.name != "linalg.index" and not len(inner.regions) for inner in inside)
    )


def _views(value: Any) -> list[ir.Operation]:
    """The reshapes and transpositions that lead to a value, the first one first, of which nobody needs what they give
    in that order; none where there is no transposition among them."""
    views: list[ir.Operation] = []
    while not isinstance(value.owner, ir.Block):
        op = value.owner.operation
        if op.name not in RESHAPES and op.name != TRANSPOSE:
            break
        readers = [use.owner.operation for use in value.uses]
        if any(reader not in views[:1] for reader in readers) and (views or not all(map(_element_wise, readers))):
            break
        views.insert(0, op)
        value = op.operands[0]
    return views if any(op.name == TRANSPOSE for op in views) else []


def _alike(paths: Sequence[Sequence[ir.Operation]]) -> bool:
    """Whether tensors come the same way from tensors of the same shape."""
    ways = {tuple(_way(view) for view in path) for path in paths}
    return len(ways) == 1 and ways != {()}


def _way(view: ir.Operation) -> tuple[Any, ...]:
    """What a view does with its first operand, and to which sizes."""
    source, result = view.operands[0].type, view.results[0].type
    attributes = tuple(sorted((name, str(view.attributes[name])) for name in view.attributes))
    sizes = () if view.name == TRANSPOSE else tuple(view.operands)[1:]
    return view.name, attributes, tuple(source.shape), tuple(result.shape), sizes


def _of_windows(value: Any, depth: int = 0) -> bool:
    """Whether a value is the result of a convolution or pooling, perhaps with element-wise ops behind it."""
    if isinstance(value.owner, ir.Block) or depth > _DEEPEST:
        return False
    op = value.owner.operation
    maps = affine_maps(op) if op.name.startswith("linalg.") else None
    if maps is None:
        return False
    if any(position.axis is None for positions in maps[: -len(op.results)] for position in positions):
        return True
    whole = [operand for operand in _tensors(op) if operand.type == value.type]
    return op.name == "linalg.generic" and any(_of_windows(operand, depth + 1) for operand in whole)


def _sink(generic: ir.Operation, paths: Sequence[Sequence[ir.Operation]], rewriter: Rewriter) -> None:
    given = [path[0].operands[0] for path in paths]
    rank = given[0].type.rank
    element = generic.results[0].type.element_type
    gone, left = _read_by_it_alone(generic, paths)
    with (
        rewriter.replacing(*gone, generic, copies=left, reason="how it read is how it is read") as new,
        new.only(generic),
    ):
        sizes = [dimension(given[0], k) for k in range(rank)]
        empty = tensor.EmptyOp(sizes, element).result
        identity = ir.AffineMapAttr.get(ir.AffineMap.get_identity(rank))
        parallel = ir.Attribute.parse("#linalg.iterator_type<parallel>")
        early = ir.Operation.create(
            generic.name,
            results=[empty.type],
            operands=[*given, empty],
            attributes={
                "indexing_maps": ir.ArrayAttr.get([identity] * (len(given) + 1)),
                "iterator_types": ir.ArrayAttr.get([parallel] * rank),
                "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(given), 1]),
            },
            regions=1,
        )
        generic.regions[0].blocks[0].append_to(early.regions[0])
        new.results(laid_out(early.results[0], paths[0]))


def _read_by_it_alone(
    generic: ir.Operation, paths: Sequence[Sequence[ir.Operation]]
) -> tuple[list[ir.Operation], list[ir.Operation]]:
    """-> (views that nobody else reads, the others), each once."""
    gone: list[ir.Operation] = []
    left: list[ir.Operation] = []
    for path in paths:
        alone = all(use.owner.operation == generic for use in path[-1].results[0].uses)
        (gone if alone else left).extend(view for view in path if view not in gone and view not in left)
    return gone, left
