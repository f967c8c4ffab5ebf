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
from limits import part
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


def depthwise(channels: int, window: tuple[int, ...], image: tuple[int, ...], **others: object) -> Chain:
    return steps(channels, channels, window, image, groups=channels, **others)  # type: ignore[arg-type] # its options


def kernels(chain: Chain, machine: Machine, count: int = 4) -> list[Executable]:
    """The kernel that is predicted to be the best of those that multiply words, and some others."""
    listed = choices(chain, CpuTarget(machine))
    if isinstance(listed, Refusal):
        return []
    fit = [pair for pair in listed.schedules() if pair[0].template.name == "word_depthwise"]
    picked = [*fit[:1], *random.Random(0).sample(fit, min(count - 1, len(fit)))]
    written = [candidate.write(schedule, f"d{n}") for n, (candidate, schedule) in enumerate(picked)]
    return [selection.executable for selection in written if isinstance(selection, Selection)]


def check(chain: Chain, machine: Machine, count: int = 4) -> None:
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
}


@runs
@pytest.mark.parametrize("lanes", part([16, 8], kept=[16]))
def test_sums_are_exact(lanes: int) -> None:
    """Of the best and some more kernels of each."""
    machine = dataclasses.replace(HOST, vector_bits=32 * lanes)
    for name, chain in CASES.items():
        if lanes == 16 or kernels(chain, machine):
            check(chain, machine)
        assert lanes != 16 or kernels(chain, machine), name


@runs
@settings(max_examples=12, deadline=None)
@given(
    st.integers(1, 9),
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
    if channels == 1 or not fits:  # a channel alone has no groups
        return
    ext, zero = kind
    others = {"stride": stride, "pad": pad, "dilation": dilation, "batch": batch}
    check(depthwise(channels, window, image, ext=ext, zero=zero, **others), HOST, 2)
