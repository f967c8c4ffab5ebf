"""Products of integers of 8 bits, four at a time: which are, where, and that they are exact."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from dense_chains import MACHINE, assumed
from limits import many, part
from plain_chains import Writer
from torch import Tensor, nn

import covan_mlir
from covan_mlir.fred.chain import Chain
from covan_mlir.fred.expression import Apply
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.kernel import Executable, Refusal
from covan_mlir.lowering.kernels.select import Selection, choices
from covan_mlir.lowering.kernels.standalone import Standalone
from covan_mlir.machine.description import PRESETS, Machine
from covan_mlir.machine.reading import processor

HOST = dataclasses.replace(MACHINE, int8_words=("vpdpbusd",))
runs = pytest.mark.skipif(
    "avx512_vnni" not in processor().get("flags", "").split(), reason="this processor has no AVX512_VNNI"
)
SIGNED, UNSIGNED = "arith.extsi", "arith.extui"


def product(
    left: str,
    right: str,
    result: str,
    over: str,
    *,
    ext: tuple[str, str] = (SIGNED, SIGNED),
    kinds: tuple[str, str] = ("i8", "i32"),
    weight: str = "b",
    unknown: str = "",
    **sizes: int,
) -> Chain:
    """``sum of left * right + bias``, of wide integers."""
    narrow, wide = kinds
    w = Writer(wide, **{axis: None if axis in unknown else size for axis, size in sizes.items()})
    a, b = w.input("a", left, narrow), w.input("b", right, narrow)
    w.input("bias", result[-1])
    terms = (Apply(op, (x,), wide) if narrow != wide else x for op, x in zip(ext, (a, b), strict=True))
    w.reduce("s", result, "add", over, Apply("arith.muli", tuple(terms), wide))
    w.map("y", result, Apply("arith.addi", (w.read("s"), w.read("bias")), wide))
    chain = w.chain("y")
    inputs = tuple(dataclasses.replace(one, weight=one.name == weight) for one in chain.inputs)
    return dataclasses.replace(chain, inputs=inputs)


def kernels(chain: Chain, machine: Machine, count: int = many(2, 4)) -> list[Executable]:
    """The kernel that is predicted to be the best of those that multiply words, and some others."""
    listed = choices(chain, CpuTarget(machine))
    if isinstance(listed, Refusal):
        return []
    fit = [pair for pair in listed.schedules() if pair[0].template.name == "integer_product"]
    picked = [*fit[:1], *random.Random(0).sample(fit, min(count - 1, len(fit)))]
    written = [candidate.write(schedule, f"w{n}") for n, (candidate, schedule) in enumerate(picked)]
    return [selection.executable for selection in written if isinstance(selection, Selection)]


CASES = {
    "transposed": product("ik", "jk", "ij", "k", i=21, j=94, k=36),
    "plain": product("ik", "kj", "ij", "k", i=21, j=94, k=36),
    "unsigned": product("ik", "kj", "ij", "k", ext=(UNSIGNED, SIGNED), i=21, j=94, k=36),
    "batched": product("bik", "bkj", "bij", "k", b=3, i=21, j=94, k=36),
    "heads": product("ik", "hjk", "hij", "k", h=4, i=5, j=94, k=36),
    "joined": product("hik", "jhk", "ij", "hk", h=3, i=9, j=80, k=8),
    "long": product("ik", "kj", "ij", "k", i=3, j=64, k=70_000),
    "row": product("ik", "kj", "ij", "k", ext=(UNSIGNED, SIGNED), i=1, j=96, k=132),
    "few": product("ik", "jk", "ij", "k", i=37, j=7, k=36),
    "rest": product("ik", "kj", "ij", "k", i=5, j=35, k=36),
    "few points": product("ik", "kj", "ij", "k", weight="a", i=3, j=50, k=36),
    "word": product("ik", "kj", "ij", "k", i=30, j=32, k=4),
    "points": product("ik", "kj", "ij", "k", weight="a", i=24, j=49, k=36),
    "unsigned points": product("ik", "kj", "ij", "k", ext=(SIGNED, UNSIGNED), weight="a", i=32, j=70, k=200),
    "images": product("ik", "bkj", "bij", "k", weight="a", b=3, i=8, j=33, k=12),
    "rows unknown": product("ik", "kj", "ij", "k", unknown="i", i=1, j=94, k=64),
}


@runs
@pytest.mark.parametrize("lanes", part([16, 8], kept=[16]))
def test_products(lanes: int) -> None:
    """The best and some more kernels of each, against integers of 64 bits, of all numbers and of the extreme ones."""
    machine = dataclasses.replace(HOST, vector_bits=32 * lanes)
    generator = np.random.default_rng(5)
    for name, chain in CASES.items():
        written = kernels(chain, machine)
        assert written, name
        alone = Standalone(written)
        known = {axis.name: axis.size or 37 for axis in chain.axes}
        axes = {value.name: "".join(value.axes) for value in chain.inputs}
        for extreme in (False, True):
            arrays = {
                one: generator.choice([-128, 127] if extreme else np.arange(-128, 128), [known[n] for n in axes[one]])
                for one in "ab"
            }
            arrays["bias"] = generator.integers(-1000, 1000, known[axes["bias"]])
            result = "".join(chain.values["y"].axes)
            terms = chain.reductions[0].expr.args
            numbers = [
                arrays[one] + 256 * ((arrays[one] < 0) & (term.op == UNSIGNED))
                for one, term in zip("ab", terms, strict=True)
            ]
            want = np.einsum(f"{axes['a']},{axes['b']}->{result}", *numbers, optimize=True)
            want = want + arrays["bias"]
            stored = [arrays["a"].astype(np.int8), arrays["b"].astype(np.int8), arrays["bias"].astype(np.int32)]
            for one in written:
                assert "vpdpbusd" in one.text
                got = np.asarray(alone[one.name](*map(alone.buffer, stored)).to_host())
                np.testing.assert_array_equal(got, want.astype(np.int32), name)


def test_what_is_multiplied_by_words() -> None:
    """Integers of 8 bits by a weight of such with a sign, four by four, on a machine that can."""
    can = dataclasses.replace(PRESETS["avx512"], int8_words=("vpdpbusd",))
    sizes = {"i": 8, "j": 96, "k": 64}
    others = [
        product("ik", "kj", "ij", "k", i=8, j=96, k=62),
        product("ki", "kj", "ij", "k", **sizes),
        product("ik", "kj", "ij", "k", weight="", **sizes),
        product("ik", "kj", "ij", "k", ext=(SIGNED, UNSIGNED), **sizes),
        product("ik", "kj", "ij", "k", kinds=("i8", "i64"), **sizes),
        product("ik", "kj", "ij", "k", kinds=("i16", "i32"), **sizes),
        product("ik", "kj", "ij", "k", kinds=("i32", "i32"), **sizes),
    ]
    assert [bool(kernels(chain, can)) for chain in (CASES["plain"], *others)] == [True, *[False] * len(others)]
    assert not kernels(CASES["plain"], PRESETS["avx512"])
    assert not kernels(CASES["plain"], dataclasses.replace(PRESETS["neon"], int8_words=("vpdpbusd",)))


class Scaled(nn.Module):
    """An integer product with a scale for each channel, as quantised layers of torchao's have it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-128, 128, (256, 192), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(192))

    def forward(self, x: Tensor) -> Tensor:
        return torch._int_mm(x, self.weight).float() * self.scales


@runs
def test_in_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One site, to the bit, with a lineage that holds; the offsets of its weight are computed ahead of time."""
    assumed(HOST, tmp_path, monkeypatch)
    torch.manual_seed(0)
    model, x = Scaled(), torch.randint(-128, 128, (33, 256), dtype=torch.int8)
    exe = covan_mlir.compile_module(model, (x,))
    assert [record.template for record in exe.lineage.fusions] == ["integer_product"]
    assert [site.phase for site in exe.lineage.sites] == ["call"]
    torch.testing.assert_close(exe(x), model(x), rtol=0, atol=0)
    assert exe.verify(), str(exe.verify())
