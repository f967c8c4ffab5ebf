"""Quantised ONNX models (QDQ): their steps are multiplied, and results are those of ONNX's reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from dense_chains import assumed
from onnx.reference import ReferenceEvaluator
from onnx_models import model, node
from test_integer_products import HOST, runs

import covan_mlir


def quantised() -> onnx.ModelProto:
    """A convolution with a bias and an activation, and a product behind it, as ONNX Runtime quantises them: weights by
    channels, with a sign and zero points that are all 0; what they multiply as a whole, without a sign."""
    generator = np.random.default_rng(3)

    def steps(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int8]]:
        return generator.integers(-128, 128, shape).astype(np.int8)

    weights = {
        "window": steps(16, 8, 3, 3),
        "window_scale": (generator.random(16) / 300).astype(np.float32),
        "window_zero": np.zeros(16, np.int8),
        "matrix": steps(16, 32),
        "matrix_scale": (generator.random(32) / 300).astype(np.float32),
        "matrix_zero": np.zeros(32, np.int8),
        "bias": generator.integers(-3000, 3000, 16).astype(np.int32),
        "bias_scale": np.full(16, 0.001, np.float32),
        "bias_zero": np.zeros(16, np.int32),
        **{f"{name}_scale": np.array(scale, np.float32) for name, scale in (("x", 0.031), ("y", 0.043), ("z", 0.017))},
        **{f"{name}_zero": np.array(zero, np.uint8) for name, zero in (("x", 117), ("y", 0), ("z", 131))},
    }

    def pair(name: str) -> list[onnx.NodeProto]:
        scale, zero = f"{name}_scale", f"{name}_zero"
        return [
            node("QuantizeLinear", [name, scale, zero], [f"{name}_steps"]),
            node("DequantizeLinear", [f"{name}_steps", scale, zero], [f"{name}_real"]),
        ]

    nodes = [
        *pair("x"),
        *(
            node("DequantizeLinear", [name, f"{name}_scale", f"{name}_zero"], [f"{name}_real"], axis=axis)
            for name, axis in (("window", 0), ("matrix", 1), ("bias", 0))
        ),
        node("Conv", ["x_real", "window_real", "bias_real"], ["conv"], pads=[1, 1, 1, 1]),
        node("Relu", ["conv"], ["y"]),
        *pair("y"),
        node("GlobalAveragePool", ["y_real"], ["mean"]),
        node("Flatten", ["mean"], ["z"]),
        *pair("z"),
        node("MatMul", ["z_real", "matrix_real"], ["out"]),
    ]
    return model(nodes, {"x": ("float32", [2, 8, 6, 6])}, ["out", "y_steps"], weights)


@runs
def test_steps_are_multiplied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights stay of 8 bits; a step may be the neighbour where sums of floats are rounded to the other side."""
    assumed(HOST, tmp_path, monkeypatch)
    proto = quantised()
    exe = covan_mlir.compile_module(proto, options=covan_mlir.CompileOptions(fuse_reductions="always"))
    operators = [one.operator for one in exe.lineage.operators() if one.operator.contraction]
    assert [operator.kind for operator in operators] == ["convolution", "linear"]
    firsts = [operator.contraction.first for operator in operators if operator.contraction]
    assert [(first.signed, first.zero) for first in firsts] == [(False, 117), (False, 131)]
    x = np.random.default_rng(0).standard_normal((2, 8, 6, 6)).astype(np.float32)
    want = ReferenceEvaluator(proto).run(None, {"x": x})
    got = [np.asarray(one) for one in exe(x)]
    apart = np.abs(got[1].astype(np.int32) - want[1].astype(np.int32))
    assert apart.max() <= 1
    assert (apart > 0).mean() < 0.01
    step = 0.017 * float(np.abs(matrix_of(proto)).sum(0).max())
    np.testing.assert_allclose(got[0], want[0], rtol=1e-5, atol=step)
    assert exe.verify(), str(exe.verify())


def matrix_of(proto: onnx.ModelProto) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """What the product's matrix stands for."""
    held = {one.name: onnx.numpy_helper.to_array(one) for one in proto.graph.initializer}
    matrix: np.ndarray[tuple[int, ...], np.dtype[np.float32]] = held["matrix"] * held["matrix_scale"]
    return matrix
