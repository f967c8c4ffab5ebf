"""Depthwise convolutions of 8 bits, four columns of a window at a time: which are, and that they are exact."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from dense_chains import assumed
from hypothesis import given, settings
from hypothesis import strategies as st
from limits import many, part
from test_integer_products import HOST, runs
from test_word_convolutions import steps
from torch import Tensor, nn
from torch.ao.quantization.fx import _decomposed  # noqa: F401 - declares the operators

import covan_mlir
from covan_mlir.fred.chain import Chain
from covan_mlir.fred.interpret import interpret
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.kernel import Executable, Refusal
from covan_mlir.lowering.kernels.select import Selection, choices
from covan_mlir.lowering.kernels.standalone import Standalone
from covan_mlir.machine.description import PRESETS, Machine

ops = torch.ops.quantized_decomposed
SIGNED = "arith.extsi"
U8, S8 = (0, 255, torch.uint8), (-128, 127, torch.int8)


def depthwise(
    channels: int, window: tuple[int, ...], image: tuple[int, ...], filters: int = 1, **others: object
) -> Chain:
    """Each channel by so many filters of its own."""
    count = channels * filters
    return steps(channels, count, window, image, groups=channels, **others)  # type: ignore[arg-type] # its options


def kernels(chain: Chain, machine: Machine, count: int = many(2, 4)) -> list[Executable]:
    """The kernel that is predicted to be the best of those that multiply words, and some others."""
    listed = choices(chain, CpuTarget(machine))
    if isinstance(listed, Refusal):
        return []
    fit = [pair for pair in listed.schedules() if pair[0].template.name == "word_depthwise"]
    picked = [*fit[:1], *random.Random(0).sample(fit, min(count - 1, len(fit)))]
    written = [candidate.write(schedule, f"d{n}") for n, (candidate, schedule) in enumerate(picked)]
    return [selection.executable for selection in written if isinstance(selection, Selection)]


def check(chain: Chain, machine: Machine, count: int = many(2, 4)) -> None:
    """Kernels against integers, of all numbers and of the extreme ones."""
    written, generator = kernels(chain, machine, count), np.random.default_rng(5)
    assert written
    alone, known = Standalone(written), chain.known_sizes
    for numbers in (np.arange(-128, 128), np.array([-128, 127])):
        arrays = {
            value.name: generator.choice(numbers, [known[axis] for axis in value.axes]).astype(np.int8)
            for value in chain.inputs
        }
        want = interpret(chain, arrays)["y"]
        for one in written:
            assert "vpdpbusd" in one.text
            got = np.asarray(alone[one.name](*(alone.buffer(a) for a in arrays.values())).to_host())
            np.testing.assert_array_equal(got, want)


CASES = {
    "same": depthwise(5, (3, 3), (13, 35), zero=7),
    "signed": depthwise(3, (3, 3), (13, 19), ext=SIGNED, zero=-5),
    "signed, no zero": depthwise(3, (3, 3), (9, 70), ext=SIGNED),
    "strided": depthwise(6, (3, 3), (17, 33), stride=2, zero=121),
    "stride of three": depthwise(2, (3, 3), (23, 71), stride=3, zero=3),
    "dilated": depthwise(4, (3, 3), (20, 20), dilation=3, pad=3, zero=100),
    "five": depthwise(4, (5, 5), (14, 14), pad=2, zero=255),
    "seven": depthwise(3, (7, 7), (30, 41), pad=3, ext=SIGNED, zero=11),
    "far": depthwise(2, (2, 7), (9, 90), pad=7, dilation=7, zero=1),
    "valid": depthwise(3, (3, 3), (13, 50), pad=0, zero=9),
    "batched": depthwise(4, (3, 3), (9, 9), batch=3, zero=9),
    "small": depthwise(40, (3, 3), (7, 7), zero=1),
    "column": depthwise(3, (5, 1), (12, 20), pad=2, zero=1),
    "line": depthwise(7, (5,), (100,), pad=2, zero=50),
    "point": depthwise(9, (3, 3), (1, 1), zero=4),
    "wide": depthwise(2, (1, 13), (4, 40), pad=6, zero=4),
    "two filters": depthwise(5, (3, 3), (13, 35), 2, zero=7),
    "one channel": depthwise(1, (5, 5), (28, 28), 6, pad=2, zero=3),
    "spectrogram": depthwise(1, (10, 4), (49, 10), 8, stride=2, pad=5, batch=2, ext=SIGNED, zero=-5),
}
HALF = CASES.keys() - {"far"}
"""What 32 bytes show, for vectors of 8 sums."""


@runs
@pytest.mark.parametrize("lanes", part([16, 8], kept=[16]))
def test_sums_are_exact(lanes: int) -> None:
    """Of the best and some more kernels of each."""
    machine = dataclasses.replace(HOST, vector_bits=32 * lanes)
    for name, chain in CASES.items():
        if name in HALF or lanes == 16:
            check(chain, machine)
        else:
            assert not kernels(chain, machine), name


@runs
@settings(max_examples=many(5, 12), deadline=None)
@given(
    st.integers(1, 9),
    st.integers(1, 3),
    st.tuples(st.integers(1, 5), st.integers(1, 6)),
    st.tuples(st.integers(6, 30), st.integers(6, 80)),
    st.integers(1, 3),
    st.integers(0, 3),
    st.integers(1, 2),
    st.integers(0, 3),
    st.sampled_from([(SIGNED, -128), (SIGNED, 0), ("arith.extui", 0), ("arith.extui", 200)]),
)
def test_shapes(
    channels: int,
    filters: int,
    window: tuple[int, int],
    image: tuple[int, int],
    stride: int,
    pad: int,
    dilation: int,
    batch: int,
    kind: tuple[str, int],
) -> None:
    """Of windows, images, strides, edges and batches."""
    fits = all(dilation * (r - 1) < n + 2 * pad for r, n in zip(window, image, strict=True))
    if channels * filters == 1 or not fits:  # a channel and a filter alone have no axis
        return
    ext, zero = kind
    others = {"stride": stride, "pad": pad, "dilation": dilation, "batch": batch}
    check(depthwise(channels, window, image, filters, ext=ext, zero=zero, **others), HOST, 2)


def test_what_is_multiplied_so() -> None:
    """A weight of bytes with a sign, of which one vector of the image's bytes shows all, on a machine that can."""
    can = dataclasses.replace(PRESETS["avx512"], int8_words=("vpdpbusd",))
    chain = CASES["same"]
    unweighted = dataclasses.replace(chain, inputs=tuple(dataclasses.replace(a, weight=False) for a in chain.inputs))
    others = [
        unweighted,
        depthwise(4, (3, 3), (40, 60), stride=5),
        depthwise(4, (3, 3), (70, 70), dilation=25),
        depthwise(4, (9, 9), (30, 30), pad=4),
        depthwise(4, (3, 3), (20, 20), zero=256),
        steps(8, 8, (3, 3), (13, 19), groups=2),
    ]
    assert [bool(kernels(one, can)) for one in (chain, *others)] == [True, *[False] * len(others)]
    assert not kernels(chain, PRESETS["avx512"])
    assert not kernels(chain, dataclasses.replace(PRESETS["neon"], int8_words=("vpdpbusd",)))


class Bottleneck(nn.Module):
    """Points, windows of each channel by strides of 1 and 2, and a sum with what was there before, all of steps."""

    def __init__(self) -> None:
        super().__init__()
        for name, shape in (("points", (24, 16, 1, 1)), ("window", (24, 1, 3, 3)), ("last", (24, 1, 5, 5))):
            self.register_buffer(name, torch.randint(-128, 128, shape, dtype=torch.int8))
        self.register_buffer("scales", torch.rand(24) / 300)
        self.bias = nn.Parameter(torch.randn(24))

    def forward(self, x: Tensor) -> Tensor:
        def weight(steps: Tensor) -> Tensor:
            return ops.dequantize_per_channel(steps, self.scales, torch.zeros(24, dtype=torch.int64), 0, *S8)

        x = ops.dequantize_per_tensor(ops.quantize_per_tensor(x, 0.03, 121, *U8), 0.03, 121, *U8)
        y = nn.functional.conv2d(x, weight(self.points), self.bias)
        y = ops.dequantize_per_tensor(ops.quantize_per_tensor(y, 0.1, 100, *U8), 0.1, 100, *U8)
        z = nn.functional.relu6(nn.functional.conv2d(y, weight(self.window), self.bias, padding=1, groups=24)) + y
        z = ops.dequantize_per_tensor(ops.quantize_per_tensor(z, 0.1, -7, *S8), 0.1, -7, *S8)
        z = nn.functional.conv2d(z, weight(self.last), padding=2, stride=2, groups=24)
        return ops.dequantize_per_tensor(ops.quantize_per_tensor(z, 0.5, 7, *S8), 0.5, 7, *S8)


@runs
def test_in_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One kernel each, which reads and writes bytes, and a lineage that holds."""
    assumed(HOST, tmp_path, monkeypatch)
    torch.manual_seed(0)
    model, x = Bottleneck().eval(), torch.randn(2, 16, 15, 37)
    exe = covan_mlir.compile_module(model, (x,))
    templates = [record.template for record in exe.lineage.fusions if record.kernel]
    assert templates == ["integer_product", "word_depthwise", "word_depthwise"]
    torch.testing.assert_close(exe(x), model(x), rtol=0, atol=0.5)
    assert (exe(x) != model(x)).float().mean() < 0.01
    assert exe.verify(), str(exe.verify())
