"""What differentiates operators: rules against eager PyTorch's own kernels, and a sample of operators compiled."""

from __future__ import annotations

import logging
import math
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import gradients
import opinfo_samples
from opinfo_samples import Key

import covan_mlir
from covan_mlir.frontend.rules import RULES
from covan_mlir.training.aot import differentiable

aten = torch.ops.aten


class _ByRules(TorchDispatchMode):
    """Asks rules what they give for the backward operators that eager runs, and compares."""

    def __init__(self, needed: str) -> None:
        super().__init__()
        self.needed, self.asked = needed, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if self.needed in func._schema.name:
            ours = RULES[func](*args, **(kwargs or {}))
            torch.testing.assert_close(ours, result)
            self.asked += 1
        return result


def compare_rule(needed: str, function: Callable[..., Tensor], *tensors: Tensor) -> None:
    """Compare the rule of the operators of that name with eager, where these differentiate a function."""
    learning = [x.clone().requires_grad_() if x.is_floating_point() else x for x in tensors]
    try:
        result = function(*learning)
    except RuntimeError:  # eager refuses such sizes
        assume(False)
    weights = torch.randn(result.shape, generator=torch.Generator().manual_seed(1), dtype=result.dtype)
    with _ByRules(needed) as mode:
        torch.autograd.grad(result, [x for x in learning if x.requires_grad], weights)
    assert mode.asked


def _random(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(math.prod(shape)), dtype=dtype)


def _numbers(least: int, most: int, count: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(least, most), min_size=count, max_size=count)


@given(st.data(), st.integers(2, 3))
def test_means_of_windows(data: st.DataObject, axes: int) -> None:
    sizes, kernel = data.draw(_numbers(3, 8, axes)), data.draw(_numbers(1, 4, axes))
    stride = data.draw(_numbers(1, 4, axes))
    padding = [data.draw(st.integers(0, k // 2)) for k in kernel]
    options = data.draw(st.booleans()), data.draw(st.booleans()), data.draw(st.sampled_from([None, 3]))
    pool = F.avg_pool2d if axes == 2 else F.avg_pool3d
    x = _random(2, *([3] if data.draw(st.booleans()) else []), *sizes)
    compare_rule("avg_pool", lambda x: pool(x, kernel, stride, padding, *options), x)


@given(st.data(), st.integers(2, 3))
def test_largest_of_windows(data: st.DataObject, axes: int) -> None:
    sizes, kernel = data.draw(_numbers(3, 8, axes)), data.draw(_numbers(1, 4, axes))
    stride, dilation = data.draw(_numbers(1, 4, axes)), data.draw(_numbers(1, 2, axes))
    padding = [data.draw(st.integers(0, k // 2)) for k in kernel]
    pool = F.max_pool2d if axes == 2 else F.max_pool3d
    ceil_mode = data.draw(st.booleans())
    x = _random(2, 3, *sizes).round()  # many are equal
    compare_rule("max_pool", lambda x: pool(x, kernel, stride, padding, dilation, ceil_mode), x)


@given(st.data(), st.integers(2, 3))
def test_windows_where_random_numbers_say(data: st.DataObject, axes: int) -> None:
    kernel, places = data.draw(_numbers(1, 3, axes)), data.draw(_numbers(1, 4, axes))
    sizes = [k + count + data.draw(st.integers(0, 5)) for k, count in zip(kernel, places, strict=True)]
    op = aten.fractional_max_pool2d.default if axes == 2 else aten.fractional_max_pool3d.default
    given = _random(2, 3, *sizes).round(), kernel, places, torch.rand(2, 3, axes, dtype=torch.float64)
    torch.testing.assert_close(RULES[op](*given), op(*given), rtol=0, atol=0)


@given(_numbers(1, 7, 3), _numbers(1, 5, 3), st.sampled_from(["avg", "max"]), st.integers(2, 3))
def test_windows_of_different_sizes(sizes: list[int], places: list[int], kind: str, axes: int) -> None:
    assume(sizes[:axes] != places[:axes] and math.prod(places[:axes]) > 1)  # else eager's is the mean
    pool = getattr(F, f"adaptive_{kind}_pool{axes}d")
    compare_rule("adaptive", lambda x: pool(x, places[:axes]), _random(2, 3, *sizes[:axes]))


@given(st.data(), st.integers(1, 3), st.sampled_from(["replicate", "reflect"]))
def test_padding(data: st.DataObject, axes: int, mode: str) -> None:
    sizes, widths = data.draw(_numbers(4, 6, axes)), data.draw(_numbers(-1, 3, 2 * axes))
    assume(any(widths))
    compare_rule("pad", lambda x: F.pad(x, widths, mode), _random(2, 3, *sizes))


RESIZED = ("nearest", "nearest-exact", "linear", "bicubic", "antialiased bilinear", "antialiased bicubic")


@given(st.data(), st.sampled_from(RESIZED))
def test_resizing(data: st.DataObject, mode: str) -> None:
    *aliases, name = mode.split()
    axes = 2 if aliases or name == "bicubic" else data.draw(st.integers(1, 3))
    name = {1: "linear", 2: "bilinear", 3: "trilinear"}[axes] if name == "linear" else name
    how: dict[str, Any] = {"mode": name, "antialias": bool(aliases)}
    if data.draw(st.booleans()):
        how["size"] = data.draw(_numbers(1, 12, axes))
    else:
        factors = st.sampled_from([0.5, 0.8, 1.7, 2.0, 3.0])
        how["scale_factor"] = data.draw(st.lists(factors, min_size=axes, max_size=axes))
    if "nearest" not in name:
        how["align_corners"] = data.draw(st.booleans())
    x = _random(2, 3, *data.draw(_numbers(2, 6, axes)))
    compare_rule("upsample", lambda x: F.interpolate(x, **how), x)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("sizes", [(5, 4), (1, 3), (3, 4, 5)])
def test_sampling(mode: str, padding: str, corners: bool, sizes: tuple[int, ...]) -> None:
    if mode == "bicubic" and len(sizes) == 3:
        pytest.skip("of pictures alone")

    def sampled(x: Tensor, grid: Tensor) -> Tensor:
        return F.grid_sample(x, grid, mode, padding, corners)

    grid = _random(2, *(size + 1 for size in sizes), len(sizes)) * 1.5
    compare_rule("grid_sampler", sampled, _random(2, 3, *sizes), grid)


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, math.inf])
def test_distances(p: float) -> None:
    a, b = _random(2, 4, 3), _random(2, 5, 3)
    b[0, 1] = a[0, 2]
    b[1, 0, 1] = a[1, 0, 1]
    compare_rule("_cdist", lambda a, b: torch.cdist(a, b, p), a, b)
    compare_rule("_pdist", lambda x: F.pdist(x, p), torch.cat([a[0], a[0, :1]]))


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "mish": F.mish,
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "rrelu_with_noise": lambda x: F.rrelu(x, training=True),
    "_weight_norm": lambda x: torch._weight_norm_interface(x, x[:, :1].abs() + 1, 0)[0],
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name: str) -> None:
    compare_rule(name, ACTIVATIONS[name], _random(5, 4))


def test_activations_that_draw_outside_training() -> None:
    op, given = aten.rrelu_with_noise_functional.default, (_random(5, 4), _random(5, 4), 0.1, 0.4, False)
    torch.testing.assert_close(RULES[op](*given), op(*given))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("p", [1, 2])
def test_margins(reduction: str, p: int) -> None:
    x, weight = _random(4, 5), _random(5).abs()
    label = torch.tensor([3, 0, 4, 3])
    labels = torch.tensor([[1, 3, -1, 0, 2], [4, -1, 1, 1, 1], [-1, 0, 1, 2, 3], [0, 1, 2, 3, 4]])
    compare_rule("multi_margin", lambda x: F.multi_margin_loss(x, label, p, 0.7, weight, reduction=reduction), x)
    compare_rule("multilabel", lambda x: F.multilabel_margin_loss(x, labels, reduction=reduction), x)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
def test_segments(reduce: str) -> None:
    x = _random(6, 3)
    x[3, 1] = 0
    compare_rule(
        "_segment_reduce", lambda x: torch.segment_reduce(x, reduce, lengths=torch.tensor([3, 0, 2, 1]), axis=0), x
    )


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 2])
def test_bags(mode: str, padding: int | None) -> None:
    indices, offsets = torch.tensor([1, 2, 2, 0, 6, 2, 4, 1, 1]), torch.tensor([0, 2, 2, 5])

    def bags(table: Tensor) -> Tensor:
        return F.embedding_bag(indices, table, offsets, mode=mode, padding_idx=padding)

    compare_rule("_embedding_bag", bags, _random(7, 3))


def test_bags_of_weighted_rows() -> None:
    indices, offsets = torch.tensor([1, 2, 2, 0, 6]), torch.tensor([0, 2])

    def bags(table: Tensor, weights: Tensor) -> Tensor:
        return F.embedding_bag(indices, table, offsets, mode="sum", per_sample_weights=weights)

    compare_rule("_embedding_bag", bags, _random(7, 3), _random(5))


def test_what_a_mask_took() -> None:
    mask = torch.tensor([[True, False, True, True], [False, True, False, True]])
    compare_rule("masked_scatter", lambda x, source: x.masked_scatter(mask, source), _random(2, 4), _random(3, 3))


@given(st.data(), _numbers(1, 7, 2), st.integers(-2, 1), st.integers(1, 3))
def test_windows_side_by_side(data: st.DataObject, sizes: list[int], dim: int, step: int) -> None:
    size = data.draw(st.integers(1, sizes[dim]))
    compare_rule("unfold", lambda x: x.unfold(dim, size, step), _random(*sizes))


def test_a_matrix_without_an_inverse_is_an_error_as_in_eager(caplog: pytest.LogCaptureFixture) -> None:
    class Solve(torch.nn.Module):
        def forward(self, a: Tensor, b: Tensor) -> list[Tensor]:
            return [torch.linalg.solve(a, b)]

    a, b = (_random(*shape).requires_grad_() for shape in ((3, 3), (3, 2)))
    run = differentiable(Solve(), [a, b], ["a", "b"], covan_mlir.compile_module)
    expected = torch.autograd.grad(torch.linalg.solve(a, b).sum(), [a, b])
    torch.testing.assert_close(torch.autograd.grad(run(a, b)[0].sum(), [a, b]), expected)
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        run(torch.zeros(3, 3, dtype=a.dtype, requires_grad=True), b)
    assert not [record for record in caplog.records if record.levelno > logging.INFO]  # nothing ran in eager mode


class _Of(torch.nn.Module):
    """A function as a graph."""

    def __init__(self, function: Callable[..., list[Tensor]]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Tensor) -> list[Tensor]:
        return self.function(*tensors)


def test_views_that_begin_where_a_tensor_says(caplog: pytest.LogCaptureFixture) -> None:
    """Of an argument, of what is returned as well, of what is computed."""
    graph = _Of(lambda x, start: [x.narrow(0, start, 2), y := x.t().sin(), view := y.narrow(1, start, 2), view.exp()])
    x = _random(5, 4)
    run = differentiable(
        graph, [x.clone().requires_grad_(), torch.tensor(1)], ["x", "start"], covan_mlir.compile_module
    )
    for start in map(torch.tensor, (1, 3, -4)):  # it is traced with the first
        own, eager = x.clone().requires_grad_(), x.clone().requires_grad_()
        results, expected = run(own, start), graph(eager, start)
        torch.testing.assert_close(results, expected)
        weights = [_random(*result.shape) for result in expected]
        slopes = (torch.autograd.grad(y, of, weights) for y, of in ((results, own), (expected, eager)))
        torch.testing.assert_close(*slopes)
    assert not [record for record in caplog.records if record.levelno > logging.INFO]  # nothing ran in eager mode


def test_conjugates_that_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    graph = _Of(lambda x: [(torch.complex(x, x.exp()) @ torch.complex(x, 2 * x)).mH.sin().abs()])
    own, eager = _random(3, 3).requires_grad_(), _random(3, 3).requires_grad_()
    run = differentiable(graph, [own], ["x"], covan_mlir.compile_module)
    weights = _random(3, 3) + 1
    expected = torch.autograd.grad(graph(eager), eager, weights)
    torch.testing.assert_close(torch.autograd.grad(run(own), own, weights), expected)
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


COMPILED = (
    "nn.functional.max_pool2d", "nn.functional.avg_pool2d", "nn.functional.adaptive_avg_pool2d", "cdist",
    "nn.functional.mish", "nn.functional.pad.replicate", "nn.functional.interpolate.bilinear", "masked_scatter",
    "nn.functional.grid_sample", "nn.functional.embedding_bag", "expand", "nn.functional.layer_norm", "gather",
)  # fmt: skip
"""Of these some are drawn for each dtype."""


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_a_few_operators_compiled(dtype: str) -> None:
    draw = random.Random(dtype)
    for op in draw.sample(COMPILED, 3):
        key = Key(op, dtype, draw.randrange(len(opinfo_samples.samples(op, dtype))))
        outcome, reason, verdicts = gradients.judged(key, gradients.Question(verify=True))
        assert outcome in {"agrees", "no gradients"}, f"{key}: {reason}"
        assert all(verdict == ("yes", "") for verdict in verdicts), f"{key}: {verdicts}"


class _Steepness(torch.nn.Module):
    """The squares of a function's slopes, whose gradients are of second order."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> list[Tensor]:
        slope = torch.func.grad(lambda x: (self.function(x) ** 2).sum())(x)
        return [(slope**2).sum()]


TWICE: dict[str, Callable[[Tensor], Tensor]] = {
    "means": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "largest": lambda x: F.max_pool2d(x, 3, 2, 1),
    "resized": lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear"),
    "padded": lambda x: F.pad(x, [1, 2, 0, 1], "replicate"),
}


@pytest.mark.parametrize("name", TWICE)
def test_second_derivatives(name: str) -> None:
    module, x = _Steepness(TWICE[name]), _random(1, 2, 5, 6, dtype=torch.float64)
    own, eager = x.clone().requires_grad_(), x.clone().requires_grad_()
    run = differentiable(module, [own], ["x"], covan_mlir.compile_module)
    (expected,) = torch.autograd.grad(module(eager)[0], eager)
    (given_,) = torch.autograd.grad(run(own)[0], own)
    torch.testing.assert_close(given_, expected)
