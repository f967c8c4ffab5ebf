"""Decompositions of our own against the operations that they stand for, without a compiler."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

from covan_mlir.frontend.rules import (
    RULES,
    arithmetic,
    convolutions,
    division,
    double,
    histograms,
    hyperbolic,
    indexing,
    losses,
    ordering,
    resizing,
    sampling,
    searching,
    segments,
    sorting,
)

aten = torch.ops.aten
NUMBERS = torch.tensor(
    [0.0, -0.0, 1, -1, 2, -2, 3, 0.5, -0.5, 1e30, -1e30, 1e-40, torch.inf, -torch.inf, torch.nan, 7, -7]
)


def _random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)))


def _same(ours: Any, eager: Any, **tolerance: float) -> None:
    torch.testing.assert_close(ours, eager, equal_nan=True, **tolerance)


def test_powers() -> None:
    base, exponent = (side.reshape(-1) for side in torch.meshgrid(NUMBERS, NUMBERS, indexing="ij"))
    _same(arithmetic.pow_tensor(base, exponent), torch.pow(base, exponent))


AXIS = torch.cat([_random(500), _random(500) * 100, torch.linspace(-2e5, 2e5, 999), torch.linspace(-9, 9, 181)])
CURVES: dict[str, tuple[Any, Any]] = {
    "sin": (double.sin, torch.sin),
    "cos": (double.cos, torch.cos),
    "atan": (double.atan, torch.atan),
    "asinh": (hyperbolic.asinh, torch.asinh),
    "acosh": (hyperbolic.acosh, torch.acosh),
    "atanh": (lambda x: hyperbolic.atanh(x / 2e5), lambda x: torch.atanh(x / 2e5)),
    "sinh": (hyperbolic.sinh, torch.sinh),
    "cosh": (hyperbolic.cosh, torch.cosh),
    "exp2": (arithmetic.exp2, torch.exp2),
    **{
        f"power {n}": (lambda x, n=n: arithmetic.pow_scalar(x, n), lambda x, n=n: torch.pow(x, n))
        for n in (-1.5, -1, -2.0, -3, 1.7)
    },
}
"""Rules of float32 and what they stand for. Reference: float64."""


@pytest.mark.parametrize("name", CURVES)
def test_curves_of_float32(name: str) -> None:
    ours, eager = CURVES[name]
    for x in (AXIS, NUMBERS.masked_fill(NUMBERS.abs() == 1e30, 88.9), AXIS * 1e-5):
        # eager itself takes its argument in float32
        _same(
            ours(x).to(torch.float64),
            eager(x.to(torch.float64)).to(torch.float32).to(torch.float64),
            rtol=2e-6,
            atol=1e-37,
        )


@pytest.mark.parametrize("name", ["expm1", "log1p", "exp2"])
def test_curves_of_float64(name: str) -> None:
    x = torch.cat([AXIS.to(torch.float64) * scale for scale in (1e-12, 1e-4, 1e-2, 1)] + [NUMBERS.to(torch.float64)])
    _same(getattr(double, name)(x), getattr(torch, name)(x), rtol=2e-15, atol=1e-300)


@pytest.mark.parametrize("name", ["fmod", "floor_divide", "logaddexp", "logaddexp2"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_of_two_numbers(name: str, dtype: torch.dtype) -> None:
    ours = getattr(division if hasattr(division, name) else hyperbolic, name)
    few = torch.tensor([0.1, 0.3, 0.7, 2.5, -0.1, -0.3, 1e10, 3e7, *(k / 10 for k in range(-20, 20))])
    finite = NUMBERS[(NUMBERS.abs() != 1e30) & (NUMBERS != 1e-40)]  # beyond 2^55 quotients, eager gives NaN
    axis = torch.cat([finite, few]).to(dtype)
    a, b = (side.reshape(-1) for side in torch.meshgrid(axis, axis, indexing="ij"))
    exact = name in ("fmod", "floor_divide")
    _same(ours(a, b), getattr(torch, name)(a, b), rtol=0 if exact else 2e-6, atol=0 if exact else 2e-7)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_halves_and_numbers(dtype: torch.dtype) -> None:
    """Numbers that are no numbers of the type; those that are, keep their lowering."""
    x = torch.tensor([1.0, -3, 100, 6e4, 3e-5, 0.1], dtype=dtype)
    multiply, divide = RULES[aten.mul.Tensor], RULES[aten.div.Tensor]
    for number in (1e-8, 0.1, 3e-5, 2e5, 1e6):
        for factor in (number, torch.tensor(number)):
            _same(multiply(x, factor), x * factor, rtol=0, atol=0)
            _same(multiply(factor, x), x * factor, rtol=0, atol=0)
            _same(divide(x, factor), x / factor, rtol=0, atol=0)
    assert all(multiply(x, number) is NotImplemented for number in (0.0, 0.125, -1.5, 2, torch.inf))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_comparisons_with_numbers(dtype: torch.dtype) -> None:
    """In the type of the tensor: rules give the number that it has; those that it has, keep their lowering."""
    x = torch.tensor([0.1, 0.3, 1e-8, -0.7, 0.0, 1e-4, torch.nan, torch.inf], dtype=dtype)
    for packet in (aten.eq, aten.ne, aten.lt, aten.le, aten.gt, aten.ge):
        for number in (0.1, 0.3, -0.7, 1e-8, 1e-4, 3e4):
            given = RULES[packet.Scalar](x, number)
            exact = packet.Tensor(x.double(), torch.tensor(number, dtype=dtype).double())
            _same(exact if given is NotImplemented else given, packet.Scalar(x, number))
        assert all(RULES[packet.Scalar](x, number) is NotImplemented for number in (0.0, 0.5, torch.inf, 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_neighbours(dtype: torch.dtype) -> None:
    pairs = torch.meshgrid(NUMBERS.to(dtype), NUMBERS.to(dtype), indexing="ij")
    a, b = (side.reshape(-1).clone() for side in pairs)
    _same(arithmetic.nextafter(a, b), torch.nextafter(a, b), rtol=0, atol=0)


@pytest.mark.parametrize("bounds", [(-0.9, 2.1, 2.0), (0.1, 1.1), (3.5,), (0.0, 1.0, 0.1), (5.0, -3.0, -0.7)])
def test_fractions_in_steps(bounds: tuple[float, ...]) -> None:
    _same(arithmetic.arange(*bounds), torch.arange(*bounds), rtol=0, atol=0)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_most_frequent(dim: int) -> None:
    draw = torch.Generator().manual_seed(0)
    for x in (torch.randint(0, 4, (5, 6, 7), generator=draw), _random(4, 5)):
        _same(tuple(ordering.mode(x, dim)), tuple(torch.mode(x, dim)))


@pytest.mark.parametrize("count", [1, 2, 5, 9])
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("kind", ["ties", "specials", "least"])
def test_first_of_long_axes(kind: str, largest: bool, count: int) -> None:
    """Equal elements in their old order, as a stable sort has them; NaN is the greatest."""
    chooser = torch.Generator().manual_seed(count)
    choices = {"ties": torch.arange(4), "specials": NUMBERS[5:], "least": torch.tensor([-(2**63), 2**63 - 1, 0])}[kind]
    x = choices[torch.randint(0, len(choices), (3, 16 * count + 7), generator=chooser)]
    values, places = sorting.topk(x, count, 1, largest)
    sorted_values, sorted_places = torch.sort(x, dim=1, descending=largest, stable=True)
    _same(values, sorted_values[:, :count])
    assert torch.equal(places, sorted_places[:, :count])
    _same(sorting.topk(x.T, count, 0, largest)[1], places.T)


@pytest.mark.parametrize("length", [128, 129, 1024, 1500, 9000])
@pytest.mark.parametrize("kind", ["ties", "specials", "least", "distinct"])
def test_long_axes_are_sorted_by_runs(kind: str, length: int) -> None:
    """Equal elements in their old order; one run, eight, some that are not full, and runs of runs."""
    draw = torch.Generator().manual_seed(length)
    least = torch.tensor([-(2**63), 2**63 - 1, 0])
    choices = {"ties": torch.arange(4), "specials": NUMBERS, "least": least, "distinct": torch.arange(3 * length)}[kind]
    x = choices[torch.randint(0, len(choices), (2, length), generator=draw)]
    for descending in (False, True):
        expected = torch.sort(x, dim=1, descending=descending, stable=True)
        values, places = sorting.sort(x, 1, descending)
        _same(values, expected[0])
        assert torch.equal(places, expected[1])
        assert torch.equal(sorting.topk(x, length // 3, 1, descending)[1], expected[1][:, : length // 3])


@pytest.mark.parametrize("right", [True, False])
@pytest.mark.parametrize("size", [1, 64, 65, 1000])
def test_numbers_are_sought_in_sorted_rows(size: int, right: bool) -> None:
    draw = torch.Generator().manual_seed(size)
    rows = torch.randint(0, size, (3, size), generator=draw).sort(-1)[0].double()
    sought = torch.cat(
        [torch.randint(-1, size + 1, (3, 20), generator=draw).double(), NUMBERS.double().expand(3, -1)], 1
    )
    assert torch.equal(searching.searchsorted(rows, sought, right=right), torch.searchsorted(rows, sought, right=right))
    assert torch.equal(searching.bucketize(sought, rows[0], right=right), torch.bucketize(sought, rows[0], right=right))


def test_places_that_are_not_zero() -> None:
    x = torch.randint(0, 2, (4, 5, 3), generator=torch.Generator().manual_seed(0))
    for size in (0, 1, 5, 100):
        _same(indexing.nonzero_static(x, size=size, fill_value=7), torch.nonzero_static(x, size=size, fill_value=7))


def test_into_a_view_of_the_memory() -> None:
    x, source = _random(16), _random(2, 1, 1, 2)
    args = (source, [2, 1, 1, 2], [1, 2, 4, 8], 0)
    _same(indexing.as_strided_scatter(x, *args), torch.as_strided_scatter(x, *args))


def test_rows_at_their_greatest_length() -> None:
    weight, indices = _random(5, 3) * 2, torch.tensor([[0, 2], [2, 3]])
    for norm in (1.0, 2.0):
        _same(
            indexing.embedding_renorm(weight, indices, 1.0, norm),
            aten.embedding_renorm_(weight.clone(), indices, 1.0, norm),
        )


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", "prod"])
@pytest.mark.parametrize("initial", [None, 1.0, 2.0])
def test_segments(reduce: str, initial: float | None) -> None:
    data = _random(5, 5, 3)
    for axis, lengths in ((0, torch.tensor([0, 1, 2, 2])), (1, torch.tensor([[0, 1, 2, 2]] * 5))):
        eager = torch.segment_reduce(data, reduce, lengths=lengths, axis=axis, initial=initial)
        _same(segments.segment_reduce(data, reduce, lengths=lengths, axis=axis, initial=initial), eager)
        offsets = torch.nn.functional.pad(lengths.cumsum(-1), (1, 0))
        _same(segments.segment_reduce(data, reduce, offsets=offsets, axis=axis, initial=initial), eager)


@pytest.mark.parametrize("size", [[3, 3], [15, 7], [10, 20]])
@pytest.mark.parametrize("corners", [False, True])
def test_resizing_against_aliases(size: list[int], corners: bool) -> None:
    x = _random(2, 3, 10, 20)
    for ours, op in (
        (sampling.bilinear, aten._upsample_bilinear2d_aa),
        (sampling.bicubic, aten._upsample_bicubic2d_aa),
    ):
        for factors in ((None, None), (1.7, 0.9)):
            _same(ours(x, size, corners, *factors), op(x, size, corners, *factors), rtol=1e-4, atol=1e-5)


RESIZED: dict[str, dict[str, Any]] = {
    "twice": {"scale_factor": 2},
    "three times": {"scale_factor": 3},
    "by several factors": {"scale_factor": (2, 4, 1)},
    "by fractions": {"scale_factor": (1.5, 2.0, 0.5)},
    "to multiples": {"size": (8, 5, 9)},
    "to sizes": {"size": (7, 2, 11)},
    "to a point": {"size": (1, 1, 1)},
}


@pytest.mark.parametrize("how", list(RESIZED))
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "linear"])
def test_resizing(mode: str, how: str) -> None:
    """Of one to three axes, by the operators that take factors for all and for each, as eager in double precision."""
    for axes, linear in ((1, "linear1d"), (2, "bilinear2d"), (3, "trilinear3d")):
        asked = {
            name: (list(value)[:axes] if isinstance(value, tuple) else [value] * axes)
            for name, value in RESIZED[how].items()
        }
        factors = [float(factor) for factor in asked["scale_factor"]] if "scale_factor" in asked else None
        name = {"nearest": f"nearest{axes}d", "nearest-exact": f"nearest_exact{axes}d", "linear": linear}[mode]
        op = getattr(aten, ("_" if mode == "nearest-exact" else "") + f"upsample_{name}")
        x = _random(2, 3, *(4, 5, 3)[:axes])
        for corners in (False, True) if mode == "linear" else (None,):
            some = () if corners is None else (corners,)
            eager = op.vec(x.double(), asked.get("size"), *some, factors).float()
            ours = RULES[op.vec](x, asked.get("size"), *some, factors)
            each = RULES[op.default](x, list(eager.shape[2:]), *some, *(factors or [None] * axes))
            for result in (ours, each):
                if result is not NotImplemented:  # what is near by fractions keeps its lowering
                    _same(result, eager, rtol=1e-5, atol=1e-5)
            grows = all(places % size == 0 for places, size in zip(eager.shape[2:], x.shape[2:], strict=True))
            assert ours is not NotImplemented or not (grows or mode == "linear")


def test_what_resizing_leaves() -> None:
    """Bytes are rounded by eager's own rules; nearest places by fractions are torch-mlir's."""
    assert resizing.linear(torch.zeros(1, 1, 2, 2, dtype=torch.uint8), [4, 4], False, None) is NotImplemented
    assert resizing.nearest(_random(1, 1, 4, 4), [6, 6], None) is NotImplemented


@pytest.mark.parametrize(("mode", "padding", "corners"), list(itertools.product((0, 1), (0, 1, 2), (False, True))))
def test_samples_of_volumes(mode: int, padding: int, corners: bool) -> None:
    x, grid = _random(2, 3, 4, 5, 6), _random(2, 3, 4, 5, 3) * 1.2
    args = (x, grid, mode, padding, corners)
    _same(sampling.grid_sampler_3d(*args), aten.grid_sampler_3d(*args), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("limits", [None, [-0.5, 0.7, -0.5, 0.7]])
@pytest.mark.parametrize("density", [False, True])
def test_histograms(limits: list[float] | None, density: bool) -> None:
    for x, weight in ((_random(30, 2), None), (_random(30, 2), _random(30).abs()), (torch.zeros(0, 2), None)):
        eager = aten._histogramdd_from_bin_cts(x, [2, 3], range=limits, weight=weight, density=density)
        _same(histograms.from_counts(x, [2, 3], range=limits, weight=weight, density=density), eager)
        edges = aten._histogramdd_bin_edges(x, [2, 3], range=limits)
        _same(list(histograms.bin_edges(x, [2, 3], range=limits)), list(edges))
        _same(histograms.from_edges(x, list(edges), weight=weight, density=density), eager)


@pytest.mark.parametrize(("stride", "padding", "extra"), [(1, 0, 0), (2, 1, 1), (1, 1, 0), (3, 2, 1)])
def test_transposed_convolutions_of_each_channel(stride: int, padding: int, extra: int) -> None:
    x, weight = _random(2, 4, 4, 4), _random(4, 1, 3, 3)
    ours = convolutions.convolution(x, weight, None, [stride] * 2, [padding] * 2, [1, 1], True, [extra] * 2, 4)
    eager = torch.nn.functional.conv_transpose2d(x, weight, None, stride, padding, extra, 4)
    _same(ours, eager, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("labels", [[0, 2, -1, 1], [[0, 0, 0, -1], [3, 1, 2, 0], [-1, 2, 1, 0]]])
def test_labels_after_the_first_missing_one_do_not_count(labels: list[Any], reduction: str) -> None:
    target = torch.tensor(labels)
    x = _random(*target.shape)
    number = ["none", "mean", "sum"].index(reduction)
    ours = losses.multilabel_margin_loss_forward(x, target, number)
    _same(ours, aten.multilabel_margin_loss_forward(x, target, number))
