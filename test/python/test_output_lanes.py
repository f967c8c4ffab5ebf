"""Lanes along the output channels of a weight, for images of few positions, against float64 and torch."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from dense_chains import MACHINE, arrays_of, check, convolution, f
from plain_chains import Writer
from torch import Tensor, nn

import covan_mlir
from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.registry import templates


def weighted(chain: Chain, name: str = "f") -> Chain:
    inputs = tuple(dataclasses.replace(value, weight=value.name == name) for value in chain.inputs)
    return dataclasses.replace(chain, inputs=inputs)


def pointwise(deep: int, wide: int, positions: int, dtype: str = "f32", *, batch: int = 0) -> Chain:
    """``relu(sum of x * f + bias) + residual``, of images whose positions are one axis."""
    lead = "n" if batch else ""
    w = Writer(dtype, c=deep, k=wide, p=positions, **({"n": batch} if batch else {}))
    x, weight = w.input("x", f"{lead}cp"), w.input("f", "kc")
    bias, residual = w.input("bias", "k"), w.input("residual", f"{lead}kp")
    w.reduce("s", f"{lead}kp", "add", "c", f("arith.mulf", weight, x))
    relu = f("arith.maximumf", f("arith.addf", w.read("s"), bias), w.number(0.0))
    w.map("y", f"{lead}kp", f("arith.addf", relu, residual))
    return w.chain("y")


def patches(size: int, count: int, deep: int, wide: int) -> Chain:
    """Parts of an image that do not overlap, as a transformer reads it: two axes of positions."""
    w = Writer(c=deep, k=wide, h=count, w=count, r=size, s=size)
    x, weight = w.input("x", "chrws"), w.input("f", "kcrs")
    w.reduce("t", "khw", "add", "crs", f("arith.mulf", weight, x))
    w.map("y", "khw", f("arith.addf", w.read("t"), w.input("bias", "k")))
    return w.chain("y")


def test_products_and_convolutions() -> None:
    chains = {
        "blocks": pointwise(2100, 32, 49),  # summed in blocks
        "whole": pointwise(40, 96, 17),
        "batched": pointwise(64, 48, 5, batch=3),  # fewer positions than lanes
        "ragged": pointwise(33, 95, 49),  # the last vector of channels in part
        "wide": pointwise(24, 128, 256),
        "double": pointwise(70, 48, 49, "f64"),
        "parts": patches(6, 5, 3, 64),
        "same": convolution(40, 48, (3, 3), (7, 7)),
        "deep": convolution(300, 32, (3, 3), (7, 7)),
        "strided": convolution(24, 32, (3, 3), (13, 10), stride=2),
        "patches": convolution(33, 32, (2, 2), (14, 14), stride=2, pad=0),
        "dilated": convolution(24, 32, (3, 3), (9, 9), dilation=2, pad=2),
        "grouped": convolution(24, 64, (3, 3), (8, 8), groups=2),
        "images": convolution(16, 32, (3, 3), (5, 6), batch=2),
        "line": convolution(24, 32, (5,), (40,), pad=2),
        "rolled": convolution(8, 32, (5, 5), (9, 9), stride=2, pad=2),  # rows of the filter are looped over
        "unrolled": convolution(8, 32, (5, 5), (12, 12), stride=2, dilation=2, pad=4),
        "double_window": convolution(20, 16, (3, 3), (6, 7), dtype="f64"),
    }
    cases = {name: (weighted(chain), arrays_of(chain, 7), 2700) for name, chain in chains.items()}
    check(cases, "output_lanes", fastest=False)


REFUSED = {
    "no weight": (convolution(40, 48, (3, 3), (7, 7)), "is no weight that can be packed"),
    "much padding": (weighted(convolution(40, 17, (3, 3), (7, 7))), "no panel of it is without padding"),
    "large": (weighted(convolution(8, 16, (3, 3), (17, 17))), "more than 256 positions"),
    "halves": (weighted(convolution(40, 48, (3, 3), (7, 7), dtype="bf16")), "halves are"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    chain, reason = REFUSED[name]
    (template,) = (one for one in templates("cpu", "windows") if one.name == "output_lanes")
    try:
        refusal = template.match(chain, CpuTarget(MACHINE))
    except UnsupportedError as error:
        refusal = Refusal(str(error))
    assert isinstance(refusal, Refusal)
    assert reason in refusal.reason


class Stage(nn.Module):
    """The last stage of a network: a strided convolution, a residual block, and a pointwise layer."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(64, 128, 3, stride=2, padding=1)
        self.same = nn.Conv2d(128, 128, (1, 5), padding=(0, 2))
        self.norm = nn.BatchNorm2d(128)
        self.head = nn.Conv2d(128, 96, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.down(x))
        result: Tensor = self.head(torch.relu(self.norm(self.same(x)) + x))
        return result


def test_programs_agree_and_hold() -> None:
    torch.manual_seed(0)
    model, x = Stage().eval(), torch.randn(2, 64, 11, 11)
    exe = covan_mlir.compile_module(model, (x,))
    with torch.no_grad():
        want = model.double()(x.double())
    torch.testing.assert_close(exe(x), want.float(), rtol=1e-5, atol=1e-5)
    assert any(fusion.schedule.get("packed") for fusion in exe.lineage.fusions)
    verdict = exe.verify()
    assert verdict, str(verdict)
