"""Operators: what a chain is recognised as, what its integers mean, and that kernels compute that."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dense_chains import assumed
from hypothesis import given
from hypothesis import strategies as st
from plain_chains import Writer
from test_integer_products import HOST, runs
from torch import Tensor, nn
from torch.ao.quantization.fx import _decomposed  # noqa: F401 - declares the operators

import covan_mlir
from covan_mlir.fred.chain import Chain
from covan_mlir.fred.expression import Affine, Apply, Const, Expr, Read, Window
from covan_mlir.kir.graph import OperatorNode, difference
from covan_mlir.kir.interpretation import Overflow, interpret
from covan_mlir.kir.operators import Contraction, Factor, Requantization
from covan_mlir.kir.recognition import operator_of
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.select import Selection, select
from covan_mlir.lowering.kernels.standalone import Standalone

PAGE = Path(__file__).resolve().parents[2] / "docs" / "kir.md"
ops = torch.ops.quantized_decomposed
U8, S8 = (0, 255, torch.uint8), (-128, 127, torch.int8)
SIGNED, UNSIGNED = "arith.extsi", "arith.extui"


def f32(number: float) -> Const:
    return Const(number, "f32")


def apply(op: str, *args: Expr, dtype: str = "f32") -> Apply:
    return Apply(op, args, dtype)


def quantized(real: Expr, inverse: float, zero: int, least: int, largest: int) -> Apply:
    """What PT2E's ``quantize_per_tensor`` is, of an expression."""
    steps = apply("arith.addf", apply("math.roundeven", apply("arith.mulf", real, f32(inverse))), f32(float(zero)))
    for bound, side in ((least, "olt"), (largest, "ogt")):
        edge = f32(float(bound))
        steps = apply("arith.select", apply(f"arith.cmpf:{side}", steps, edge, dtype="i1"), edge, steps)
    return apply("arith.trunci", apply("arith.fptosi", steps, dtype="i32"), dtype="i8")


@dataclasses.dataclass(frozen=True)
class Numbers:
    """Of a layer: how its steps are read."""

    left: str = UNSIGNED
    right: str = SIGNED
    zero: int = 121


def layer(numbers: Numbers, x: Expr, axes: dict[str, str], over: str, sizes: dict[str, int]) -> Chain:
    """``quantised(relu(sums * 0.03125 * scales + bias))``; the sums' second axis is that of scales and bias.

    Args:
        x: how the first factor is read.
        axes: of the factors and the sums.
    """
    w = Writer("f32", **sizes)
    result = axes["sums"]
    w.input("x", axes["x"], "i8")
    w.input("w", axes["w"], "i8")
    scales, bias = (w.input(name, result[1]) for name in ("scales", "bias"))
    left = apply("arith.subi", apply(numbers.left, x, dtype="i32"), Const(numbers.zero, "i32"), dtype="i32")
    right = apply(numbers.right, Read("w", "i8"), dtype="i32")
    w.reduce("sums", result, "add", over, apply("arith.muli", left, right, dtype="i32"))
    scaled = apply("arith.mulf", apply("arith.sitofp", Read("sums", "i32")), f32(0.03125))
    real = apply("arith.addf", bias, apply("arith.mulf", scaled, scales))
    w.map("kept", result, apply("arith.select", apply("arith.cmpf:ugt", real, f32(0.0), dtype="i1"), real, f32(0.0)))
    w.map("y", result, quantized(w.read("kept"), 12.5, 3, -128, 127))
    return w.chain("y")


def linear(i: int, j: int, k: int, numbers: Numbers = Numbers()) -> Chain:
    return layer(numbers, Read("x", "i8"), {"x": "ik", "w": "jk", "sums": "ij"}, "k", {"i": i, "j": j, "k": k})


@dataclasses.dataclass(frozen=True)
class Shape:
    """Of a convolution."""

    batch: int = 2
    channels: int = 3
    filters: int = 4
    image: tuple[int, int] = (6, 7)
    window: tuple[int, int] = (3, 2)
    stride: int = 1
    dilation: int = 1
    padding: int = 1

    @property
    def result(self) -> tuple[int, ...]:
        """Its height and width."""
        reach = [self.dilation * (size - 1) + 1 for size in self.window]
        return tuple((n + 2 * self.padding - r) // self.stride + 1 for n, r in zip(self.image, reach, strict=True))


def convolution(shape: Shape, numbers: Numbers = Numbers()) -> Chain:
    """In a byte, what stands for 0 may have a sign that its step has not."""
    held = numbers.zero - 256 if numbers.zero > 127 else numbers.zero
    places = [Affine.of([(axis, shape.stride), (tap, shape.dilation)], -shape.padding) for axis, tap in ("hr", "vs")]
    at = (Affine.of([("n", 1)]), Affine.of([("c", 1)]), *places)
    sizes = {"n": shape.batch, "k": shape.filters, "c": shape.channels}
    sizes |= dict(zip("HV", shape.image, strict=True)) | dict(zip("rs", shape.window, strict=True))
    sizes |= dict(zip("hv", shape.result, strict=True))
    x = Window("x", "i8", at, Const(held, "i8"))
    return layer(numbers, x, {"x": "ncHV", "w": "kcrs", "sums": "nkhv"}, "crs", sizes)


def arrays(chain: Chain, numbers: Numbers, seed: int) -> dict[str, np.ndarray[Any, Any]]:
    """Inputs of a layer: steps as they are, unsigned ones as such."""
    generator = np.random.default_rng(seed)
    known = chain.known_sizes
    shapes = {value.name: [known[axis] for axis in value.axes] for value in chain.inputs}
    steps = {
        name: generator.integers(*((-128, 128) if ext == SIGNED else (0, 256)), shapes[name]).astype(
            np.int8 if ext == SIGNED else np.uint8
        )
        for name, ext in (("x", numbers.left), ("w", numbers.right))
    }
    scales, bias = generator.random(shapes["scales"]) / 400, generator.standard_normal(shapes["bias"])
    return {**steps, "scales": scales.astype(np.float32), "bias": bias.astype(np.float32)}


def as_torch(sums: Tensor, given: dict[str, np.ndarray[Any, Any]]) -> Tensor:
    """What PyTorch's exporter says of exact sums, each operation of torch's rounded once."""
    along = [-1 if axis == 1 else 1 for axis in range(sums.dim())]
    scales, bias = (torch.from_numpy(given[name]).reshape(along) for name in ("scales", "bias"))
    real = torch.relu(sums.float() * 0.03125 * scales + bias)
    steps: Tensor = ops.quantize_per_tensor(real, 1 / 12.5, 3, *S8)
    return steps


NUMBERS = st.one_of(
    st.builds(Numbers, st.just(UNSIGNED), st.sampled_from([SIGNED, UNSIGNED]), st.integers(0, 255)),
    st.builds(Numbers, st.just(SIGNED), st.sampled_from([SIGNED, UNSIGNED]), st.integers(-128, 127)),
)
SHAPES = st.builds(
    Shape,
    batch=st.integers(1, 3),
    channels=st.integers(1, 5),
    filters=st.integers(1, 5),
    image=st.tuples(st.integers(5, 9), st.integers(5, 9)),
    window=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 2),
    padding=st.integers(0, 2),
)


@given(NUMBERS, st.tuples(st.integers(1, 9), st.integers(1, 9), st.integers(1, 40)), st.integers(0, 2**32))
def test_products_mean_what_torch_says(numbers: Numbers, sizes: tuple[int, int, int], seed: int) -> None:
    """To the bit: sums as integers of 64 bits, and torch's own quantisation of what they stand for."""
    chain = linear(*sizes, numbers)
    given = arrays(chain, numbers, seed)
    sums = torch.from_numpy(given["x"]).long().sub(numbers.zero) @ torch.from_numpy(given["w"]).long().T
    np.testing.assert_array_equal(interpret(chain, given)["y"], as_torch(sums, given).numpy())


@given(NUMBERS, SHAPES, st.integers(0, 2**32))
def test_convolutions_mean_what_torch_says(numbers: Numbers, shape: Shape, seed: int) -> None:
    """To the bit: what is outside of an image is 0, and not the step 0."""
    chain = convolution(shape, numbers)
    given = arrays(chain, numbers, seed)
    x = torch.from_numpy(given["x"]).double() - numbers.zero  # exact: all sums have fewer than 53 bits
    sums = nn.functional.conv2d(
        x,
        torch.from_numpy(given["w"]).double(),
        padding=shape.padding,
        stride=shape.stride,
        dilation=shape.dilation,
    )
    np.testing.assert_array_equal(interpret(chain, given)["y"], as_torch(sums.long(), given).numpy())


def test_what_operators_say() -> None:
    operator = operator_of(convolution(Shape(stride=2), Numbers(zero=200)))
    assert operator.kind == "convolution"
    at = (Affine.of([("n", 1)]), Affine.of([("c", 1)]))
    at += (Affine.of([("h", 2), ("r", 1)], -1), Affine.of([("v", 2), ("s", 1)], -1))
    weight = Factor("w", True, 0, tuple(Affine.of([(axis, 1)]) for axis in "kcrs"))
    assert operator.contraction == Contraction(
        "sums",
        tuple("nkhv"),
        tuple("crs"),
        Factor("x", False, 200, at, outside=200),
        weight,
        (0.03125, "scales"),
    )
    assert operator.results == (Requantization(Read("kept", "f32"), 12.5, 3, -128, 127),)
    assert operator_of(linear(2, 3, 4)).kind == "linear"


def test_what_is_no_product_of_steps() -> None:
    """Of floats, of other sums than a multiplication's, and of more than one."""
    w = Writer("f32", i=3, k=5)
    x = w.input("x", "ik")
    w.reduce("sums", "i", "add", "k", apply("arith.mulf", x, x))
    operator = operator_of(w.chain("sums"))
    assert (operator.kind, operator.contraction, operator.results) == ("reduction", None, (None,))
    plain = linear(2, 3, 4)
    (sums,) = plain.reductions
    for changed in (
        dataclasses.replace(sums, combine="max"),
        dataclasses.replace(sums, initial=Const(1, "i32")),
        dataclasses.replace(sums, expr=apply("arith.addi", *sums.expr.args, dtype="i32")),
    ):
        steps = tuple(changed if step is sums else step for step in plain.steps)
        assert operator_of(dataclasses.replace(plain, steps=steps)).contraction is None


def test_sums_that_do_not_fit() -> None:
    numbers = Numbers(SIGNED, SIGNED, 0)
    chain = linear(1, 1, 200_000, numbers)
    given = arrays(chain, numbers, 0) | {"x": np.full((1, 200_000), -128, np.int8)}
    given["w"] = np.full((1, 200_000), -128, np.int8)
    with pytest.raises(Overflow, match="sums has more than 32 bits"):
        interpret(chain, given)


class Layers(nn.Module):
    """A convolution with a residual, and a product; all that is done with their sums is exact arithmetic."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.randint(-128, 128, (8, 8, 3, 3), dtype=torch.int8))
        self.register_buffer("matrix", torch.randint(-128, 128, (32, 8 * 36), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(8) / 3000)
        self.bias = nn.Parameter(torch.randn(8))

    def forward(self, x: Tensor) -> Tensor:
        x = ops.dequantize_per_tensor(ops.quantize_per_tensor(x, 0.03, 121, *U8), 0.03, 121, *U8)
        window = ops.dequantize_per_channel(self.window, self.scales, torch.zeros(8, dtype=torch.int64), 0, *S8)
        y = torch.relu(nn.functional.conv2d(x, window, self.bias, padding=1) + x)
        y = ops.dequantize_per_tensor(ops.quantize_per_tensor(y, 0.02, 0, *U8), 0.02, 0, *U8)
        matrix = ops.dequantize_per_tensor(self.matrix, 0.0004, 0, *S8)
        z = nn.functional.linear(y.flatten(1), matrix)
        steps: Tensor = ops.quantize_per_tensor(z, 0.05, 7, *S8)
        return steps


@runs
def test_kernels_compute_what_operators_mean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the bit, of all kernels of a model that multiply steps, on steps of all sizes."""
    assumed(HOST, tmp_path, monkeypatch)
    torch.manual_seed(0)
    exe = covan_mlir.compile_module(Layers().eval(), (torch.randn(2, 8, 6, 6),))
    placed = [one for one in exe.lineage.operators() if one.kernel]
    chains, operators = [one.chain for one in placed], [one.operator for one in placed]
    performed = [[action.name for action in one.actions] for one in placed]
    assert {"conv2d", "relu", "add", "quantize_per_tensor_1"} <= {*performed[0]}
    assert {"linear", "quantize_per_tensor_2"} <= {*performed[1]}
    assert [operator.kind for operator in operators] == ["convolution", "linear"]
    told = [operator.contraction for operator in operators]
    assert [(one.first.signed, one.first.zero, one.second.zero) for one in told if one] == [
        (False, 121, 0),
        (False, 0, 0),
    ]
    generator = np.random.default_rng(1)
    for number, chain in enumerate(chains):
        given = {
            value.name: (
                generator.integers(-128, 128, shape).astype(np.int8)
                if value.dtype == "i8"
                else (generator.standard_normal(shape) / 300).astype(np.float32)
            )
            for value in chain.inputs
            for shape in [[chain.known_sizes[axis] for axis in value.axes]]
        }
        chosen = select(chain, f"k{number}", CpuTarget(HOST), always=True)
        assert isinstance(chosen, Selection), chosen
        alone = Standalone([chosen.executable])
        got = alone[chosen.executable.name](*(alone.buffer(given[value.name]) for value in chain.inputs))
        want = interpret(chain, given)
        for output, result in zip(chain.outputs, got if len(chain.outputs) > 1 else [got], strict=True):
            np.testing.assert_array_equal(np.asarray(result.to_host()), want[output], chosen.template)


def test_the_page_tells_what_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a float model to an artifact, as it stands there."""
    program = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert program is not None
    monkeypatch.chdir(tmp_path)
    (file := tmp_path / "story.py").write_text(program[1])
    exec(compile(program[1], str(file), "exec"), {"__name__": "story"})


def test_graphs_are_told_apart() -> None:
    """By labels, by who reads whom, and by how many there are; not by the order in which they stand."""
    node = OperatorNode
    graph = (node("a"), node("a"), node("b", (0,)), node("c", (1, 2)))
    assert not difference(graph, graph)
    assert not difference(graph, (node("a"), node("a"), node("b", (1,)), node("c", (0, 2))))
    assert difference(graph, graph[:3]) == "there are 0 of c, and there were 1"
    merged = (node("a"), node("b", (0,)), node("c", (0, 1)))
    assert difference(graph, merged) == "there are 1 of a, and there were 2"
    crossed = (node("a"), node("a"), node("b", (0,)), node("c", (0, 2)))
    assert "reads" in difference(graph, crossed)
