"""Matrix products."""

from __future__ import annotations

import torch
from torch import Tensor

from covan_mlir.frontend.onnx.call import Call
from covan_mlir.frontend.onnx.registry import MICROSOFT, operator
from covan_mlir.frontend.translation import unsigned


@operator("MatMul")
def matmul(call: Call) -> Tensor:
    """As numpy's."""
    return unsigned.computed(torch.matmul, call.tensor(0), call.tensor(1))


@operator("Gemm")
def gemm(call: Call) -> Tensor:
    """A product of two matrices, scaled, and a scaled summand."""
    first, second, bias = call.tensor(0), call.tensor(1), call.optional(2)
    alpha, beta = call.real("alpha", 1.0), call.real("beta", 1.0)
    if alpha == beta == 1.0 and not call.integer("transA") and bias is not None and bias.dim() == 1:
        if call.integer("transB"):
            return torch.nn.functional.linear(first, second, bias)
        return torch.addmm(bias, first, second)
    first = first.T if call.integer("transA") else first
    second = second.T if call.integer("transB") else second
    if not first.dtype.is_floating_point:
        result = unsigned.computed(torch.matmul, first, second)
        result = result if alpha == 1.0 else (result * alpha).to(first.dtype)
        return result if bias is None else result + (bias if beta == 1.0 else (bias * beta).to(first.dtype))
    result = torch.mm(first, second)
    result = result if alpha == 1.0 else result * alpha
    return result if bias is None else result + (bias if beta == 1.0 else bias * beta)


@operator("FusedMatMul", domain=MICROSOFT, since=1)
def fused_matmul(call: Call) -> Tensor:
    """A product of which operands are transposed, scaled."""
    first, second = call.tensor(0), call.tensor(1)
    for name, turned in (("transBatchA", 0), ("transBatchB", 1)):
        if call.integer(name):
            tensor = (first, second)[turned].movedim(0, -2)
            first, second = (tensor, second) if turned == 0 else (first, tensor)
    first = first.transpose(-1, -2) if call.integer("transA") else first
    second = second.transpose(-1, -2) if call.integer("transB") else second
    alpha = call.real("alpha", 1.0)
    result = torch.matmul(first, second)
    return result if alpha == 1.0 else result * alpha


@operator("Det", since=11)
def determinant(call: Call) -> Tensor:
    """Of square matrices."""
    return torch.linalg.det(call.tensor(0))
