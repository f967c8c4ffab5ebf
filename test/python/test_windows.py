"""Windows: reads at affine positions, against loops in Python and against convolutions and pooling of eager PyTorch."""

from __future__ import annotations

import itertools
import logging
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import iree.compiler as compiler
import iree.runtime as runtime
import linalg_loops
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from limits import many, part
from lowered import linalg
from torch import Tensor, nn
from torch_mlir import ir
from torch_mlir.dialects import func

# Makes fred-raise known.
import covan_mlir.lowering.kernels.passes  # noqa: F401
from covan_mlir import dialects
from covan_mlir.dialects.fred_chain import chains, read_chain, write_chain
from covan_mlir.dialects.fred_steps import StepWriter
from covan_mlir.fred.chain import Axis, Chain, ChainError, Input, Reduce
from covan_mlir.fred.expression import Affine, Apply, Const, Read, Window, reads, substitute, windows
from covan_mlir.fred.fuse import fuse
from covan_mlir.fred.interpret import interpret
from covan_mlir.lowering import stages
from covan_mlir.passes.framework.pipeline import parse_pipeline

COMBINES = {"add": (0.0, lambda a, b: a + b), "max": (-math.inf, max)}


@dataclass(frozen=True)
class Correlation:
    """``v[k, h] = combine[r] (x[at...] * w[k, r])`` of integers, which any order sums to the same."""

    sizes: dict[str, int]
    shape: tuple[int, ...]
    at: tuple[Affine, ...]
    outside: float
    combine: Any

    def chain(self) -> Chain:
        own = tuple(Axis(f"p{d}", size) for d, size in enumerate(self.shape))
        axes = (*(Axis(name, size) for name, size in self.sizes.items()), *own)
        inputs = (Input("x", tuple(axis.name for axis in own), "f32"), Input("w", ("k", "r"), "f32"))
        window = Window("x", "f32", self.at, Const(self.outside, "f32"))
        expr = Apply("arith.mulf", (window, Read("w", "f32")), "f32")
        start = Const(COMBINES[self.combine][0], "f32")
        return Chain(axes, inputs, (Reduce("v", ("k", "h"), ("r",), self.combine, expr, start, "f32"),), ("v",))

    def loops(self, x: np.ndarray[Any, Any], w: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        start, combine = COMBINES[self.combine]
        result = np.full((self.sizes["k"], self.sizes["h"]), start, np.float32)
        for k, h, r in itertools.product(*(range(self.sizes[axis]) for axis in "khr")):
            position = {"k": k, "h": h, "r": r}
            places = [at.offset + sum(number * position[axis] for axis, number in at.terms) for at in self.at]
            inside = all(0 <= place < size for place, size in zip(places, self.shape, strict=True))
            element = x[tuple(places)] if inside else self.outside
            result[k, h] = combine(result[k, h], element * w[k, r])
        return result


@st.composite
def correlations(draw: st.DrawFn) -> Correlation:
    sizes = {axis: draw(st.integers(1, 4)) for axis in "khr"}
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    terms = st.dictionaries(st.sampled_from("khr"), st.integers(-3, 3), max_size=3)
    at = tuple(Affine.of(draw(terms).items(), draw(st.integers(-3, 6))) for _ in shape)
    return Correlation(sizes, shape, at, draw(st.sampled_from([0.0, 2.0])), draw(st.sampled_from(sorted(COMBINES))))


def arrays(case: Correlation) -> dict[str, np.ndarray[Any, Any]]:
    random = np.random.default_rng(0)
    shapes = {"x": case.shape, "w": (case.sizes["k"], case.sizes["r"])}
    return {name: random.integers(-9, 9, shape).astype(np.float32) for name, shape in shapes.items()}


@settings(max_examples=60, deadline=None)
@given(correlations())
def test_interpreter_agrees_with_loops(case: Correlation) -> None:
    inputs = arrays(case)
    np.testing.assert_array_equal(interpret(case.chain(), inputs)["v"], case.loops(**inputs))


def program(module: ir.Module) -> Any:
    """The module as a program of IREE's."""
    return runtime.load_vm_flatbuffer(
        compiler.compile_str(str(module), target_backends=["llvm-cpu"], extra_args=["--iree-llvmcpu-target-cpu=host"]),
        driver="local-sync",
    )


@settings(max_examples=many(20, 60), deadline=None)
@given(correlations())
def test_lowered_chains_agree_with_loops(case: Correlation) -> None:
    chain, context = case.chain(), ir.Context()
    dialects.load(context)
    with context, ir.Location.unknown():
        module = ir.Module.create()
        writer = StepWriter(chain.sizes, {}, context)
        kinds = [writer.kind(value.axes, value.dtype) for value in (*chain.inputs, *chain.steps)]
        with ir.InsertionPoint(module.body):
            function = func.FuncOp("f", (kinds[:2], kinds[2:]))
            with ir.InsertionPoint(function.add_entry_block()):
                op = write_chain(chain, list(function.arguments))
                assert read_chain(op) == chain
                func.ReturnOp(list(op.results))
        del op
        parse_pipeline("builtin.module(func.func(fred-lower))").run(module)
        inputs = arrays(case)
        lowered = linalg_loops.run(function.operation, list(inputs.values()))
    np.testing.assert_array_equal(lowered, case.loops(**inputs))


@dataclass(frozen=True)
class Layer:
    """A layer, and the size of its input."""

    module: Callable[[], nn.Module]
    shape: tuple[int, ...]


CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
POOLS = ((nn.MaxPool1d, nn.AvgPool1d), (nn.MaxPool2d, nn.AvgPool2d), (nn.MaxPool3d, nn.AvgPool3d))


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    rank = draw(st.sampled_from([1, 2, 2, 3]))
    kernel = tuple(draw(st.integers(1, 3)) for _ in range(rank))
    stride = tuple(draw(st.integers(1, 2)) for _ in range(rank))
    batch = draw(st.integers(1, 2))
    if draw(st.integers(0, 3)) == 0:
        kind = POOLS[rank - 1][draw(st.integers(0, 1))]
        padding = tuple(draw(st.integers(0, size // 2)) for size in kernel)
        sizes = tuple(draw(st.integers(size, size + 4)) for size in kernel)
        return Layer(lambda: kind(kernel, stride, padding), (batch, draw(st.integers(1, 3)), *sizes))
    dilation = tuple(draw(st.integers(1, 2)) for _ in range(rank))
    padding = tuple(draw(st.integers(0, 2)) for _ in range(rank))
    # Of grouped convolutions, torch-mlir lowers those of images, and those of one channel a group.
    groups = draw(st.sampled_from([1, 2, 4] if rank == 2 else [1]))
    inside, outside = (groups * draw(st.integers(1, 3)) for _ in range(2))
    least = [d * (k - 1) + 1 - 2 * p for d, k, p in zip(dilation, kernel, padding, strict=True)]
    sizes = tuple(draw(st.integers(max(1, size), max(1, size) + 4)) for size in least)
    bias = draw(st.booleans())
    return Layer(
        lambda: CONVOLUTIONS[rank - 1](inside, outside, kernel, stride, padding, dilation, groups, bias),
        (batch, inside, *sizes),
    )


class Several(nn.Module):
    """Layers side by side."""

    def __init__(self, modules: list[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(modules)

    def forward(self, inputs: list[Tensor]) -> list[Tensor]:
        return [layer(x) for layer, x in zip(self.layers, inputs, strict=True)]


def raised(model: nn.Module, args: tuple[Any, ...], dynamic: Any = None) -> ir.Module:
    module = linalg(model, args, dynamic)
    parse_pipeline("builtin.module(func.func(fred-raise))").run(module)
    return module


def chains_of(module: ir.Module) -> list[Chain]:
    return [read_chain(op) for op in chains(module.operation, "fred.chain")]


@settings(max_examples=3, deadline=None)
@given(st.lists(layers(), min_size=4, max_size=4))
def test_raised_and_lowered_again_computes_the_same(cases: list[Layer]) -> None:
    torch.manual_seed(0)
    model = Several([case.module() for case in cases]).eval()
    inputs = [torch.randn(case.shape) for case in cases]
    module = raised(model, (inputs,))
    assert "tensor.pad" not in str(module)
    parse_pipeline("builtin.module(func.func(fred-lower))").run(module)
    results = program(module).main(*[x.numpy() for x in inputs])
    for result, expected in zip(results, model(inputs), strict=True):
        np.testing.assert_allclose(np.asarray(result.to_host()), expected.detach().numpy(), rtol=1e-4, atol=1e-5)


def normalised(x: Tensor, activation: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(x.shape[1], 6, 3, 2, 1, bias=False), nn.BatchNorm2d(6), activation).eval()


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.conv(x) + x)


IMAGE = (2, 4, 9, 8)
# name: the model, and for each chain its reductions and whether it reads a window
MODELS: dict[str, tuple[Callable[[], nn.Module], list[tuple[int, bool]]]] = {
    "norm and relu": (lambda: normalised(torch.empty(IMAGE), nn.ReLU()), [(1, True)]),
    "norm and gelu": (lambda: normalised(torch.empty(IMAGE), nn.GELU()), [(1, True)]),
    "residual": (Residual, [(1, True)]),
    "one behind the other": (lambda: nn.Sequential(nn.Conv2d(4, 5, 2), nn.ReLU(), nn.Conv2d(5, 3, 3)), [(1, True)] * 2),
    "single points": (lambda: nn.Conv2d(4, 5, 1), [(1, False)]),
    "before a softmax": (lambda: nn.Sequential(nn.Conv2d(4, 5, 3), nn.Softmax(-1)), [(1, True), (2, False)]),
    "pooled": (lambda: nn.Sequential(nn.Conv2d(4, 5, 3), nn.ReLU(), nn.MaxPool2d(3, 2, 1)), [(1, True)] * 2),
    "pooled side by side": (lambda: nn.MaxPool2d(2), [(1, True)]),
    "depthwise": (lambda: nn.Conv2d(4, 4, (3, 5), 2, (1, 2), groups=4), [(1, True)]),
    "transposed": (lambda: nn.ConvTranspose2d(4, 6, 3, 2, 1, output_padding=1), [(1, True)]),
}


@pytest.mark.parametrize("name", part(MODELS, kept=("one behind the other", "before a softmax", "transposed")))
def test_what_is_computed_with_a_convolution(name: str) -> None:
    torch.manual_seed(0)
    make, expected = MODELS[name]
    model, x = make().eval(), torch.randn(IMAGE)
    module = raised(model, (x,))
    assert [(len(chain.reductions), bool(chain.windowed)) for chain in chains_of(module)] == expected
    parse_pipeline("builtin.module(func.func(fred-lower))").run(module)
    result = np.asarray(program(module).main(x.numpy()).to_host())
    np.testing.assert_allclose(result, model(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_open_batch() -> None:
    torch.manual_seed(0)
    model = normalised(torch.empty(IMAGE), nn.ReLU())
    module = raised(model, (torch.randn(IMAGE),), ({0: torch.export.Dim("batch", min=2)},))
    (chain,) = chains_of(module)
    assert len(chain.extents) == 1
    assert chain.windowed
    parse_pipeline("builtin.module(func.func(fred-lower))").run(module)
    x = torch.randn(5, *IMAGE[1:])
    result = np.asarray(program(module).main(x.numpy()).to_host())
    np.testing.assert_allclose(result, model(x).detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("vulkan:lavapipe", "through a window, which no template for vulkan takes"),
        ("cuda:sm_90", "it does not pay|it is no sum from 0 on|Triton is not installed"),
    ],
)
def test_without_a_kernel_programs_stay_as_they_are(target: str, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    module = linalg(nn.Sequential(nn.Conv2d(4, 5, 2), nn.ReLU(), nn.MaxPool2d(2)), (torch.randn(IMAGE),))
    before = str(module)
    with caplog.at_level(logging.INFO, "covan_mlir"):
        parse_pipeline(f"builtin.module(func.func(fred-raise{{target={target}}}))").run(module)
    decisions, _ = stages.take_off(module)
    assert str(module) == before
    assert len(decisions) >= 2  # a convolution and a pooling, with and without what is computed from them
    for decision in decisions:
        assert re.search(reason, decision.reason)


def test_flops_are_those_of_the_convolution() -> None:
    (chain,) = chains_of(raised(nn.Conv2d(4, 6, 3, 2, 1, groups=2), (torch.randn(IMAGE),)))
    assert chain.contraction_flops == 2 * 2 * (6 * 5 * 4) * (2 * 3 * 3)
    (chain,) = chains_of(raised(nn.MaxPool2d(3, 2, 1), (torch.randn(IMAGE),)))
    assert chain.contraction_flops == 0


CASE = Correlation({"k": 2, "h": 3, "r": 2}, (4,), (Affine.of([("h", 1), ("r", 1)], -1),), 0.0, "add")


def test_sums_are_equal_whatever_their_order() -> None:
    assert Affine.of([("r", 1), ("h", 2), ("k", 3), ("k", -3)], 1) == Affine((("h", 2), ("r", 1)), 1)
    assert Affine.of([("h", 2), ("r", -1)], 1).bounds({"h": 4, "r": 3}) == (-1, 7)
    assert (Affine.of([("h", 1)]).axis, Affine.of([("h", 2)]).axis, Affine.of([("h", 1)], 1).axis) == ("h", None, None)


def test_windows_in_expressions() -> None:
    (step,) = CASE.chain().steps
    (window,) = windows(step.expr)
    assert reads(step.expr) == {"x", "w"}
    (renamed,) = windows(substitute(step.expr, {"x": Read("y", "f32")}))
    assert (renamed.name, renamed.at) == ("y", window.at)
    with pytest.raises(ValueError, match="x is read through a window, and is to be an expression"):
        substitute(step.expr, {"x": Const(0.0, "f32")})


def test_there_is_no_fused_form() -> None:
    with pytest.raises(ChainError, match="reads x through a window: it has no fused form"):
        fuse(CASE.chain())


@pytest.mark.parametrize(
    ("window", "message"),
    [
        (Window("v0", "f32", CASE.at, Const(0.0, "f32")), "reads v0 through a window, and v0 is not an input"),
        (Window("x", "f32", CASE.at * 2, Const(0.0, "f32")), "reads x, which has 1 dimensions, at 2 positions"),
        (Window("x", "f32", (Affine.of([("p0", 1)]),), Const(0.0, "f32")), "along ['p0'], where it has no position"),
        (Window("x", "f32", CASE.at, Const(0, "i64")), "reads x as f32, and i64 outside of it"),
    ],
)
def test_malformed_windows(window: Window, message: str) -> None:
    chain = CASE.chain()
    (step,) = chain.reductions
    broken = Reduce("v1", step.axes, step.over, "add", window, step.initial, "f32")
    first = Reduce("v0", step.axes, step.over, "add", step.expr, step.initial, "f32")
    with pytest.raises(ChainError) as error:
        Chain(chain.axes, chain.inputs, (first, broken), ("v1",))
    assert message in str(error.value)
