"""Products of ONNX models with weights of few bits (MatMulNBits of ONNX Runtime): the numbers are those of their
definition, and kernels for CPUs read steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from dense_chains import MACHINE, assumed
from limits import part
from onnx_models import model, node

import covan_mlir
from covan_mlir import ExportError
from covan_mlir.lowering.kernels.cpu.product_roles import product_of

Array = np.ndarray[Any, np.dtype[Any]]


def packed(numbers: Array, bits: int) -> Array:
    """Rows of numbers in bytes, the first one in the lowest bits, as the operator's description has them."""
    if bits == 8:
        return numbers.astype(np.uint8)
    even = np.pad(numbers, ((0, 0), (0, numbers.shape[1] % 2)))
    return (even[:, ::2] | even[:, 1::2] << 4).astype(np.uint8)


class Product:
    """``x @ ((steps - zeros) * scales).T``, in blocks along a row; what is behind the row is filled up with 0.

    Args:
        zeros: "" (none), "packed", "middle" (packed, and all the default), or "floats".
    """

    def __init__(self, rows: int, depth: int, columns: int, bits: int, block: int, zeros: str, bias: bool) -> None:
        generator = np.random.default_rng(bits + block)
        blocks, top = -(-depth // block), 2**bits
        steps = generator.integers(0, top, (columns, blocks * block))
        self.x = generator.standard_normal((2, rows, depth)).astype(np.float32)
        scales = (generator.random((columns, blocks)) / top + 0.01).astype(np.float32)
        points = np.full((columns, blocks), top // 2, np.float32)
        held = {"b": packed(steps, bits).reshape(columns, blocks, block * bits // 8), "scales": scales.reshape(-1)}
        if zeros == "packed":
            points = generator.integers(0, top, (columns, blocks)).astype(np.float32)
        elif zeros == "floats":
            points = generator.random((columns, blocks), np.float32) * top
        if zeros == "floats":
            held["zeros"] = points
        elif zeros:
            held["zeros"] = packed(points.astype(np.int64), bits).reshape(-1)
        names = ["x", "b", "scales", "zeros" if zeros else "", "", "bias" if bias else ""]
        wide = np.float64
        exact = (steps - np.repeat(points, block, 1).astype(wide)) * np.repeat(scales, block, 1).astype(wide)
        self.want = self.x.astype(wide) @ exact[:, :depth].T
        if bias:
            held["bias"] = generator.standard_normal(columns).astype(np.float32)
            self.want = self.want + held["bias"]
        while not names[-1]:
            names.pop()
        attributes = {"K": depth, "N": columns, "bits": bits, "block_size": block}
        nodes = [node("MatMulNBits", names, ["y"], domain="com.microsoft", **attributes)]
        self.model = model(nodes, {"x": ("float32", self.x.shape)}, ["y"], held, com_microsoft=1)
        self.terms = depth


PRODUCTS = (
    (1, 256, 96, 4, 32, "", False),
    (1, 256, 96, 4, 32, "packed", True),
    (5, 256, 96, 4, 128, "floats", False),
    (5, 256, 96, 4, 16, "middle", True),
    (3, 96, 80, 4, 32, "packed", False),
    (1, 256, 96, 8, 32, "", True),
    (1, 256, 96, 8, 64, "packed", False),
    (7, 128, 50, 8, 16, "floats", True),
    (4, 100, 64, 4, 32, "packed", False),
    (4, 100, 64, 8, 32, "", False),
    (2, 64, 33, 4, 64, "packed", False),
)


@pytest.mark.parametrize(
    ("rows", "depth", "columns", "bits", "block", "zeros", "bias"),
    part(PRODUCTS, kept=(PRODUCTS[0], *PRODUCTS[2:4], *PRODUCTS[6:9], PRODUCTS[10])),
)
def test_products(
    rows: int,
    depth: int,
    columns: int,
    bits: int,
    block: int,
    zeros: str,
    bias: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Against float64; the kernel reads bytes of steps, and the lineage holds."""
    assumed(MACHINE, tmp_path, monkeypatch)
    case = Product(rows, depth, columns, bits, block, zeros, bias)
    exe = covan_mlir.compile_module(case.model)
    got = np.asarray(exe(case.x))
    bound = 4 * case.terms**0.5 * float(np.finfo(np.float32).eps) * float(np.abs(case.want).max())
    np.testing.assert_allclose(got, case.want, rtol=0, atol=bound)
    (operator,) = exe.lineage.operators()
    sizes = operator.chain.known_sizes
    counts = {np.prod([sizes[axis] for axis in one.axes]) for one in operator.chain.inputs if one.dtype == "i8"}
    assert -(-depth // block) * block * columns in counts
    narrow = product_of(operator.chain).narrow
    assert narrow is not None
    assert narrow.nibbles == (bits == 4)
    assert (narrow.zeros is not None) == (zeros in ("packed", "floats"))
    told = exe.verify()
    # Of an input that is filled up, and two tensors of steps, there are more ways to read than are tried.
    assert told or (depth % block and zeros and told.outcome == "incomplete"), str(told)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"bits": 2}, "its weight has 2 bits"),
        ({"block_size": 16}, "it has 64 scales, not 128"),
        ({"K": 96}, "its weight has 1024 bytes, not 1536"),
    ],
)
def test_refusals_say_why(changes: dict[str, int], why: str) -> None:
    case = Product(1, 64, 32, 4, 32, "", False)
    (only,) = case.model.graph.node
    for attribute in only.attribute:
        if attribute.name in changes:
            attribute.i = changes[attribute.name]
    with pytest.raises(ExportError, match=why):
        covan_mlir.compile_module(case.model)


def test_blocks_in_another_order_are_refused() -> None:
    case = Product(1, 64, 32, 4, 32, "", False)
    (only,) = case.model.graph.node
    only.input.extend(["", "order"])
    case.model.graph.initializer.append(onnx.numpy_helper.from_array(np.zeros(64, np.int32), "order"))
    with pytest.raises(ExportError, match="g_idx"):
        covan_mlir.compile_module(case.model)


@pytest.mark.parametrize("axis", [0, 1])
def test_blocks_of_dequantize_linear(axis: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX's own blocks (opset 21), of bytes without a sign and with zero points: the product reads them."""
    assumed(MACHINE, tmp_path, monkeypatch)
    generator = np.random.default_rng(3)
    shape, blocks = (256, 96), (8, 96) if axis == 0 else (256, 3)
    steps, points = (generator.integers(0, 256, sizes).astype(np.uint8) for sizes in (shape, blocks))
    scales = (generator.random(blocks) / 256 + 0.01).astype(np.float32)
    x = generator.standard_normal((3, 256)).astype(np.float32)
    nodes = [
        node("DequantizeLinear", ["b", "scales", "zeros"], ["real"], axis=axis, block_size=32),
        node("MatMul", ["x", "real"], ["y"]),
    ]
    weights = {"b": steps, "scales": scales, "zeros": points}
    exe = covan_mlir.compile_module(model(nodes, {"x": ("float32", x.shape)}, ["y"], weights, opset=21))
    exact = (steps - np.repeat(points, 32, axis).astype(np.float64)) * np.repeat(scales, 32, axis).astype(np.float64)
    want = x.astype(np.float64) @ exact
    np.testing.assert_allclose(np.asarray(exe(x)), want, rtol=0, atol=1e-5 * np.abs(want).max())
    (operator,) = exe.lineage.operators()
    if axis == 0:  # terms' blocks; columns' are made floats when the program is loaded
        narrow = product_of(operator.chain).narrow
        assert narrow is not None
        assert narrow.grouped
    assert exe.verify().outcome in ("yes", "incomplete")  # as above, of zero points that are integers until then
