"""Special functions: operations of CHLO, as such or as composites that stand for them."""

from __future__ import annotations

import torch
from torch import Tensor

from covan_mlir.frontend.stablehlo.call import Call
from covan_mlir.frontend.stablehlo.operators.elementwise import unary
from covan_mlir.frontend.stablehlo.registry import operation, table

table(
    [
        ("chlo.erf", unary(torch.erf)),
        ("chlo.erfc", unary(torch.erfc)),
        ("chlo.erf_inv", unary(torch.erfinv)),
        ("chlo.lgamma", unary(torch.lgamma)),
        ("chlo.digamma", unary(torch.digamma)),
        ("chlo.bessel_i1e", unary(torch.special.i1e)),
        ("chlo.sinh", unary(torch.sinh)),
        ("chlo.cosh", unary(torch.cosh)),
        ("chlo.tan", unary(torch.tan)),
        ("chlo.asin", unary(torch.asin)),
        ("chlo.acos", unary(torch.acos)),
        ("chlo.atan", unary(torch.atan)),
        ("chlo.asinh", unary(torch.asinh)),
        ("chlo.acosh", unary(torch.acosh)),
        ("chlo.atanh", unary(torch.atanh)),
        ("chlo.square", unary(torch.square)),
        ("chlo.conj", lambda call: torch.conj_physical(call.tensor(0))),
        ("chlo.is_inf", unary(torch.isinf)),
        ("chlo.is_neg_inf", unary(torch.isneginf)),
        ("chlo.is_pos_inf", unary(torch.isposinf)),
        ("chlo.next_after", lambda call: torch.nextafter(*call.tensors())),
        ("chlo.zeta", lambda call: torch.special.zeta(*call.tensors())),
    ]
)


@operation("chlo.top_k")
def top_k(call: Call) -> tuple[Tensor, Tensor]:
    """The largest elements of rows and their places, largest first."""
    settings = call.attribute("composite_attributes", {})
    count = int(call.attribute("k", settings.get("k", 0)))
    values, places = torch.topk(call.tensor(0), count, dim=-1, sorted=True)
    return values, places.to(call.dtype(1))
