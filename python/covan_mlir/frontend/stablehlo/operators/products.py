"""Products of matrices and of more axes."""

from __future__ import annotations

import torch
from torch import Tensor

from covan_mlir.frontend.stablehlo.call import Call
from covan_mlir.frontend.stablehlo.registry import operation
from covan_mlir.frontend.translation import unsigned


@operation("stablehlo.dot_general")
def dot_general(call: Call) -> Tensor:
    """Sums of products over axes that are contracted; results have axes of both, of the first, of the second."""
    numbers = call.attribute("dot_dimension_numbers")
    product = contracted(
        *_wide(call),
        numbers["lhs_batching_dimensions"],
        numbers["rhs_batching_dimensions"],
        numbers["lhs_contracting_dimensions"],
        numbers["rhs_contracting_dimensions"],
    )
    return unsigned.converted(product, call.dtype())


@operation("stablehlo.dot")
def dot(call: Call) -> Tensor:
    """Of vectors and matrices."""
    first, second = _wide(call)
    return unsigned.converted(torch.matmul(first, second), call.dtype())


def _wide(call: Call) -> tuple[Tensor, Tensor]:
    """Operands as the type that results have: products of narrower ones are exact in it."""
    dtype = call.dtype()
    wide = torch.int64 if dtype in unsigned.WIDER else torch.int32 if dtype is torch.bool else dtype
    first, second = (unsigned.signed(value) for value in call.tensors())
    return unsigned.converted(first, wide), unsigned.converted(second, wide)


def contracted(
    first: Tensor,
    second: Tensor,
    first_batch: list[int],
    second_batch: list[int],
    first_over: list[int],
    second_over: list[int],
) -> Tensor:
    """Sums of products; a product of matrices as such."""
    first_own = [axis for axis in range(first.dim()) if axis not in (*first_batch, *first_over)]
    second_own = [axis for axis in range(second.dim()) if axis not in (*second_batch, *second_over)]
    if len(first_over) == len(second_over) == 1 and len(second_own) == 1 and first_own:
        batch = len(first_batch)
        rows = len(first_own)
        left = first.permute([*first_batch, *first_own, *first_over])
        right = second.permute([*second_batch, *second_over, *second_own])
        if not batch or rows == 1:
            return torch.matmul(left, right)
        # Rows of several axes and a batch: one axis of rows.
        flat = left.reshape([*left.shape[:batch], -1, left.shape[-1]])
        return torch.matmul(flat, right).reshape([*left.shape[:-1], right.shape[-1]])
    letters = iter("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    names, others = [""] * first.dim(), [""] * second.dim()
    for one, other in zip([*first_batch, *first_over], [*second_batch, *second_over], strict=True):
        names[one] = others[other] = next(letters)
    for axis in first_own:
        names[axis] = next(letters)
    for axis in second_own:
        others[axis] = next(letters)
    result = [names[axis] for axis in (*first_batch, *first_own)] + [others[axis] for axis in second_own]
    return torch.einsum(f"{''.join(names)},{''.join(others)}->{''.join(result)}", first, second)
