"""Models of quantised numbers, as torch's exporter writes them: the same steps as eager, and lineages that hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from dense_chains import MACHINE, assumed
from test_integer_products import runs
from torch import Tensor, nn
from torch.ao.quantization.fx import _decomposed  # noqa: F401 - declares the operators

import covan_mlir

ops = torch.ops.quantized_decomposed
U8, S8 = (0, 255, torch.uint8), (-128, 127, torch.int8)
SCALES, ZEROS = torch.tensor([0.013, 0.5, 0.07]), torch.tensor([3, -7, 0])


def tensors(x: Tensor) -> list[Tensor]:
    scale, zero = torch.tensor([0.0371], dtype=torch.float64), torch.tensor([11])
    steps = ops.quantize_per_tensor.tensor(x, scale, zero, *U8)
    between = torch.tensor(5), torch.tensor(99), torch.uint8
    others = ops.quantize_per_tensor.tensor2(x, scale, zero, *between)
    wide = ops.dequantize_per_tensor.tensor(steps, scale, zero, *U8)
    return [steps, others, wide, ops.dequantize_per_tensor.tensor2(others, scale, zero, *between)]


def numbers(x: Tensor) -> list[Tensor]:
    unsigned, signed = ops.quantize_per_tensor(x, 0.0117, 128, *U8), ops.quantize_per_tensor(x, 0.03, 0, *S8)
    halves = ops.dequantize_per_tensor(signed, 0.03, 0, *S8, out_dtype=torch.bfloat16)
    return [unsigned, signed, ops.dequantize_per_tensor(unsigned, 0.0117, 128, *U8), halves]


def channels(x: Tensor) -> list[Tensor]:
    steps = ops.quantize_per_channel(x, SCALES, ZEROS, 1, *S8)
    wide = ops.dequantize_per_channel(steps, SCALES, ZEROS, 1, *S8)
    return [steps, wide, ops.dequantize_per_channel(steps, SCALES, None, 1, *S8)]


def tokens(x: Tensor) -> list[Tensor]:
    scales, zeros = ops.choose_qparams_per_token(x, torch.int8)
    steps = ops.quantize_per_token(x, scales, zeros, *S8)
    return [steps, ops.dequantize_per_token(steps, scales, zeros, *S8, torch.float32)]


def groups(x: Tensor) -> list[Tensor]:
    rows = x.reshape(-1, 32)
    scales = (rows.reshape(-1, 16).abs().amax(1) / 7).reshape(-1, 2)
    zeros, bounds = torch.zeros_like(scales), (-8, 7, torch.int8, 16)
    steps = ops.quantize_per_channel_group(rows, scales, zeros, *bounds)
    return [steps, ops.dequantize_per_channel_group(steps, scales, zeros, *bounds, torch.float32)]


class Calls(nn.Module):
    def __init__(self, function: Callable[[Tensor], list[Tensor]]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> list[Tensor]:
        return self.function(x)


@pytest.mark.parametrize("function", [numbers, tensors, channels, tokens, groups])
def test_steps_are_those_of_eager(function: Callable[[Tensor], list[Tensor]]) -> None:
    """To the bit, far beyond both bounds and on borders between two steps, too."""
    torch.manual_seed(0)
    x = 2 * torch.randn(4, 3, 8, 16)
    x[0, 0, 0, :4] = torch.tensor([1e6, -1e6, 0.0117 * 1.5, -0.03 * 2.5])
    model = Calls(function)
    exe = covan_mlir.compile_module(model, (x,))
    for got, want in zip(exe(x), model(x), strict=True):
        assert got.dtype == want.dtype
        torch.testing.assert_close(got, want, rtol=0, atol=0)
    assert exe.verify(), str(exe.verify())


class Quantized(nn.Module):
    """A convolution and a product between steps, with weights that are steps, as PT2E's converter leaves them."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.randint(-128, 128, (16, 6, 3, 3), dtype=torch.int8))
        self.register_buffer("matrix", torch.randint(-128, 128, (10, 16), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(16) / 300)
        self.bias = nn.Parameter(torch.randn(16))

    def forward(self, x: Tensor) -> Tensor:
        x = ops.dequantize_per_tensor(ops.quantize_per_tensor(x, 0.03, 121, *U8), 0.03, 121, *U8)
        window = ops.dequantize_per_channel(self.window, self.scales, torch.zeros(16, dtype=torch.int64), 0, *S8)
        y = torch.relu(nn.functional.conv2d(x, window, self.bias, padding=1)).mean((2, 3))
        y = ops.dequantize_per_tensor(ops.quantize_per_tensor(y, 0.01, 0, *U8), 0.01, 0, *U8)
        matrix = ops.dequantize_per_tensor(self.matrix, 0.004, 0, *S8)
        return nn.functional.linear(y, matrix)


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that multiplies integers of 8 bits a word at a time."""
    assumed(dataclasses.replace(MACHINE, int8_words=("vpdpbusd",)), tmp_path, monkeypatch)


def test_a_quantised_model() -> None:
    torch.manual_seed(0)
    model, x = Quantized().eval(), torch.randn(2, 6, 14, 14)
    exe = covan_mlir.compile_module(model, (x,))
    # Another order of sums may take a mean across the border of a step.
    torch.testing.assert_close(exe(x), model(x), rtol=0, atol=0.01 * 0.004 * 128)
    assert exe.verify(), str(exe.verify())


class Layer(nn.Module):
    """Products of steps by weights of steps: with a sign or none, for each channel or the whole, and one that words do
    not divide."""

    def __init__(self) -> None:
        super().__init__()
        for name, shape in (("first", (96, 64)), ("second", (64, 96)), ("odd", (64, 30))):
            self.register_buffer(name, torch.randint(-128, 128, shape, dtype=torch.int8))
        self.register_buffer("scales", torch.rand(96) / 2000)
        self.bias = nn.Parameter(torch.randn(96))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        steps = ops.quantize_per_tensor(x, 0.03, 121, *U8)
        wide = ops.dequantize_per_tensor(steps, 0.03, 121, *U8)
        first = ops.dequantize_per_channel(self.first, self.scales, torch.zeros(96, dtype=torch.int64), 0, *S8)
        y = nn.functional.gelu(nn.functional.linear(wide, first, self.bias))
        y = ops.dequantize_per_tensor(ops.quantize_per_tensor(y, 0.02, 3, *S8), 0.02, 3, *S8)
        second = ops.dequantize_per_tensor(self.second, 0.004, 0, *S8)
        odd = ops.dequantize_per_tensor(self.odd, 0.004, 0, *S8)
        return nn.functional.linear(y, second) + x, nn.functional.linear(wide[..., :30], odd)


@runs
def test_layers_multiply_steps(words: None) -> None:
    """Their kernels read what is of 8 bits, and nothing but it is between them; the other product stays as it is."""
    torch.manual_seed(0)
    model, x = Layer().eval(), torch.randn(2, 17, 64)
    exe = covan_mlir.compile_module(model, (x,))
    templates = [record.template for record in exe.lineage.fusions if record.kernel]
    assert templates.count("integer_product") == 2
    # Sums are exact, and eager's are not: a step may be another one.
    step = 0.02 * 0.004 * 128
    for got, want in zip(exe(x), model(x), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=step)
    assert exe.verify(), str(exe.verify())


class Convolutions(nn.Module):
    """By single points, whose weights are the first factor of products, and by windows: padded with what stands for 0,
    with strides; one with an odd number of channels."""

    def __init__(self) -> None:
        super().__init__()
        for name, shape in (("points", (96, 64, 1, 1)), ("window", (24, 96, 3, 3)), ("odd", (8, 63, 3, 3))):
            self.register_buffer(name, torch.randint(-128, 128, shape, dtype=torch.int8))
        self.register_buffer("scales", torch.rand(96) / 2000)
        self.bias = nn.Parameter(torch.randn(96))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        few = ops.dequantize_per_tensor(ops.quantize_per_tensor(x[:, :63], 0.03, 121, *U8), 0.03, 121, *U8)
        x = ops.dequantize_per_tensor(ops.quantize_per_tensor(x, 0.03, 121, *U8), 0.03, 121, *U8)
        points = ops.dequantize_per_channel(self.points, self.scales, torch.zeros(96, dtype=torch.int64), 0, *S8)
        y = nn.functional.relu6(nn.functional.conv2d(x, points, self.bias))
        y = ops.dequantize_per_tensor(ops.quantize_per_tensor(y, 0.02, -5, *S8), 0.02, -5, *S8)
        window = ops.dequantize_per_tensor(self.window, 0.0004, 0, *S8)
        odd = ops.dequantize_per_tensor(self.odd, 0.0004, 0, *S8)
        return nn.functional.conv2d(y, window, padding=1, stride=2), nn.functional.conv2d(few, odd, padding=1)


@runs
def test_convolutions_multiply_steps(words: None) -> None:
    torch.manual_seed(0)
    model, x = Convolutions().eval(), torch.randn(2, 64, 9, 11)
    exe = covan_mlir.compile_module(model, (x,))
    templates = [record.template for record in exe.lineage.fusions if record.kernel]
    assert (templates.count("integer_product"), templates.count("word_convolution")) == (1, 2)
    for got, want in zip(exe(x), model(x), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=0.02 * 0.0004 * 128 * 2)
    assert exe.verify(), str(exe.verify())


class Groups(nn.Module):
    """A convolution of groups of channels, with a scale for each filter: of words, and of three channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.register_buffer("window", torch.randint(-128, 128, (32, channels // 4, 3, 3), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(32) / 300)
        self.bias = nn.Parameter(torch.randn(32))

    def forward(self, x: Tensor) -> Tensor:
        x = ops.dequantize_per_tensor(ops.quantize_per_tensor(x, 0.03, 121, *U8), 0.03, 121, *U8)
        window = ops.dequantize_per_channel(self.window, self.scales, torch.zeros(32, dtype=torch.int64), 0, *S8)
        y = torch.relu(nn.functional.conv2d(x, window, self.bias, padding=1, stride=2, groups=4))
        return ops.quantize_per_tensor(y, 0.1, 3, *U8)


@runs
@pytest.mark.parametrize("channels", [32, 12])
def test_groups_multiply_steps(channels: int, words: None) -> None:
    """Scales are taken apart as filters are."""
    torch.manual_seed(0)
    model, x = Groups(channels).eval(), torch.randn(2, channels, 15, 18)
    exe = covan_mlir.compile_module(model, (x,))
    assert [record.template for record in exe.lineage.fusions if record.kernel] == ["word_convolution"]
    got, want = exe(x).int(), model(x).int()
    assert (got - want).abs().max() <= 1
    assert (got != want).float().mean() < 0.01
    assert exe.verify(), str(exe.verify())


class Attention(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        return ops.quantize_per_tensor(y, 0.01, 117, *U8)


def test_attention_gives_steps() -> None:
    """In one kernel, which keeps them as floats until they are written."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 3, 40, 32) for _ in range(3))
    exe = covan_mlir.compile_module(Attention(), (q, k, v), options=covan_mlir.CompileOptions(fuse_reductions="always"))
    assert [record.template for record in exe.lineage.fusions if record.kernel] == ["many_rows"]
    got, want = exe(q, k, v).int(), Attention()(q, k, v).int()
    assert (got - want).abs().max() <= 1
    assert (got != want).float().mean() < 0.01
    assert exe.verify(), str(exe.verify())


class Bytes(nn.Module):
    """Integers of 8 bits without a sign, from memory and cut in the kernel, and cut ones with a sign."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean = x.float().mean(-1, keepdim=True)
        steps = (x.float() * 1.3).to(torch.int32).to(torch.int8).float()
        return mean, steps.amax(-1), (x.to(torch.int32) + 7).to(torch.uint8).float().sum(-1)


def test_bytes_keep_their_sign_in_kernels() -> None:
    x = torch.arange(0, 256, dtype=torch.uint8).repeat(3, 2)
    exe = covan_mlir.compile_module(Bytes(), (x,), options=covan_mlir.CompileOptions(fuse_reductions="always"))
    assert any(record.kernel for record in exe.lineage.fusions)
    for got, want in zip(exe(x), Bytes()(x), strict=True):
        torch.testing.assert_close(got, want)


class Pooled(nn.Module):
    """Steps of a sum, read from memory, and of their mean, as residual networks end."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        z = torch.relu(ops.dequantize_per_tensor(x, 0.03, 0, *U8) + y)
        z = ops.dequantize_per_tensor(ops.quantize_per_tensor(z, 0.04, 0, *U8), 0.04, 0, *U8)
        return ops.quantize_per_tensor(z.mean((2, 3)), 0.04, 0, *U8)


def test_means_of_steps() -> None:
    torch.manual_seed(0)
    x, y = torch.randint(0, 256, (1, 8, 7, 7), dtype=torch.uint8), torch.rand(1, 8, 7, 7)
    exe = covan_mlir.compile_module(Pooled(), (x, y), options=covan_mlir.CompileOptions(fuse_reductions="always"))
    assert (exe(x, y).int() - Pooled()(x, y).int()).abs().max() <= 1
    assert exe.verify(), str(exe.verify())
