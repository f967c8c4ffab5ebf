"""Functions and matrix products of CUDA kernels: what they call, and that it is there.

What comes from libdevice has no interpreter: there its meaning is torch's, and that the right function is called is
what is shown; that NVIDIA's is linked is told from the PTX.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from fred_chains import Floats, attention
from test_cuda_kernels import interpreted, source, tiles
from torch import Tensor

from covan_mlir.fred.chain import Axis, Chain, Input
from covan_mlir.fred.expression import Apply
from covan_mlir.lowering.kernels.cuda.compile import assemble, available, compile_kernel
from covan_mlir.lowering.kernels.cuda.device import DEVICES

pytestmark = pytest.mark.skipif(not available(), reason="Triton is not installed (pip install covan-mlir[cuda])")

AMPERE = DEVICES["sm_80"]
LIBRARY: dict[str, Callable[[Tensor], Tensor]] = {
    "log1p": torch.log1p,
    "expm1": torch.expm1,
    "tan": torch.tan,
    "atan": torch.atan,
    "powf": lambda x: x**2.5,
    "erfc": torch.special.erfc,
}
OWN: dict[str, Callable[[Tensor], Tensor]] = {
    "erf": torch.erf,
    "tanh": torch.tanh,
    "exp2": torch.exp2,
    "log2": torch.log2,
    "rsqrt": torch.rsqrt,
    "sin": torch.sin,
    "floor": torch.floor,
}


def chain_of(op: str, dtype: str = "f32") -> Chain:
    """The largest value of a function in a row."""
    f = Floats(dtype)
    expr = Apply("math.powf", (f.x, f.c(2.5)), dtype) if op == "powf" else f.op(op, f.x)
    steps = (f.reduce("y", "i", "j", "max", expr),)
    return Chain((Axis("i", 3), Axis("j", 8)), (Input("x", ("i", "j"), dtype),), steps, ("y",))


def test_functions_agree_with_torch(tmp_path: Path) -> None:
    x = torch.rand(3, 8, generator=torch.Generator().manual_seed(0)) + torch.tensor([1e-4, 0.3, 2.0])[:, None]
    both = {**LIBRARY, **OWN}
    cases = [(source(chain_of(op), AMPERE), [x], both[op]) for op in both]
    for (op, function), got in zip(both.items(), interpreted(tmp_path, cases), strict=True):
        exact = function(x.double()).amax(-1)
        assert ((got.double() - exact).abs() <= 8 * exact.abs() * 2**-24).all(), op


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_all_functions_link(dtype: str) -> None:
    f = Floats(dtype)
    terms = [Apply("math.powf", (f.x, f.c(2.5)), dtype)]
    terms += [f.op(op, f.x) for op in (*LIBRARY, *OWN) if op != "powf"]
    total = terms[0]
    for term in terms[1:]:
        total = f.op("addf", total, term)
    steps = (f.reduce("y", "i", "j", "add", total),)
    chain = Chain((Axis("i", 3), Axis("j", 64)), (Input("x", ("i", "j"), dtype),), steps, ("y",))
    (binary,) = compile_kernel(source(chain, AMPERE))
    assert ".extern" not in binary.ptx  # all of libdevice is inlined
    assert "registers" in assemble(binary, AMPERE)


def products(precision: str, architecture: str = "sm_80") -> int:
    """Matrix instructions of attention in f32."""
    chain, device = attention(4, 128, 128, 64), DEVICES[architecture]
    assert tiles(chain, device).schedules()[0].precision == "tf32x3"
    (binary,) = compile_kernel(source(chain, device, precision=precision))
    assert "spill" in assemble(binary, device)
    return len(re.findall(r"mma\.sync\S*\.tf32\.tf32", binary.ptx))


def test_products_of_single_precision_are_three_of_tf32() -> None:
    # Of the high and the low parts of both factors, all but low times low (Ootomo and Yokota 2022).
    assert products("tf32x3") == 3 * products("tf32") > 0
    assert products("ieee") == 0
