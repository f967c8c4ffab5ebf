"""Transposed convolutions as convolutions: the rule against torch's own, in float64."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn

from covan_mlir import compile_module
from covan_mlir.frontend.rules.convolutions import convolution


@dataclass(frozen=True)
class Axis:
    """One axis of an image: its size, that of the window, and how the window lies."""

    size: int
    window: int
    stride: int
    dilation: int
    padding: int
    extra: int


@st.composite
def axes(draw: st.DrawFn) -> Axis:
    window, stride, dilation = (draw(st.integers(1, most)) for most in (5, 4, 3))
    padding = draw(st.integers(0, dilation * (window - 1) + 1))
    extra = draw(st.integers(0, max(stride, dilation) - 1))
    size = draw(st.integers(1, 6))
    assume((size - 1) * stride - 2 * padding + dilation * (window - 1) + extra + 1 > 0)
    return Axis(size, window, stride, dilation, padding, extra)


@settings(max_examples=150, deadline=None)
@given(st.lists(axes(), min_size=1, max_size=3), st.integers(1, 3), st.booleans())
def test_against_torch(image: list[Axis], groups: int, biased: bool) -> None:
    x = torch.randn(2, 2 * groups, *(axis.size for axis in image), dtype=torch.float64)
    weight = torch.randn(2 * groups, 3, *(axis.window for axis in image), dtype=torch.float64)
    bias = torch.randn(3 * groups, dtype=torch.float64) if biased else None
    stride, padding = [axis.stride for axis in image], [axis.padding for axis in image]
    dilation, extra = [axis.dilation for axis in image], [axis.extra for axis in image]
    result = convolution(x, weight, bias, stride, padding, dilation, True, extra, groups)
    assume(result is not NotImplemented)  # without strides, or where as many products would be with zeros
    want = torch.ops.aten.convolution.default(x, weight, bias, stride, padding, dilation, True, extra, groups)
    torch.testing.assert_close(result, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "layer",
    [
        nn.ConvTranspose2d(6, 4, 2, stride=2),
        nn.ConvTranspose2d(6, 4, 3, stride=2, padding=1, output_padding=1, groups=2),
        nn.ConvTranspose1d(6, 4, 4, stride=3, padding=2),
    ],
    ids=lambda layer: f"{layer.kernel_size}",
)
def test_compiled(layer: nn.Module) -> None:
    """The same numbers, and a lineage that holds."""
    torch.manual_seed(0)
    x = torch.randn(2, 6, *((5, 7) if isinstance(layer, nn.ConvTranspose2d) else (9,)))
    compiled = compile_module(layer.eval(), (x,))
    torch.testing.assert_close(compiled(x), layer(x).detach(), rtol=1e-5, atol=1e-5)
    assert compiled.verify()


def test_length_known_at_run_time_only() -> None:
    layer = nn.ConvTranspose1d(3, 5, 5, stride=2, padding=1).eval()
    compiled = compile_module(layer, (torch.randn(1, 3, 10),), dynamic_shapes=({2: torch.export.Dim("n", min=4)},))
    x = torch.randn(1, 3, 33)
    torch.testing.assert_close(compiled(x), layer(x).detach(), rtol=1e-5, atol=1e-5)
