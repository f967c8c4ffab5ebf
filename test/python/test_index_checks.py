"""Indices out of range: errors where eager has errors, with the operator and the user's line; no memory is touched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from index_models import COMPUTED, COUNT, DIVISIONS, IN_FUNCTIONS, ON_ARGUMENTS, ROWS, WIDTH
from limits import part

import covan_mlir
from covan_mlir.errors import DivisionError, OutOfRangeError
from covan_mlir.frontend.faults import Faults
from covan_mlir.runtime import devices


def _agree(exe: Any, model: Callable[..., torch.Tensor], x: torch.Tensor, i: torch.Tensor) -> None:
    try:
        expected = model(x, i)
    except (IndexError, RuntimeError):
        with pytest.raises(IndexError, match=r"index_(models|checks)\.py:\d+: aten\."):
            exe(x, i)
        return
    torch.testing.assert_close(exe(x, i), expected, equal_nan=True)


def _indices() -> st.SearchStrategy[list[int]]:
    """Three different places, most of them in range; written twice, a place has what was written last."""
    near, far = st.integers(-2, ROWS), st.sampled_from([-101, -100, -ROWS - 1, -ROWS, 2 * ROWS, 10**6, 2**62, -(2**63)])
    return st.lists(near | near | near | far, min_size=COUNT, max_size=COUNT, unique_by=lambda place: place % ROWS)


@pytest.mark.parametrize("name", part(ON_ARGUMENTS, kept=list(ON_ARGUMENTS)[::3]))
def test_indices_among_the_arguments_are_checked_as_eager_checks_them(name: str) -> None:
    x, model = torch.randn(ROWS, WIDTH), ON_ARGUMENTS[name]
    exe = covan_mlir.compile_module(model, (x, torch.tensor([0, 2, 1])))

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(_indices())
    def check(indices: list[int]) -> None:
        _agree(exe, model, x, torch.tensor(indices))

    check()
    assert all(check.argument is not None for check in exe.signature.checks) or name == "of_narrow"


@pytest.mark.parametrize("name", part(COMPUTED, kept=list(COMPUTED)[::2]))
def test_computed_indices_are_checked_as_eager_checks_them(name: str) -> None:
    x, model = torch.randn(ROWS, WIDTH), COMPUTED[name]
    exe = covan_mlir.compile_module(model, (x, torch.tensor([0, 2, 1])))
    assert exe.signature.computed_checks

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(_indices())
    def check(indices: list[int]) -> None:
        _agree(exe, model, x, torch.tensor(indices))

    check()
    assert exe.verify(), exe.verify()


@pytest.mark.skipif(not devices.discover("vulkan"), reason="no Vulkan device here")
@pytest.mark.parametrize("models", [ON_ARGUMENTS, COMPUTED], ids=["arguments", "computed"])
@pytest.mark.parametrize("name", part(["embedding", "index", "gather", "scatter_add"], kept=["index", "scatter_add"]))
def test_on_vulkan(models: dict[str, Callable[..., torch.Tensor]], name: str) -> None:
    x, model = torch.randn(ROWS, WIDTH), models[name]
    exe = covan_mlir.compile_module(model, (x, torch.tensor([0, 2, 1])), target="vulkan")
    for indices in ([0, 2, 1], [-1, 0, 1], [1, ROWS, 0], [10**9, 0, 1]):
        _agree(exe, model, x, torch.tensor(indices))


class _Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(ROWS, WIDTH)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, ids: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        out.add_(1)
        rows: torch.Tensor = self.words(ids * 2)
        return rows


def test_nothing_is_written_where_an_index_is_out_of_range() -> None:
    net, out = _Net().eval(), torch.zeros(2)
    exe = covan_mlir.compile_module(net, (torch.tensor([0, 1]), out))
    with pytest.raises(OutOfRangeError, match=r"test_index_checks\.py:\d+: aten\.embedding\.default in words"):
        exe(torch.tensor([0, 3]), out)
    assert not out.any()
    assert not net.calls.any()
    exe(torch.tensor([0, 2]), out)
    assert out.all()
    assert net.calls.all()


def test_artifacts_keep_their_checks(tmp_path: Path) -> None:
    x = torch.randn(ROWS, WIDTH)
    for models in (ON_ARGUMENTS, COMPUTED):
        path = tmp_path / "model.covan"
        covan_mlir.compile_module(models["embedding"], (x, torch.tensor([0, 2, 1]))).save(path)
        loaded = covan_mlir.load(path)
        for indices in (torch.tensor([0, 9, 1]), np.array([0, -9, 1])):
            with pytest.raises(OutOfRangeError, match=r"aten\.embedding\.default"):
                loaded(x if isinstance(indices, torch.Tensor) else x.numpy(), indices)


@pytest.mark.parametrize("name", part(IN_FUNCTIONS, kept=["branch of a loop", "division"]))
def test_in_branches_and_loops_indices_and_divisors_are_checked_as_eager_checks_them(name: str) -> None:
    torch.compiler.reset()
    x, model = torch.rand(ROWS, WIDTH), IN_FUNCTIONS[name]
    exe = covan_mlir.compile_module(model, (x, torch.tensor([1, 2, 3])))
    for indices in ([1, 2, 2], [1, 2, 3], [0, 4, 1], [-1, 2, 1], [1, 10**6, 2], [-(2**62), 1, 1], [2, 2, 1]):
        for rows in (x, -x):  # takes the other branch
            place = torch.tensor(indices)
            try:
                expected = model(rows, place)
            except (IndexError, RuntimeError):
                with pytest.raises((OutOfRangeError, DivisionError), match=r"index_models\.py:\d+: aten\."):
                    exe(rows, place)
            else:
                torch.testing.assert_close(exe(rows, place), expected)
    assert exe.verify().outcome != "no", exe.verify()


def test_in_functions_that_tell_nothing_indices_are_clamped(caplog: pytest.LogCaptureFixture) -> None:
    """Functions of an operator that gives no results along."""
    inner, outer = torch.fx.Graph(), torch.fx.Graph()
    fault = inner.call_function(torch.ops.aten.any.default, (inner.placeholder("x"),))
    inner.output((fault,))
    body = outer.get_attr("body")
    outer.call_function(torch.ops.higher_order.associative_scan, (body, [outer.placeholder("x")]))
    torch.fx.GraphModule({"body": torch.fx.GraphModule({}, inner)}, outer)
    assert Faults(outer).outside(fault) is None
    assert "indices and divisors in functions of higher_order.associative_scan raise no errors" in caplog.text


def test_programs_for_cuda_make_the_same_checks() -> None:
    x, i = torch.randn(ROWS, WIDTH), torch.tensor([0, 2, 1])
    for models in (ON_ARGUMENTS, COMPUTED):
        ours, theirs = (
            covan_mlir.compile_module(models["embedding"], (x, i), target=target).signature
            for target in ("cpu", "cuda:sm_80")
        )
        assert ours.checks
        assert (ours.checks, ours.results) == (theirs.checks, theirs.results)


def test_through_torch_compile() -> None:
    torch.compiler.reset()
    x, compiled = torch.randn(ROWS, WIDTH), torch.compile(ON_ARGUMENTS["index_select"], backend="covan")
    with torch.no_grad():
        torch.testing.assert_close(compiled(x, torch.tensor([0, 4, 1])), x[[0, 4, 1]])
        with pytest.raises(OutOfRangeError, match=r"index_models\.py:\d+: aten\.index_select"):
            compiled(x, torch.tensor([0, 5, 1]))


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8"])
def test_narrow_indices_into_many_places(dtype: str) -> None:
    x, places = torch.randn(300, WIDTH), getattr(torch, dtype)
    exe = covan_mlir.compile_module(lambda x, i: x.index_select(0, i.to(torch.int64)), (x, torch.ones(3).to(places)))
    most = min(299, torch.iinfo(places).max)
    torch.testing.assert_close(exe(x, torch.tensor([0, most, 1]).to(places)), x[[0, most, 1]])
    if dtype != "uint8":
        with pytest.raises(OutOfRangeError):
            exe(x, torch.tensor([0, -1, 1]).to(places))


def test_limits_follow_open_sizes() -> None:
    rows = torch.export.Dim("rows", min=2, max=64)
    x = torch.randn(ROWS, WIDTH)
    for model in (ON_ARGUMENTS["index"], COMPUTED["index"]):
        exe = covan_mlir.compile_module(model, (x, torch.tensor([0, 2, 1])), dynamic_shapes=({0: rows}, None))
        for size in (3, 40):
            for indices in ([0, 1, 2], [0, 1, size - 1], [0, 1, size], [0, -size, 1], [0, 1, -size - 1]):
                _agree(exe, model, torch.randn(size, WIDTH), torch.tensor(indices))


def test_limits_that_the_program_computes_are_checked_by_it() -> None:
    """As many elements as are positive are there once it has run: no caller can tell before."""

    def model(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x[x > 0].gather(0, i)

    x, i = torch.tensor([1.0, -1.0, 2.0, 3.0]), torch.tensor([0, 2, 0])
    exe = covan_mlir.compile_module(model, (x, i))
    for indices in (i, torch.tensor([1, 3, 0]), torch.tensor([1, 1, 0])):
        _agree(exe, model, x, indices)


def test_what_is_in_range_whatever_the_arguments_are_is_not_checked() -> None:
    def model(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        rows = x[torch.arange(2)] + x[x.argmax(0)[:2]] + x[x.topk(2, 0).indices[:, 0]]
        return rows + x[i.clamp(0, ROWS - 1)] + x[i % ROWS] + x[torch.tensor([0, 4])] + x[(i > 0).to(torch.int64)]

    x, i = torch.randn(ROWS, WIDTH), torch.tensor([70, -70])
    exe = covan_mlir.compile_module(model, (x, i))
    assert not exe.signature.checks
    torch.testing.assert_close(exe(x, i), model(x, i))


def test_a_number_that_selects_is_an_index() -> None:
    def model(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x[i]

    def later(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x[i * 2]

    x = torch.randn(ROWS, WIDTH)
    for function in (model, later):
        exe = covan_mlir.compile_module(function, (x, torch.tensor(2)))
        for number in (0, 1, -1, -3, 5, 100, -100):
            _agree(exe, function, x, torch.tensor(number))


@pytest.mark.parametrize("dtype", part([torch.int64, torch.int8], kept=[torch.int8]))
@pytest.mark.parametrize("name", DIVISIONS)
def test_divisions_by_zero_are_errors_as_in_eager(name: str, dtype: torch.dtype) -> None:
    model, least = DIVISIONS[name], torch.iinfo(dtype).min
    exe = covan_mlir.compile_module(model, (torch.tensor([7, -7]).to(dtype), torch.tensor([2, 3]).to(dtype)))
    for a, b in (([7, -7], [2, -3]), ([5, 6], [-1, 9]), ([5, 6], [0, 1]), ([5, 6], [1, 7]), ([0, -1], [-2, 0])):
        operands = (torch.tensor(a).to(dtype), torch.tensor(b).to(dtype))
        try:
            expected = model(*operands)
        except RuntimeError:  # torch's ZeroDivisionError
            with pytest.raises(covan_mlir.DivisionError, match=r"index_(models|checks)\.py:\d+: aten\."):
                exe(*operands)
        else:
            torch.testing.assert_close(exe(*operands), expected)
    if name != "by_zero":  # eager ends here with a signal, or wraps
        exe(torch.tensor([least, least]).to(dtype), torch.tensor([0, 0] if name == "computed" else [-1, -1]).to(dtype))


def test_without_checks_divisions_by_zero_have_a_value() -> None:
    options = covan_mlir.CompileOptions(check_indices=False)
    x, zero = torch.tensor([7, -7]), torch.tensor([0, 0])
    for name, expected in (("floor", x), ("truncated", x), ("remainder", zero), ("fmod", x)):
        exe = covan_mlir.compile_module(DIVISIONS[name], (x, torch.tensor([1, 2])), options=options)
        torch.testing.assert_close(exe(x, zero), expected)


def test_without_checks_a_program_has_none() -> None:
    x, i = torch.randn(ROWS, WIDTH), torch.tensor([0, 2, 1])
    options = covan_mlir.CompileOptions(check_indices=False)
    for models in (ON_ARGUMENTS, COMPUTED):
        exe = covan_mlir.compile_module(models["embedding"], (x, i), options=options)
        assert not exe.signature.checks
        assert len(exe.signature.results) == 1
