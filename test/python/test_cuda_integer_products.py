"""Products of integers of 8 bits for CUDA without a GPU: exact by Triton's interpreter, code by Triton's assembler."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from plain_chains import Writer
from test_cuda_kernels import interpreted, spills
from test_cuda_products import SMALL, match_of
from test_integer_products import CASES, SIGNED, UNSIGNED, product
from test_quantized import Layer

import covan_mlir
from covan_mlir import CompileOptions
from covan_mlir.fred.chain import Chain
from covan_mlir.fred.expression import Affine, Apply, Const, Expr, Window
from covan_mlir.fred.interpret import interpret as in_numbers
from covan_mlir.kir.interpretation import interpret
from covan_mlir.lowering.kernels.cuda.compile import available, compile_kernel
from covan_mlir.lowering.kernels.cuda.device import DEVICES
from covan_mlir.lowering.kernels.cuda.kernel import CudaKernel
from covan_mlir.lowering.kernels.cuda.target import CudaTarget
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.select import choices

pytestmark = pytest.mark.skipif(not available(), reason="Triton is not installed (pip install covan-mlir[cuda])")
KINDS = {"i8": (np.int8, torch.int8), "i32": (np.int32, torch.int32), "f32": (np.float32, torch.float32)}


def widened(value: Expr, op: str, zero: int = 0) -> Expr:
    wide = Apply(op, (value,), "i32")
    return Apply("arith.subi", (wide, Const(zero, "i32")), "i32") if zero else wide


def requantized(w: Writer, axes: str, channel: str, zero: int) -> Chain:
    """Sums by their scales, with a bias of channels, as steps without a sign."""

    def f(op: str, *args: Expr) -> Expr:
        return Apply(op, args, "f32")

    scale, bias = w.input("scale", channel, "f32"), w.input("bias", channel, "f32")
    real = f("arith.mulf", f("arith.mulf", Apply("arith.sitofp", (w.read("s"),), "f32"), Const(0.03, "f32")), scale)
    w.map("real", axes, f("arith.maximumf", f("arith.addf", real, bias), Const(0.0, "f32")))
    rounded = f("math.roundeven", f("arith.mulf", w.read("real"), Const(0.11, "f32")))
    moved = f("arith.addf", rounded, Const(float(zero), "f32"))
    kept = f("arith.minimumf", f("arith.maximumf", moved, Const(0.0, "f32")), Const(255.0, "f32"))
    w.map("y", axes, Apply("arith.trunci", (Apply("arith.fptosi", (kept,), "i32"),), "i8"))
    return w.chain("y")


def linear(sign: str, zero: int, **sizes: int) -> Chain:
    """Steps by a weight: `kir.linear`."""
    w = Writer("i32", **sizes)
    a, b = w.input("a", "ik", "i8"), w.input("b", "jk", "i8")
    w.reduce("s", "ij", "add", "k", Apply("arith.muli", (widened(a, sign, zero), widened(b, SIGNED)), "i32"))
    return requantized(w, "ij", "j", 3)


def convolution(zero: int) -> Chain:
    """Padded with the step that stands for 0: `kir.convolution`."""
    w = Writer("i32", n=2, f=20, p=7, q=9, c=5, r=3, s=3, y=7, x=9)
    w.input("a", "ncyx", "i8")
    b = w.input("b", "fcrs", "i8")
    at = (
        Affine.of([("n", 1)]),
        Affine.of([("c", 1)]),
        Affine.of([("p", 1), ("r", 1)], -1),
        Affine.of([("q", 1), ("s", 1)], -1),
    )
    a = Window("a", "i8", at, Const(zero - 256 if zero > 127 else zero, "i8"))
    w.reduce("s", "nfpq", "add", "crs", Apply("arith.muli", (widened(a, UNSIGNED, zero), widened(b, SIGNED)), "i32"))
    return requantized(w, "nfpq", "f", 0)


def arrays_of(chain: Chain, seed: int) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    known = chain.known_sizes

    def drawn(dtype: str, shape: list[int]) -> Any:
        if dtype == "f32":
            return generator.standard_normal(shape).astype(np.float32)
        return generator.integers(-128, 128, shape).astype(KINDS[dtype][0])

    return {value.name: drawn(value.dtype, [known[axis] for axis in value.axes]) for value in chain.inputs}


def kernel(chain: Chain, architecture: str = "sm_80", **changes: Any) -> CudaKernel:
    match, schedule = match_of(chain, architecture)
    return match.write(dataclasses.replace(schedule, **changes), "fred")


FEW = SMALL | {"block_stream": 32}
LINEAR = linear(UNSIGNED, 130, i=33, j=40, k=100)
EXACT: list[tuple[Chain, dict[str, Any]]] = [
    *((chain, FEW) for name, chain in CASES.items() if name not in ("rows unknown", "long", "row")),
    (LINEAR, {}),
    (LINEAR, FEW | {"parts": 3, "group": 2}),
    (linear(UNSIGNED, 128, i=17, j=20, k=36), FEW),
    (linear(SIGNED, 0, i=17, j=20, k=36), FEW),
    (linear(SIGNED, -7, i=17, j=20, k=36), FEW),
    (convolution(136), {}),
    (convolution(136), FEW | {"parts": 2}),
    (convolution(0), FEW),
]


def test_kernels_compute_what_operators_mean(tmp_path: Path) -> None:
    """To the bit: sums, their scales, and steps, in all roles of axes, blocks that are not full, groups and parts."""
    arrays = [arrays_of(chain, seed) for seed, (chain, _) in enumerate(EXACT)]
    ready = [
        (kernel(chain, **changes), [torch.from_numpy(values[one.name]) for one in chain.inputs], len)
        for (chain, changes), values in zip(EXACT, arrays, strict=True)
    ]
    for (chain, _), values, got in zip(EXACT, arrays, interpreted(tmp_path, ready), strict=True):
        (output,) = chain.outputs
        np.testing.assert_array_equal(got.numpy(), interpret(chain, values)[output])


INSTRUCTIONS = {
    "sm_80": r"mma\.sync\S*\.s32\.s8\.s8\.s32",
    "sm_90": r"mma\.sync\S*\.s32\.s8\.s8\.s32",
    "sm_90a": r"wgmma\.mma_async\S*\.s32\.s8\.s8",
}


@pytest.mark.parametrize("architecture", list(INSTRUCTIONS))
def test_code_has_matrix_instructions_of_integers(architecture: str) -> None:
    for binary in compile_kernel(kernel(linear(UNSIGNED, 130, i=512, j=768, k=768), architecture)):
        assert re.findall(r"^\.target (\S+)", binary.ptx, re.M) == [architecture]
        assert re.search(INSTRUCTIONS[architecture], binary.ptx)
        assert "cvt.rni.f32.f32" in binary.ptx  # steps are made in registers
        assert "st.global" in binary.ptx
        assert spills(binary, architecture) == 0


def test_steps_that_are_read_as_numbers(tmp_path: Path) -> None:
    """Those without a sign are no negative numbers."""
    chains = []
    for op in ("arith.uitofp", "arith.sitofp"):
        w = Writer("f32", i=20, j=33, k=50)
        a, b = w.input("a", "ik", "i8"), w.input("b", "jk")
        w.reduce("s", "ij", "add", "k", Apply("arith.mulf", (Apply(op, (a,), "f32"), b), "f32"))
        w.map("y", "ij", Apply("arith.mulf", (w.read("s"), Const(0.5, "f32")), "f32"))
        chains.append(w.chain("y"))
    arrays = [arrays_of(chain, 3) for chain in chains]
    ready = [
        (kernel(chain), [torch.from_numpy(values[one.name]) for one in chain.inputs], len)
        for chain, values in zip(chains, arrays, strict=True)
    ]
    for chain, values, got in zip(chains, arrays, interpreted(tmp_path, ready), strict=True):
        np.testing.assert_allclose(got.numpy(), in_numbers(chain, values, "f64")["y"], rtol=1e-5, atol=1e-3)


def test_a_model_whose_layers_multiply_steps() -> None:
    options = CompileOptions(fuse_reductions="always")
    exe = covan_mlir.compile_module(Layer().eval(), (torch.randn(2, 17, 64),), options=options, target="cuda:sm_80")
    placed = [one for one in exe.lineage.operators() if one.kernel and one.operator.accumulator == "i32"]
    assert [one.operator.kind for one in placed] == ["linear", "linear"]
    assert {"linear", "gelu", "quantize_per_tensor_1"} <= {action.name for action in placed[0].actions}
    assert all(re.search(rb"mma\.sync\S*\.s8\.s8", exe.kernel_code(one.site)) for one in placed)
    assert exe.verify(), str(exe.verify())


def test_what_has_no_instruction_is_refused_and_says_why() -> None:
    sizes = {"i": 32, "j": 32, "k": 64}
    reasons = {
        "neither factor is an integer with a sign and without a zero point": product(
            "ik", "jk", "ij", "k", ext=(UNSIGNED, UNSIGNED), **sizes
        ),
        "is a sum of integers of other than 32 bits": product("ik", "jk", "ij", "k", kinds=("i8", "i64"), **sizes),
        "no integer of 8 bits": product("ik", "jk", "ij", "k", kinds=("i16", "i32"), **sizes),
    }
    for reason, chain in reasons.items():
        listed = choices(chain, CudaTarget(DEVICES["sm_80"]))
        assert isinstance(listed, Refusal)
        assert reason in listed.reason
