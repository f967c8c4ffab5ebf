"""Products of floats with weights of few bits, whose steps are made floats in registers: which kernels read steps, that
they compute what the chain says, and that programs hold no other copy of the weight."""

from __future__ import annotations

import dataclasses
import random
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from dense_chains import MACHINE, Arrays, assumed, f, near
from limits import many, part
from plain_chains import Writer
from torch import Tensor, nn

import covan_mlir
from covan_mlir.fred.chain import Chain, Input
from covan_mlir.fred.expression import Apply, Const, Expr
from covan_mlir.fred.interpret import interpret
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.kernel import Executable, Refusal
from covan_mlir.lowering.kernels.select import Selection, choices
from covan_mlir.lowering.kernels.standalone import Standalone
from covan_mlir.machine.description import Machine


def narrow(
    left: str,
    right: str,
    result: str,
    over: str,
    *,
    scale: str = "",
    few: bool = False,
    signed: bool = True,
    zero: int = 0,
    zeros: str = "",
    kind: str = "i8",
    unknown: str = "",
    **sizes: int,
) -> Chain:
    """``relu(sum of left * ((right - zero - zeros) * scale) + bias)``, of a weight of bytes.

    Args:
        scale: axes of what its steps stand for; empty: 1.
        few: steps are taken for the nearest ones of 4 bits.
        signed: its bytes have a sign, and so have those of zeros.
        zeros: axes of zero points; empty: there are none.
        kind: of these.
    """
    w = Writer("f32", **{axis: None if axis in unknown else size for axis, size in sizes.items()})
    a, steps = w.input("a", left), w.input("b", right, "i8")
    wider = "arith.extsi" if signed else "arith.extui"
    whole: Expr = Apply(wider, (steps,), "i32")
    least, most = (-8, 7) if signed else (0, 15)
    for op, bound in (("arith.maxsi", least), ("arith.minsi", most)) if few else ():
        whole = Apply(op, (whole, Const(bound, "i32")), "i32")
    whole = Apply("arith.subi", (whole, Const(zero, "i32")), "i32") if zero else whole
    factor: Expr = Apply("arith.sitofp", (whole,), "f32")
    if zeros:
        less: Expr = w.input("zeros", zeros, kind)
        less = Apply("arith.sitofp", (Apply(wider, (less,), "i32"),), "f32") if kind == "i8" else less
        factor = f("arith.subf", factor, less)
    if scale:
        factor = f("arith.mulf", factor, w.input("scale", scale))
    bias = w.input("bias", result[-1])
    w.reduce("s", result, "add", over, f("arith.mulf", a, factor))
    w.map("y", result, f("arith.maximumf", f("arith.addf", w.read("s"), bias), w.number(0.0)))
    chain = w.chain("y")
    inputs = tuple(dataclasses.replace(one, weight=one.name in ("b", "scale", "zeros")) for one in chain.inputs)
    return dataclasses.replace(chain, inputs=inputs)


CASES = {
    "bytes": narrow("ik", "jk", "ij", "k", i=21, j=94, k=36),
    "bytes in rows": narrow("ik", "kj", "ij", "k", i=1, j=96, k=2051),
    "groups": narrow("igk", "jgk", "ij", "gk", scale="jg", i=21, j=94, g=5, k=7),
    "groups in rows": narrow("igk", "gkj", "ij", "gk", scale="gj", i=3, j=33, g=3, k=32),
    "halves": narrow("ik", "jk", "ij", "k", few=True, i=9, j=94, k=36),
    "long halves": narrow("ik", "kj", "ij", "k", few=True, i=2, j=64, k=3002),
    "groups of halves": narrow("igk", "jgk", "ij", "gk", scale="jg", few=True, i=21, j=94, g=4, k=32),
    "a row": narrow("gk", "jgk", "j", "gk", scale="jg", few=True, j=200, g=3, k=128),
    "batched": narrow("bigk", "jgk", "bij", "gk", scale="jg", few=True, b=2, i=5, j=40, g=2, k=6),
    "heads": narrow("higk", "hjgk", "hij", "gk", scale="hjg", few=True, h=3, i=5, j=40, g=2, k=6),
    "joined": narrow("hik", "jhk", "ij", "hk", few=True, h=5, i=3, j=40, k=600),
    "no sign": narrow("ik", "jk", "ij", "k", signed=False, zero=128, i=21, j=94, k=36),
    "a zero point": narrow("ik", "kj", "ij", "k", zero=-7, i=3, j=96, k=2051),
    "zero points": narrow("ik", "jk", "ij", "k", zeros="j", i=21, j=94, k=36),
    "of floats": narrow("igk", "gkj", "ij", "gk", scale="gj", zeros="gj", kind="f32", i=3, j=33, g=3, k=32),
    "of groups": narrow("igk", "jgk", "ij", "gk", scale="jg", zeros="jg", signed=False, i=21, j=94, g=5, k=7),
    "groups' alone": narrow("igk", "jgk", "ij", "gk", zeros="jg", signed=False, i=21, j=94, g=5, k=7),
    "columns' beside": narrow("igk", "jgk", "ij", "gk", scale="jg", zeros="j", i=9, j=94, g=5, k=8),
    "halves, no sign": narrow("ik", "jk", "ij", "k", few=True, signed=False, zero=8, i=9, j=94, k=36),
    "halves of groups": narrow(
        "igk", "jgk", "ij", "gk", scale="jg", zeros="jg", few=True, signed=False, i=21, j=94, g=4, k=32
    ),
    "halves of a row": narrow(
        "gk", "jgk", "j", "gk", scale="jg", zeros="jg", kind="f32", few=True, signed=False, j=200, g=3, k=128
    ),
    "rows unknown": narrow("igk", "jgk", "ij", "gk", scale="jg", few=True, unknown="i", i=1, j=94, g=4, k=32),
}


def steps_read(chain: Chain, machine: Machine, count: int = many(2, 4)) -> list[Executable]:
    """The kernel that is predicted to be the best of those that read packed steps, and some others."""
    listed = choices(chain, CpuTarget(machine))
    assert not isinstance(listed, Refusal), listed
    fit = [pair for pair in listed.schedules() if pair[0].template.name == "product" and pair[1].packed]
    picked = [*fit[:1], *random.Random(0).sample(fit, min(count - 1, len(fit)))]
    written = [candidate.write(schedule, f"n{n}") for n, (candidate, schedule) in enumerate(picked)]
    return [selection.executable for selection in written if isinstance(selection, Selection)]


def arrays_of(chain: Chain) -> Arrays:
    """Numbers, and all steps of a byte."""
    generator = np.random.default_rng(3)
    known = {axis.name: axis.size or 37 for axis in chain.axes}

    def drawn(value: Input) -> np.ndarray[tuple[int, ...], np.dtype[np.generic]]:
        shape = [known[axis] for axis in value.axes]
        if value.dtype == "i8":
            return generator.integers(-128, 128, shape).astype(np.int8)
        return generator.standard_normal(shape).astype(np.float32)

    return {value.name: drawn(value) for value in chain.inputs}


@pytest.mark.parametrize("lanes", part([16, 8, 4], kept=[16]))
def test_products(lanes: int) -> None:
    """The best and some more kernels of each, against float64."""
    machine = dataclasses.replace(MACHINE, vector_bits=32 * lanes, int8_words=())
    for name, chain in CASES.items():
        written, arrays = steps_read(chain, machine), arrays_of(chain)
        assert written, name
        alone, want = Standalone(written), interpret(chain, arrays, "f64")["y"]
        for one in written:
            got = np.asarray(alone[one.name](*(alone.buffer(arrays[value.name]) for value in chain.inputs)).to_host())
            terms = int(np.prod([chain.known_sizes[axis] for axis in chain.reductions[0].over]))
            near(got / 120, want / 120, terms, "f32")


class Layer(nn.Module):
    """A matrix in the order of Conv1D in transformers, and one in that of Linear."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(768, 512) / 28), nn.Parameter(torch.randn(512))
        self.linear = nn.Linear(512, 640)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(nn.functional.gelu(torch.addmm(self.bias, x, self.weight)))


@pytest.mark.parametrize("rows", [1, 24])
@pytest.mark.parametrize("mode", ["weights-int8", "weights-int4"])
def test_in_a_program(mode: str, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels read bytes, the numbers are those of eager, and the lineage holds."""
    assumed(MACHINE, tmp_path, monkeypatch)
    torch.manual_seed(0)
    model, x = Layer().eval(), torch.randn(rows, 768)
    quantized = covan_mlir.quantize(model, args=(x,), mode=mode, group=32)  # type: ignore[arg-type]  # of a literal
    exe = quantized.compile()
    torch.testing.assert_close(exe(x), quantized.exported.module()(x), rtol=1e-4, atol=1e-5)
    chains = [operator.chain for operator in exe.lineage.operators()]
    assert [{value.dtype for value in chain.inputs if len(value.axes) > 1 and value.weight} for chain in chains] == [
        {"i8"} if mode == "weights-int8" else {"i8", "f32"}
    ] * 2
    assert exe.verify(), str(exe.verify())


@pytest.mark.parametrize(
    ("bits", "group", "mapping"),
    [(8, 0, "SYMMETRIC"), (4, 32, "SYMMETRIC"), (4, 0, "SYMMETRIC"), (4, 32, "ASYMMETRIC"), (8, 0, "ASYMMETRIC")],
)
def test_weights_that_torchao_made_narrow(
    bits: int, group: int, mapping: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As its users have them, before and without an export."""
    from torchao.quantization import IntxWeightOnlyConfig, MappingType, quantize_
    from torchao.quantization.granularity import PerAxis, PerGroup

    assumed(MACHINE, tmp_path, monkeypatch)
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(768, 512), nn.GELU(), nn.Linear(512, 640)).eval(), torch.randn(1, 768)
    granularity = PerGroup(group) if group else PerAxis(0)
    config = IntxWeightOnlyConfig(
        weight_dtype=getattr(torch, f"int{bits}"), granularity=granularity, mapping_type=MappingType[mapping]
    )
    quantize_(model, config)
    exe = covan_mlir.compile_module(model, (x,))
    torch.testing.assert_close(exe(x), model(x), rtol=1e-4, atol=1e-5)
    for operator in exe.lineage.operators():
        weight = max((one for one in operator.chain.inputs if one.dtype == "i8"), key=lambda one: len(one.axes))
        assert len(weight.axes) == (3 if group else 2)
    assert exe.verify(), str(exe.verify())


class Blocks(nn.Module):
    """Steps of blocks as floats, by torchao's operator."""

    def __init__(self, block: tuple[int, ...], shape: tuple[int, ...], least: int, zeros: bool) -> None:
        super().__init__()
        self.block, self.least = list(block), least
        self.register_buffer("steps", torch.randint(least, -least, shape, dtype=torch.int8))
        counts = [size // one for size, one in zip(shape, block, strict=True)]
        self.register_buffer("scales", torch.rand(counts) + 0.1)
        self.register_buffer("zeros", torch.randint(least, -least, counts, dtype=torch.int8) if zeros else None)

    def forward(self, x: Tensor) -> Tensor:
        dequantize = torch.ops.torchao.dequantize_affine
        limits = self.least, -self.least - 1
        return x + dequantize(self.steps, self.block, self.scales, self.zeros, torch.int8, *limits)


BLOCKS = (
    ((1, 4), (6, 8)),
    ((6, 8), (6, 8)),
    ((2, 1), (6, 8)),
    ((1, 1), (3, 5)),
    ((1, 2, 4), (3, 4, 8)),
    ((5,), (5,)),
)
FORMS = [(*block, least, zeros) for block, least, zeros in product(BLOCKS, (-8, -128), (False, True))]


@pytest.mark.parametrize(
    ("block", "shape", "least", "zeros"), part(FORMS, kept=[FORMS[4 * n + n % 4] for n in range(len(BLOCKS))])
)
def test_blocks_of_torchao(block: tuple[int, ...], shape: tuple[int, ...], least: int, zeros: bool) -> None:
    import torchao.quantization  # noqa: F401 - declares the operator

    torch.manual_seed(0)
    model, x = Blocks(block, shape, least, zeros).eval(), torch.randn(shape)
    torch.testing.assert_close(covan_mlir.compile_module(model, (x,))(x), model(x))
