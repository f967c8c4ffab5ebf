"""Convolutions whose channels are multiplied a word at a time, bfloat16 in pairs and integers of 8 bits by fours: which
are, where, and that they are the sums."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
from dense_chains import MACHINE, arrays_of, assumed, convolution, f, near
from limits import many, part
from torch import nn

import covan_mlir
from covan_mlir.fred.chain import Chain
from covan_mlir.fred.expression import Apply, Const, Expr, Read, Window
from covan_mlir.fred.interpret import interpret
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.kernel import Executable, Refusal
from covan_mlir.lowering.kernels.select import Selection, choices
from covan_mlir.lowering.kernels.standalone import Standalone
from covan_mlir.machine.description import PRESETS, Machine
from covan_mlir.machine.reading import processor

HOST = dataclasses.replace(MACHINE, bf16_pairs=True, int8_words=("vpdpbusd",))
runs = pytest.mark.skipif(
    "avx512_bf16" not in processor().get("flags", "").split(), reason="this processor has no AVX512_BF16"
)

runs_integers = pytest.mark.skipif(
    "avx512_vnni" not in processor().get("flags", "").split(), reason="this processor has no AVX512_VNNI"
)


def weighted(chain: Chain) -> Chain:
    """The filter is a weight."""
    inputs = tuple(dataclasses.replace(value, weight=value.name == "f") for value in chain.inputs)
    return dataclasses.replace(chain, inputs=inputs)


def paired(
    chain: Chain, machine: Machine, count: int = many(2, 4), *, rows: int = 0, name: str = "p"
) -> list[Executable]:
    """The kernel that is predicted to be the best of those that multiply words, and some others.

    Args:
        rows: of tiles; 0: of any.
        name: what theirs begin with.
    """
    listed = choices(chain, CpuTarget(machine))
    assert not isinstance(listed, Refusal), listed
    fit = [
        (candidate, schedule)
        for candidate, schedule in listed.schedules()
        if candidate.template.name == "word_convolution" and rows in (0, getattr(schedule, "rows", 0))
    ]
    picked = [*fit[:1], *random.Random(0).sample(fit, min(count - 1, len(fit)))]
    written = [candidate.write(schedule, f"{name}{n}") for n, (candidate, schedule) in enumerate(picked)]
    return [selection.executable for selection in written if isinstance(selection, Selection)]


def bf16(
    channels: int, filters: int, window: tuple[int, ...], image: tuple[int, ...], **others: int
) -> tuple[Chain, int]:
    """A convolution, and its terms."""
    chain = convolution(channels, filters, window, image, dtype="bf16", **others)
    return weighted(chain), channels // others.get("groups", 1) * int(np.prod(window))


CASES = {
    "same": bf16(20, 24, (3, 3), (13, 19)),
    "strided": bf16(6, 40, (3, 3), (17, 33), stride=2),
    "pointwise": bf16(70, 24, (1, 1), (15, 15), stride=2, pad=0),
    "patches": bf16(4, 30, (4, 4), (32, 36), stride=4, pad=0),
    "dilated": bf16(10, 8, (3, 3), (20, 20), dilation=3, pad=3),
    "grouped": bf16(12, 24, (3, 3), (14, 14), groups=2),
    "batched": bf16(4, 8, (3, 3), (9, 9), batch=3),
    "blocks": bf16(302, 12, (3, 3), (7, 7)),
    "pair": bf16(2, 16, (3, 3), (10, 50)),
    "first": bf16(4, 16, (7, 7), (40, 41), stride=2, pad=3),
    "ragged": bf16(6, 63, (3, 3), (10, 10)),
    "line": bf16(10, 12, (5,), (100,), pad=2),
    "long_line": bf16(12, 8, (128,), (49,), pad=64, groups=2),
    "volume": bf16(6, 6, (3, 3, 3), (6, 7, 20)),
    "broad": bf16(4, 8, (3, 3), (5, 300), stride=2),
    "far": bf16(4, 8, (2, 3), (30, 200), stride=9, pad=0),
}


@runs
@pytest.mark.parametrize("lanes", part([16, 8], kept=[16]))
def test_convolutions(lanes: int) -> None:
    """The best and some more kernels of each, against float64."""
    machine = dataclasses.replace(HOST, vector_bits=32 * lanes)
    for name, (chain, terms) in CASES.items():
        kernels, arrays = paired(chain, machine), arrays_of(chain, 4)
        assert len(kernels) > 1, name
        alone, want = Standalone(kernels), interpret(chain, arrays, "f64")["y"]
        for one in kernels:
            assert "dpbf16ps" in one.text
            got = np.asarray(alone[one.name](*(alone.buffer(a) for a in arrays.values())).to_host())
            near(got, want, terms, "bf16")


@runs
def test_infinities_and_nan_stay_where_they_are() -> None:
    """In windows that show them: neither in the other channel of a pair, nor in what is outside of the input."""
    chain, _ = bf16(6, 8, (3, 3), (9, 21))
    arrays = arrays_of(chain, 5)
    arrays["x"][3, 0, 4], arrays["x"][4, 8, 20] = np.inf, np.nan
    (executable, *_) = paired(chain, HOST)
    alone = Standalone([executable])
    got = np.asarray(alone["p0"](*(alone.buffer(a) for a in arrays.values())).to_host())
    want = interpret(chain, arrays, "f64")["y"].astype(ml_dtypes.bfloat16)
    assert (np.isfinite(got) == np.isfinite(want)).all()
    assert (np.isnan(got) == np.isnan(want)).all()


def test_what_is_multiplied_in_pairs() -> None:
    """Weights of an even number of channels, where what is outside is nothing, on a machine that can."""
    can = dataclasses.replace(PRESETS["avx512"], bf16_pairs=True)
    chain, _ = CASES["same"]
    given = convolution(20, 24, (3, 3), (13, 19), dtype="bf16")
    others = [
        given,
        bf16(15, 24, (3, 3), (13, 19))[0],
        weighted(convolution(20, 24, (3, 3), (13, 19), dtype="f16")),
        weighted(convolution(20, 24, (3, 3), (13, 19))),
        weighted(convolution(8, 8, (3, 3), (13, 19), groups=8, dtype="bf16")),
        surrounded(chain, 1.0),
    ]
    assert [bool(paired(one, can)) for one in (chain, *others)] == [True, *[False] * len(others)]
    assert not paired(chain, PRESETS["avx512"])
    assert not paired(chain, dataclasses.replace(PRESETS["neon"], bf16_pairs=True))


def steps(
    channels: int,
    filters: int,
    window: tuple[int, ...],
    image: tuple[int, ...],
    *,
    ext: str = "arith.extui",
    zero: int = 0,
    **others: int,
) -> Chain:
    """``sum of (x - zero) * f + bias`` of integers of 8 bits, and zeros around the image."""
    chain = weighted(convolution(channels, filters, window, image, dtype="i8", **others))
    total, result = chain.steps
    assert isinstance(total.expr, Apply)
    shown, filter_ = total.expr.args
    assert isinstance(shown, Window)
    x: Expr = Apply(ext, (dataclasses.replace(shown, outside=Const(zero, "i8")),), "i32")
    x = Apply("arith.subi", (x, Const(zero, "i32")), "i32") if zero else x
    term = Apply("arith.muli", (x, Apply("arith.extsi", (filter_,), "i32")), "i32")
    total = dataclasses.replace(total, expr=term, initial=Const(0, "i32"), dtype="i32")
    bias = Apply("arith.extsi", (Read("bias", "i8"),), "i32")
    result = dataclasses.replace(result, expr=Apply("arith.addi", (Read("s", "i32"), bias), "i32"), dtype="i32")
    return dataclasses.replace(chain, steps=(total, result))


INTEGERS = {
    "same": steps(20, 24, (3, 3), (13, 19), zero=7),
    "signed": steps(8, 16, (3, 3), (13, 19), ext="arith.extsi", zero=-5),
    "strided": steps(12, 40, (3, 3), (17, 33), stride=2, zero=121),
    "points": steps(72, 24, (1, 1), (15, 15), stride=2, pad=0, ext="arith.extsi"),
    "dilated": steps(8, 8, (3, 3), (20, 20), dilation=3, pad=3, zero=100),
    "grouped": steps(16, 24, (3, 3), (14, 14), groups=2, zero=3),
    "batched": steps(4, 8, (3, 3), (9, 9), batch=3, zero=9),
    "blocks": steps(604, 12, (3, 3), (7, 7), ext="arith.extsi", zero=11),
    "ragged": steps(8, 63, (5, 5), (10, 10), pad=2),
    "line": steps(12, 12, (5,), (100,), pad=2, zero=50),
    "broad": steps(4, 8, (3, 3), (5, 300), stride=2, zero=77),
    "three": steps(3, 16, (3, 3), (20, 41), stride=2, zero=121),
    "three, signed": steps(3, 8, (7, 7), (24, 24), stride=2, pad=3, ext="arith.extsi", zero=-9),
    "five": steps(5, 8, (3, 3), (9, 40), batch=2, zero=3),
    "odd groups": steps(14, 8, (3, 3), (12, 12), groups=2, ext="arith.extsi", zero=2),
    "odd blocks": steps(603, 12, (3, 3), (7, 7), zero=11),
}


@runs_integers
def test_integers_are_exact() -> None:
    """Of the best and some more kernels of each."""
    generator = np.random.default_rng(5)
    for name, chain in INTEGERS.items():
        known = chain.known_sizes
        arrays = {
            value.name: generator.integers(-128, 128, [known[axis] for axis in value.axes]).astype(np.int8)
            for value in chain.inputs
        }
        kernels = [*paired(chain, HOST, many(1, 4)), *paired(chain, HOST, 1, rows=1, name="o")]
        want = interpret(chain, arrays)["y"]
        assert len(kernels) > 1, name
        alone = Standalone(kernels)
        for one in kernels:
            assert "vpdpbusd" in one.text
            got = np.asarray(alone[one.name](*(alone.buffer(a) for a in arrays.values())).to_host())
            np.testing.assert_array_equal(got, want, name)


def surrounded(chain: Chain, value: float) -> Chain:
    """With another number around the input."""
    total, result = chain.steps
    assert isinstance(total.expr, Apply)
    window, weight = total.expr.args
    assert isinstance(window, Window)
    term = f("arith.mulf", dataclasses.replace(window, outside=Const(value, "bf16")), weight)
    return dataclasses.replace(chain, steps=(dataclasses.replace(total, expr=term), result))


@runs
def test_in_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own record says so, and results are eager's as far as bfloat16 goes."""
    assumed(HOST, tmp_path, monkeypatch)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(64, 96, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(96), nn.ReLU()).eval()
    x = torch.randn(2, 64, 29, 31)
    exe = covan_mlir.compile_module(model.bfloat16(), (x.bfloat16(),))
    assert [record.template for record in exe.lineage.fusions if record.kernel] == ["word_convolution"]
    torch.testing.assert_close(exe(x.bfloat16()).double(), model.double()(x.double()), atol=0.03, rtol=0.03)
    assert exe.verify(), str(exe.verify())
