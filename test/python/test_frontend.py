"""What users bring: kinds of models, dtypes, structures, state, dynamic shapes. Eager PyTorch is the oracle."""

from __future__ import annotations

import collections
import copy
import logging
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle import assert_same
from torch import nn

import covan_mlir
from covan_mlir import CompileOptions, CovanError, ExportError, InputError, TargetError
from covan_mlir.frontend.decompose import decompose

DTYPES = [
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint8,
]


def check(model: Any, *args: Any, **kwargs: Any) -> covan_mlir.Executable:
    """Compile, call on clones, compare results and changed arguments with eager."""
    twin = copy.deepcopy(model) if isinstance(model, nn.Module) else model
    exe = covan_mlir.compile_module(model, copy.deepcopy(args), copy.deepcopy(kwargs))
    mine, theirs = copy.deepcopy((args, kwargs)), copy.deepcopy((args, kwargs))
    with torch.no_grad():
        expected = twin(*theirs[0], **theirs[1])
    assert_same(exe(*mine[0], **mine[1]), expected)
    assert_same(mine, theirs)
    return exe


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.fc(x))


def test_module() -> None:
    check(Net(), torch.randn(3, 6))


def test_function_with_module_in_its_closure() -> None:
    net = Net()
    check(lambda x: net(x) + 1, torch.randn(3, 6))


def test_one_tensor_for_several_example_arguments() -> None:
    """Each argument stays one of its own, as it is in eager: export knows tensors by their identity."""
    net, x, (a, b) = Net(), torch.randn(5, 6), torch.randn(2, 5, 6)
    pair = covan_mlir.compile_module(lambda q, k: q - 2 * k[0], (x, [x]))
    assert_same(pair(a, [b]), a - 2 * b)
    held = covan_mlir.compile_module(lambda w: net(w).sum() + w, (net.fc.weight,))
    assert_same(held(a), net(a).sum() + a)
    own = covan_mlir.compile_module(net, (net.fc.weight,))
    assert_same(own(a), net(a))


def test_exported_program_and_pt2_file(tmp_path: Path) -> None:
    net, x = Net().eval(), torch.randn(3, 6)
    program = torch.export.export(net, (x,))
    torch.export.save(program, tmp_path / "net.pt2")
    for model in (program, tmp_path / "net.pt2", str(tmp_path / "net.pt2")):
        assert_same(covan_mlir.compile_module(model)(x), net(x))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtype_is_kept(dtype: torch.dtype) -> None:
    x = (torch.arange(12).reshape(3, 4) % 5).to(dtype)
    check(lambda x: (x + x, x * 2, x.sum(dtype=x.dtype), x > 1), x)


def test_bool_in_and_out() -> None:
    a, b = torch.tensor([True, False, True]), torch.tensor([True, True, False])
    check(lambda a, b: (a & b, ~a, a.any()), a, b)


def test_f64_is_not_demoted() -> None:
    # 1 + 1e-12 is 1 in f32.
    exe = check(lambda x: x + 1e-12 - 1, torch.ones(4, dtype=torch.float64))
    assert exe(torch.ones(4, dtype=torch.float64))[0] > 0


class Point(NamedTuple):
    a: Any
    b: Any


def test_structures_in_and_out() -> None:
    def forward(args: Any, *, point: Point, extra: dict[str, Any]) -> Any:
        x, (y, z) = args
        ordered = collections.OrderedDict(second=x + y, first=z * 2)
        return {"point": Point(point.a + x, [point.b, None]), "out": (ordered, extra["k"] - x), "n": 3}

    one = torch.ones(2)
    exe = check(forward, (one, [one * 2, one * 3]), point=Point(one * 4, one * 5), extra={"k": one * 6, "unused": one})
    result = exe((one, [one, one]), point=Point(one, one), extra={"unused": one, "k": one})  # keys in another order
    assert type(result["point"]) is Point
    assert type(result["out"][0]) is collections.OrderedDict


def test_torch_return_types_are_kept() -> None:
    result = check(lambda x: torch.max(x, dim=1), torch.randn(3, 4))(torch.randn(3, 4))
    assert type(result) is torch.return_types.max


def test_sums_of_what_folds_to_a_constant() -> None:
    nan = float("nan")
    check(lambda x: ((x * 0 + 1).sum(), (x & 0).logical_not().sum(-1)), torch.arange(12).reshape(3, 4))
    check(lambda x: ((x | True).sum(), (x & False).logical_not().sum(0)), torch.tensor([[True, False, True]]))
    check(lambda x: (torch.logical_not(x < nan).sum(), (x != nan).float().sum(0)), torch.randn(3, 4))
    exe = covan_mlir.compile_module(lambda x: (x * 0 + 1).sum() + x.sum(), (torch.arange(7),))
    assert exe.verify()


def test_negative_whole_numbers_beside_constants() -> None:
    def joined(count: int) -> torch.Tensor:
        return torch.cat([torch.full((count,), 2.0), torch.full((count,), 3.0)])[:count]

    check(lambda x: (x + joined(3) * -1, x + (joined(3) + -3), x * (joined(3) >= -1)), torch.randn(3))
    big = torch.randn(9000)
    check(lambda x: (x + joined(9000) * -1, torch.add(x, torch.add(joined(9000), joined(9000), alpha=-3))), big)
    check(lambda x: x - torch.full((3,), 2j, dtype=torch.complex64), torch.randn(3, dtype=torch.complex64))
    check(lambda x, n: (joined(3).int() // -3 + n, torch.remainder(joined(3), -5) + x), torch.randn(3), 2)


def test_columns_that_lie_as_rows() -> None:
    """A weight with one column may have any stride along it."""
    column = torch.randn(1, 5).t()
    assert column.is_contiguous()
    check(lambda x: x @ column, torch.randn(3, 5))


def test_places_of_several_axes_as_many_as_values_say() -> None:
    def negative(x: torch.Tensor) -> Any:
        rows, columns = (x[0] > 0).nonzero().unbind(1)
        return x[:, rows - 3, columns]

    for function in (lambda x: x[x.nonzero(as_tuple=True)], negative):
        assert check(function, torch.randn(2, 3, 4)).verify()


def test_scalars_zero_dims_empty_and_strided() -> None:
    check(lambda x, n, s: x * n + s, torch.tensor(2.5), 3, 0.5)
    check(lambda x: (x.sum(), torch.cat([x, x])), torch.empty(0, 4))
    check(lambda x: x * 2, torch.empty(0, dtype=torch.uint8))
    base = torch.randn(6, 8)
    check(lambda a, b, c: (a + 1, b * 2, c - 1), base.t(), base[::2, 1::3], base[1:, 3:])


def test_what_is_written_nowhere() -> None:
    def written(x: torch.Tensor, places: torch.Tensor, values: torch.Tensor) -> Any:
        scattered = x.scatter(0, places, values), x.scatter_reduce(0, places, values, "amax", include_self=False)
        return *scattered, x.scatter_add(0, places, values), x.index_add(0, places, values, alpha=2)

    assert check(written, torch.randn(5), torch.empty(0, dtype=torch.int64), torch.empty(0)).verify()


def test_a_choice_that_is_made_ahead_of_time() -> None:
    """What it does not choose is read by none of its parts, but returned."""

    def chosen(x: torch.Tensor) -> Any:
        count, zero = torch.ones(3, 4).sum(0) - 1, torch.zeros(())
        return x / torch.maximum(count, zero), zero

    assert check(chosen, torch.randn(4)).verify()


def test_sums_along_axes_that_only_repeat(caplog: pytest.LogCaptureFixture) -> None:
    check(
        lambda m, x: m[:, None].expand(3, 4, 2).float().sum(0).sum(0) + x.sum(),
        torch.randn(3, 2) > 0,
        torch.randn(3, 4),
    )
    assert not [record for record in caplog.records if record.levelno > logging.INFO]  # chains are raised


def test_no_arguments_and_constant_output() -> None:
    check(lambda: (torch.arange(4), "text", None, 2.5))


class Stateful(nn.Module):
    """Every kind of state: in-place, replaced, non-persistent, scalar; frozen and tied weights beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(4), persistent=False)
        self.register_buffer("scale", torch.full((4,), 2.0), persistent=False)
        self.a = nn.Linear(4, 4)
        self.b = nn.Linear(4, 4)
        self.b.weight = self.a.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count += 1
        self.mean = 0.9 * self.mean + 0.1 * x.mean(0)
        return self.b(torch.relu(self.a(x * self.scale))) + self.mean + self.count


def test_state_is_written_back_as_eager_does() -> None:
    model = Stateful()
    twin = copy.deepcopy(model)
    exe = covan_mlir.compile_module(model, (torch.randn(3, 4),))
    for _ in range(3):
        x = torch.randn(3, 4)
        assert_same(exe(x), twin(x))
        assert_same(dict(model.named_buffers()), dict(twin.named_buffers()))
    with torch.no_grad():
        model.count.zero_()  # the model's buffer is the state: the next call starts from it
    exe(torch.randn(3, 4))
    assert model.count == 1


def test_batch_norm_in_training_mode_updates_its_statistics() -> None:
    model = nn.BatchNorm2d(3).train()
    twin = copy.deepcopy(model)
    x = torch.randn(2, 3, 5, 5)
    exe = covan_mlir.compile_module(model, (x,))
    assert_same(exe(x), twin(x))
    assert_same(dict(model.named_buffers()), dict(twin.named_buffers()))


def test_mutated_inputs_are_written_back() -> None:
    def forward(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        y[0] = 7
        return x + y

    check(forward, torch.ones(3), torch.zeros(3))
    exe = covan_mlir.compile_module(forward, (torch.ones(3), torch.zeros(3)))
    a, b = np.ones(3, np.float32), np.zeros(3, np.float32)
    exe(a, b)
    assert a.tolist() == [2, 2, 2]
    assert b.tolist() == [7, 0, 0]


def test_dynamic_shapes() -> None:
    batch = torch.export.Dim("batch", min=1, max=32)

    def forward(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([torch.softmax(x, -1) @ y.T, x.sum(1, keepdim=True)], 1)

    exe = covan_mlir.compile_module(
        forward, (torch.randn(4, 6), torch.randn(3, 6)), dynamic_shapes={"x": {0: batch}, "y": None}
    )
    y = torch.randn(3, 6)
    for n in (1, 2, 17, 32):
        x = torch.randn(n, 6)
        assert_same(exe(x, y), forward(x, y))
    with pytest.raises(InputError, match=r"is 33; the model was exported for .* ≤ 32"):
        exe(torch.randn(33, 6), y)


def test_equal_and_derived_dimensions_are_checked() -> None:
    n = torch.export.Dim("n", min=2, max=64)
    exe = covan_mlir.compile_module(
        lambda x, y: x[: y.shape[0] // 2].sum() + y.sum(),
        (torch.randn(4), torch.randn(8)),
        dynamic_shapes=({0: n}, {0: 2 * n}),
    )
    exe(torch.randn(5), torch.randn(10))
    with pytest.raises(InputError, match="size 9 on axis 0"):
        exe(torch.randn(5), torch.randn(9))


def test_symbolic_integer_in_and_out() -> None:
    exe = covan_mlir.compile_module(
        lambda x, n: (x + n, x.shape[0] * 2),
        (torch.zeros(3), 5),
        dynamic_shapes=({0: torch.export.Dim.DYNAMIC}, torch.export.Dim.DYNAMIC),
    )
    total, doubled = exe(torch.zeros(4), 9)
    assert total.tolist() == [9, 9, 9, 9]
    assert doubled == 8


def test_numpy_in_gives_numpy_out() -> None:
    net = Net().eval()
    exe = covan_mlir.compile_module(net, (np.zeros((3, 6), np.float32),))
    x = np.random.default_rng(0).standard_normal((3, 6)).astype(np.float32)
    for array in (x, np.asfortranarray(x), x[::1]):
        result = exe(array)
        assert isinstance(result, np.ndarray)
        assert_same(torch.from_numpy(result), net(torch.from_numpy(x)))
    x.flags.writeable = False
    assert isinstance(exe(x), np.ndarray)


def test_large_weights_stay_where_torch_has_them() -> None:
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).eval()
    x = torch.randn(2, 64)
    for frontend in ("linalg", "torch"):
        options = CompileOptions(external_weight_bytes=64 * 64 * 4, frontend=frontend)
        exe = covan_mlir.compile_module(net, (x,), options=options)
        assert_same(exe(x), net(x))
        assert len(exe.variant.program) < len(covan_mlir.compile_module(net, (x,)).variant.program) - 64 * 64 * 4 / 2


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((torch.ones(3, 6), torch.ones(3, 6)), {}, "args has 2 elements; expected 1"),
        ((), {}, "args has 0 elements; expected 1"),
        ((torch.ones(3, 7),), {}, r"argument x has size 7 on axis 1; expected float32\[3, 6\]"),
        ((torch.ones(18),), {}, r"argument x has shape \[18\]"),
        ((torch.ones(3, 6).double(),), {}, r"argument x is float64; expected float32"),
        ((torch.ones(3, 6, device="meta"),), {}, r"argument x is on meta"),
        (([1.0],), {}, "argument x is a list"),
        ((torch.ones(3, 6),), {"y": 1}, "kwargs has keys"),
    ],
)
def test_arguments_that_do_not_fit(args: Any, kwargs: Any, message: str) -> None:
    exe = covan_mlir.compile_module(Net().eval(), (torch.ones(3, 6),))
    with pytest.raises(InputError, match=message):
        exe(*args, **kwargs)
    exe(torch.ones(3, 6))  # still alive


def test_positional_or_named() -> None:
    def forward(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return x * mask

    x, mask = torch.randn(3), torch.tensor([1.0, 0.0, 1.0])
    by_name = covan_mlir.compile_module(forward, (x,), {"mask": mask})
    by_place = covan_mlir.compile_module(forward, (x, mask))
    for exe in (by_name, by_place):
        for result in (exe(x, mask), exe(x, mask=mask), exe(mask=mask, x=x)):
            assert_same(result, x * mask)


def test_model_that_does_not_export_keeps_torchs_reason() -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x

    with pytest.raises(ExportError, match=r"forward does not export: .*data-dependent") as caught:
        covan_mlir.compile_module(forward, (torch.ones(2),))
    assert caught.value.__cause__ is not None
    assert str(caught.value).startswith(f"{__file__}:{forward.__code__.co_firstlineno + 1}: ")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: covan_mlir.compile_module(Net(), torch.ones(3, 6)), InputError, r"write args=\(x,\)"),
        (lambda: covan_mlir.compile_module(3, ()), InputError, "cannot compile a int"),
        (lambda: covan_mlir.compile_module(Net(), (torch.ones(3, 6),), target="gpu"), TargetError, "unknown target"),
        (lambda: covan_mlir.compile_module("nowhere.pt2"), ExportError, "no such file"),
        (lambda: CompileOptions(iree_flags="--x"), TypeError, "tuple of flags"),
        (lambda: CompileOptions(device="gpu"), ValueError, "device is"),
        (lambda: CompileOptions(winograd=0.5), TypeError, "winograd is a whole number, not 0.5"),
        (lambda: CompileOptions(winograd=True), TypeError, "winograd is a whole number, not True"),
        (lambda: CompileOptions(timeout="3"), TypeError, "timeout is a number or None, not '3'"),
        (lambda: CompileOptions(cache=None), TypeError, "cache is True or False, not None"),
    ],
)
def test_bad_requests(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_file_that_is_no_program(tmp_path: Path) -> None:
    (tmp_path / "x.pt2").write_text("hello")
    with pytest.raises(ExportError, match="no exported program that this torch can read"):
        covan_mlir.compile_module(tmp_path / "x.pt2")


def test_compiler_flags_take_effect() -> None:
    options = CompileOptions(iree_flags=("--iree-llvmcpu-debug-symbols=false",))
    exe = covan_mlir.compile_module(Net().eval(), (torch.ones(3, 6),), options=options)
    with pytest.raises(CovanError, match="does not say where the code"):
        exe.kernel_code(0)


SHAPES = st.lists(st.integers(0, 5), max_size=4).map(tuple)


@settings(max_examples=8)
@given(shape=SHAPES, dtype=st.sampled_from(DTYPES), other=st.sampled_from(DTYPES), data=st.data())
def test_any_shape_and_dtypes(
    shape: tuple[int, ...], dtype: torch.dtype, other: torch.dtype, data: st.DataObject
) -> None:
    """Broadcasting and promotion, with results of every rank: the same shapes, dtypes and values as eager."""
    small = tuple(data.draw(st.sampled_from([size, 1])) for size in shape)
    torch.manual_seed(0)
    x = torch.randint(0, 5, shape).to(dtype)
    y = torch.randint(0, 5, small).to(other)
    check(lambda x, y: {"sum": x + y, "less": x < y, "same": x, "flat": (x * y).reshape(-1)}, x, y)


def test_long_chains_of_choices_are_decomposed() -> None:
    class Chain(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(500):
                x = torch.where(x > 0, x * 0.5, x + 1)
            return x

    decomposed = decompose(torch.export.export(Chain(), (torch.randn(4),), strict=False))
    choices = decomposed.graph.find_nodes(op="call_function", target=torch.ops.aten.where.self)
    assert len(list(choices)) == 500
