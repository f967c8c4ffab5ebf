"""`covan_mlir.quantize`: what becomes steps, data that it is calibrated with, what it costs, and that it is right."""

from __future__ import annotations

import copy
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx_models import model as onnx_model
from onnx_models import node
from torch import Tensor, nn

import covan_mlir
from covan_mlir import InputError, quantize
from covan_mlir.quantizing.data import Call
from covan_mlir.quantizing.noise import Simulated, measured

STEPS = torch.ops.quantized_decomposed
DOCS = Path(__file__).resolve().parents[2] / "docs"


class Net(nn.Module):
    """A residual block between a stem and a classifier, which words do not divide."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.inner, self.pool = nn.Conv2d(16, 16, 3, padding=1), nn.MaxPool2d(2)
        self.last = nn.Conv2d(16, 32, 3, padding=1)
        self.depthwise = nn.Conv2d(32, 32, 3, padding=1, groups=32)
        self.features, self.head = nn.Linear(32, 62), nn.Linear(62, 10)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu_(self.norm(self.stem(x)))
        z = self.inner(y)
        z += y
        z = nn.functional.relu6(self.last(self.pool(torch.relu(z))))
        z = self.depthwise(z).mean((2, 3))
        return self.head(nn.functional.gelu(self.features(z)))  # type: ignore[no-any-return]  # modules are untyped


@pytest.fixture(scope="module")
def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture(scope="module")
def calls() -> list[tuple[Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [(torch.randn(2, 3, 12, 12, generator=generator),) for _ in range(3)]


def agrees(quantized: covan_mlir.Quantized, *args: Tensor, atol: float) -> None:
    """The compiled program with the exported one in eager, and its lineage with what it is."""
    exe = quantized.compile()
    torch.testing.assert_close(exe(*args), quantized.exported.module()(*args), rtol=1e-4, atol=atol)
    assert exe.verify(), str(exe.verify())


def reads(quantized: covan_mlir.Quantized, target: Any) -> list[Any]:
    """What calls of an operator read, behind conversions from steps."""
    nodes = [node for node in quantized.exported.graph.nodes if node.target is target]
    return [[read.target for read in node.all_input_nodes] for node in nodes]


def test_what_is_multiplied_a_word_at_a_time_becomes_steps(net: Net, calls: list[tuple[Tensor]]) -> None:
    quantized = quantize(net, calls)
    report = quantized.report
    assert [layer.name for layer in report.layers] == ["stem", "inner", "last", "depthwise", "features"]
    assert [(one.name, one.why) for one in report.left] == [("head", "62 terms: 4 are multiplied at a time")]
    # Activations are part of what comes before; the residual is the steps that the inner convolution reads.
    assert [read[0] for read in reads(quantized, STEPS.quantize_per_tensor.default)] == [
        "x",
        torch.ops.aten.relu.default,
        torch.ops.aten.relu.default,
        torch.ops.aten.max_pool2d.default,
        torch.ops.aten.relu6.default,
        torch.ops.aten.mean.dim,
    ]
    (residual,) = reads(quantized, torch.ops.aten.add.Tensor)
    assert residual == [torch.ops.aten.conv2d.default, STEPS.dequantize_per_tensor.default]
    scales = [n.args[1] for n in quantized.exported.graph.nodes if n.target is STEPS.quantize_per_tensor.default]
    assert scales[2] == scales[3]  # pooling chooses among steps
    assert not any("batch_norm" in str(node.target) for node in quantized.exported.graph.nodes)
    agrees(quantized, *calls[0], atol=1e-3)


def test_conversions_are_of_the_lines_of_the_source(net: Net, calls: list[tuple[Tensor]]) -> None:
    lineage = quantize(net, calls).compile().lineage
    assert all(action.line.startswith(__file__) for action in lineage.actions)
    assert {action.module for action in lineage.actions if "conv2d" in action.op} == {
        "stem",
        "inner",
        "last",
        "depthwise",
    }


def test_calls_of_one_leave_an_open_size_open(net: Net, calls: list[tuple[Tensor]]) -> None:
    """The exporter takes a size of 1 for the only one there is."""
    single = [(x[:1],) for (x,) in calls]
    quantized = quantize(net, single, calls[0], dynamic_shapes={"x": {0: torch.export.Dim.DYNAMIC}})
    x = torch.cat([x for (x,) in calls])
    torch.testing.assert_close(quantized.compile()(x), quantized.exported.module()(x), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("observer", ["percentile", "mse"])
def test_signed_steps_of_other_ranges(net: Net, calls: list[tuple[Tensor]], observer: Any) -> None:
    quantized = quantize(net, calls, activations="s8", observer=observer)
    types = [n.args[5] for n in quantized.exported.graph.nodes if n.target is STEPS.quantize_per_tensor.default]
    assert types == [torch.int8] * 6
    assert quantized.report.results_db > 30
    agrees(quantized, *calls[0], atol=1e-3)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32), st.floats(0.1, 30.0), st.floats(-5.0, 5.0))
def test_percentiles_are_quantiles(seed: int, spread: float, middle: float) -> None:
    from covan_mlir.quantizing.observers import PercentileObserver

    values = torch.randn(50_000, generator=torch.Generator().manual_seed(seed)) * spread + middle
    observer = PercentileObserver(dtype=torch.uint8, quant_min=0, quant_max=255)
    observer(values)
    scale, zero = observer.calculate_qparams()
    low, high = np.quantile(values.numpy(), [1e-4, 1 - 1e-4])
    bins = 2 * float(values.max() - values.min()) / observer.bins
    assert float(scale) * 255 == pytest.approx(max(high, 0) - min(low, 0), abs=2 * bins)
    assert float(scale) * -int(zero) == pytest.approx(min(low, 0), abs=bins + float(scale))


@pytest.mark.parametrize("mode", ["weights-int8", "weights-int4", "bf16"])
def test_modes_without_calibration(mode: Any) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, 24), nn.Linear(24, 10)).eval()
    x = torch.randn(2, 4, 6, 6)
    quantized = quantize(model, args=(x,), mode=mode, group=12, keep="4")
    assert torch.is_grad_enabled()  # as it was
    assert [layer.name for layer in quantized.report.layers] == (["0", "3"] if mode != "weights-int4" else ["0"])
    # bfloat16 has 8 bits of a number, steps of 4 bits 15 values: a little noise, and some.
    assert quantized.report.results_db > (20 if mode == "weights-int4" else 40)
    agrees(quantized, x, atol=1e-4 if mode != "bf16" else 0.02)


class Product(nn.Module):
    """A product by a matrix of its own, in the order of Conv1D in transformers."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([2, 8, 64]), st.sampled_from([1e-6, 1.0, 1e5]), st.booleans())
def test_weights_are_off_by_half_a_step(seed: int, group: int, size: float, transposed: bool) -> None:
    weight = torch.randn(8, 16, generator=torch.Generator().manual_seed(seed)) * size
    weight[:, 3] = 0
    model = Product(weight) if transposed else nn.Linear(16, 8, bias=False)
    if isinstance(model, nn.Linear):
        model.weight.data = weight
    rows = weight.T if transposed else weight  # of a column of the result each
    x = torch.eye(rows.shape[1])
    for mode, length in (("weights-int8", rows.shape[1]), ("weights-int4", group)):
        given = quantize(model, args=(x,), mode=mode, group=group).exported.module()(x).T  # type: ignore[arg-type]
        length = min(length, rows.shape[1])
        largest = rows.reshape(rows.shape[0], -1, length).abs().amax(-1, keepdim=True)
        step = largest / (127 if mode == "weights-int8" else 7)
        off = (given - rows).abs().reshape(rows.shape[0], -1, length)
        assert bool((off <= step * 0.5 * (1 + 1e-4)).all())


def test_forms_of_calibration_data(
    net: Net, calls: list[tuple[Tensor]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Calls by place, by name, and alone; arrays that are stacked or strung together; a file."""
    arrays = torch.stack([x for (x,) in calls]).numpy()
    np.savez(tmp_path / "data.npz", x=arrays.reshape(6, 3, 12, 12))
    forms: list[tuple[Any, tuple[Any, ...]]] = [
        (iter(calls), ()),
        ([{"x": x} for (x,) in calls], ()),
        ([x.numpy() for (x,) in calls], ()),
        ({"arr_0": arrays}, calls[0]),
        (arrays, ()),
        (tmp_path / "data.npz", calls[0]),
        (np.concatenate([arrays.reshape(6, 3, 12, 12), arrays[0, :1]]), calls[0]),
    ]
    costs = {quantize(net, data, args, keep=("last", "features")).report.results_db for data, args in forms}
    assert len(costs) == 1
    assert "the last 1 of 7 rows of arr_0 fill no call of 2: they are left out" in caplog.text


def nan_inside(x: Tensor) -> Tensor:
    return torch.log(x - 100)


class Nan(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(nan_inside(x))  # type: ignore[no-any-return]  # modules are untyped


X = torch.ones(4, 16)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"calibration": None}, "there is no calibration data: give calls of the model"),
        ({"calibration": []}, "there is no calibration data"),
        ({"calibration": None, "args": (X,)}, "there is no calibration data"),
        (
            {"calibration": [(X,), (X[:2],)]},
            r"input_1 of call 1 .* is f32\[2, 16\], where the model takes f32\[4, 16\]",
        ),
        ({"calibration": [(X,), (X.double(),)]}, r"is f64\[4, 16\], where the model takes f32"),
        ({"calibration": [(X,), (X, X)]}, r"call 1 .* has other arguments than the model: it takes \(input_1: f32"),
        ({"calibration": [(X,), (X / 0,)]}, "input_1 of call 1 of the calibration data has NaN or infinities"),
        ({"calibration": [3]}, "a int in the calibration data is no call: give tuples"),
        ({"calibration": {"y": X}, "args": (X,)}, "has an array 'y': the model takes input"),
        ({"calibration": {"input": X[:, :3]}, "args": (X,)}, r"is \[4, 3\], where the model takes \[4, 16\]"),
        ({"calibration": "gone.npz", "args": (X,)}, "gone.npz: no such file"),
        ({"keep": ("nome",)}, "keep: no layer is called 'nome'\nthere are name"),
        ({"keep": ("*",)}, r"no layer of the model can be quantised \(name: kept\): compile it as it is"),
        ({"mode": "int3"}, "mode='int3': give one of 'int8', 'bf16'"),
        ({"observer": "mean"}, "observer='mean': give one of 'minmax'"),
        ({"group": 0}, "group=0: give a number of weights, two at least"),
    ],
)
def test_refusals(arguments: dict[str, Any], message: str) -> None:
    class Named(nn.Sequential):
        pass

    model = Named()
    model.add_module("name", nn.Linear(16, 16))
    with pytest.raises(InputError, match=message):
        quantize(model, **({"calibration": [(X,)]} | arguments))


def test_numbers_that_are_none_inside() -> None:
    with pytest.raises(InputError, match=r"log has NaN or infinities .* before linear: keep that layer"):
        quantize(Nan(), [(X,)])


def test_models_in_training_mode() -> None:
    with pytest.raises(InputError, match=r"in training mode \(batch_norm\): call eval\(\)"):
        quantize(Net(), [(torch.randn(2, 3, 12, 12),)])


def test_without_torchao(monkeypatch: pytest.MonkeyPatch, net: Net, calls: list[tuple[Tensor]]) -> None:
    monkeypatch.setattr("covan_mlir.quantizing.quantize.installed", lambda: False)
    with pytest.raises(InputError, match=r"needs the package torchao: pip install 'covan-mlir\[quantize\]'"):
        quantize(net, calls)
    assert quantize(net, calls, mode="weights-int8").report.layers
    program = "import sys, covan_mlir; covan_mlir.quantize; sys.exit('torchao' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def trained() -> Any:
    """A model of torchao's, prepared for training with fake steps, and trained a little."""
    from torchao.quantization.pt2e.quantize_pt2e import prepare_qat_pt2e
    from torchao.quantization.pt2e.quantizer import x86_inductor_quantizer as x86

    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Conv2d(4, 32, 3), nn.BatchNorm2d(32), nn.ReLU()), torch.randn(4, 4, 8, 8)
    quantizer = x86.X86InductorQuantizer()
    quantizer.set_global(x86.get_default_x86_inductor_quantization_config(is_qat=True))
    prepared = prepare_qat_pt2e(torch.export.export(model, (x,)).module(), quantizer)
    optimizer = torch.optim.SGD(prepared.parameters(), 0.05)
    with torch.enable_grad():
        for _ in range(3):
            optimizer.zero_grad()
            prepared(x).square().mean().backward()
            optimizer.step()
    return prepared, x


def test_models_that_were_trained_for_it() -> None:
    from torchao.quantization.pt2e import move_exported_model_to_eval
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

    prepared, x = trained()
    want = convert_pt2e(move_exported_model_to_eval(copy.deepcopy(prepared)))
    before = {name: value.clone() for name, value in prepared.state_dict().items()}
    quantized = quantize(prepared, [(x,)])
    assert all(torch.equal(value, before[name]) for name, value in prepared.state_dict().items())
    torch.testing.assert_close(quantized.exported.module()(x), want(x), rtol=0, atol=0)
    assert [layer.op for layer in quantized.report.layers] == ["aten.conv2d.default"]
    agrees(quantized, x, atol=0.05)
    with pytest.raises(InputError, match="the model is prepared already"):
        quantize(prepared, [(x,)], mode="bf16")
    for model in (want, quantized.exported, torch.export.export(want, (x,))):
        with pytest.raises(InputError, match=r"quantised already: give it to covan_mlir\.compile_module"):
            quantize(model, [(x,)])


def test_sizes_that_are_open(net: Net, calls: list[tuple[Tensor]]) -> None:
    sizes = {"x": {0: torch.export.Dim("batch", min=2, max=32)}}
    quantized = quantize(net, calls, dynamic_shapes=sizes)
    assert [(int(bound.lower), int(bound.upper)) for bound in quantized.exported.range_constraints.values()] == [
        (2, 32)
    ]
    agrees(quantized, torch.randn(7, 3, 12, 12), atol=1e-3)


class Counts(nn.Module):
    """A model that remembers, and whose results have names."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(16, 16)
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x: Tensor, *, shift: Tensor) -> dict[str, Tensor]:
        self.count.add_(1)
        return {"result": self.linear(x) + shift + self.count}


def test_the_model_stays_as_it_is() -> None:
    model = Counts().eval()
    x, shift = torch.randn(4, 16), torch.randn(4, 1)
    quantized = quantize(model, [{"shift": shift, "x": x}] * 3)
    assert float(model.count) == 0
    program = quantized.exported.module()
    first, second = (program(x=x, shift=shift)["result"] for _ in range(2))
    torch.testing.assert_close(second, first + 1)

    def interrupted() -> Iterator[dict[str, Tensor]]:
        yield {"x": x, "shift": shift}
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quantize(model, interrupted())
    assert float(model.count) == 0
    assert {name for name, _ in model.named_modules()} == {"", "linear"}


class Writes(nn.Module):
    """A layer that reads what is written piece by piece, and one that does not."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        pieces = torch.zeros_like(x)
        pieces[:, :8] = self.first(x)[:, 8:]
        return self.second(pieces)  # type: ignore[no-any-return]  # modules are untyped


def test_what_is_written_to_stays_in_float(caplog: pytest.LogCaptureFixture) -> None:
    x = torch.randn(4, 16)
    quantized = quantize(Writes().eval(), [(x,)])
    assert "copy_ writes to what is read in another way" in caplog.text
    assert [layer.name for layer in quantized.report.layers] == ["first"]
    assert [(one.name, one.why) for one in quantized.report.left] == [
        ("second", "what it reads is written to in place")
    ]
    agrees(quantized, x, atol=1e-4)


class Joined(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right, self.both = nn.Conv2d(4, 16, 1), nn.Conv2d(4, 16, 1), nn.Conv2d(32, 16, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.both(torch.cat([self.left(x), 3 * self.right(x)], 1))  # type: ignore[no-any-return]  # untyped


def test_what_is_joined_shares_its_range() -> None:
    x = torch.randn(2, 4, 6, 6)
    quantized = quantize(Joined().eval(), [(x,)])
    scales = [n.args[1] for n in quantized.exported.graph.nodes if n.target is STEPS.quantize_per_tensor.default]
    assert len(scales) == 4
    assert len(set(scales[1:])) == 1
    agrees(quantized, x, atol=1e-3)


def test_onnx_models() -> None:
    weights = {"W": np.random.default_rng(0).standard_normal((16, 32), np.float32), "B": np.ones(32, np.float32)}
    nodes = [node("Relu", ["x"], ["y"]), node("Gemm", ["y", "W", "B"], ["z"], "layers/last")]
    x = torch.randn(4, 16)
    quantized = quantize(onnx_model(nodes, {"x": ("float32", [4, 16])}, ["z"], weights), [(x,)])
    assert [layer.op for layer in quantized.report.layers] == ["onnx.Gemm"]
    agrees(quantized, x, atol=1e-4)


def test_noise_is_what_theory_says() -> None:
    """Steps of width s are off by s * s / 12 on average (Bennett 1948); numbers between 0 and 1 have a power of 1/3."""
    model = nn.Linear(64, 64, bias=False)
    model.weight.data = torch.eye(64)  # its steps are exact
    calls = [(torch.rand(256, 64, generator=torch.Generator().manual_seed(seed)),) for seed in range(3)]
    report = quantize(model, calls).report
    (layer,) = report.layers
    assert layer.db == pytest.approx(10 * math.log10(12 * 255**2 / 3), abs=0.2)
    assert (report.results_db, layer.share, report.first) == (layer.db, 1.0, None)
    assert layer.alone_db == pytest.approx(layer.db, abs=0.2)


class Uneven(nn.Module):
    """Layers of which one reads numbers with outliers."""

    def __init__(self) -> None:
        super().__init__()
        self.even, self.uneven, self.last = (nn.Linear(32, 32) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        y = torch.tanh(self.even(x))
        outliers = torch.where(torch.arange(32) == 7, 3e3, 1.0)
        return self.last(torch.tanh(self.uneven(y * outliers) / 30))  # type: ignore[no-any-return]  # untyped


def test_what_is_suggested_reaches_the_bound() -> None:
    torch.manual_seed(0)
    model, calls = Uneven().eval(), [(torch.randn(64, 32),) for _ in range(2)]
    with torch.no_grad():
        model.uneven.weight[:, 7] = 0.0
    report = quantize(model, calls, bound_db=35.0).report
    assert report.worst()[0].name == "uneven"
    assert report.first == "linear_1"
    assert report.suggested[0] == "uneven"
    assert f"keep={report.suggested!r}" in str(report)
    assert report.to_json()["first"] == "linear_1"
    again = quantize(model, calls, bound_db=35.0, keep=report.suggested).report
    assert again.results_db >= 35.0
    assert again.suggested == ()
    assert [one.why for one in again.left] == ["kept"] * len(report.suggested)


class Digits(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            *(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()),
            *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 64), nn.ReLU()),
        )
        self.head = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))  # type: ignore[no-any-return]  # modules are untyped


def test_digits_are_recognised_as_before() -> None:
    """Of handwritten digits, fewer than one in a hundred more are taken for others than by the model in float."""
    from sklearn.datasets import load_digits

    torch.manual_seed(0)
    digits = load_digits()
    order = torch.randperm(len(digits.target))
    images = torch.from_numpy(digits.images / 16).float().unsqueeze(1)[order]
    labels = torch.from_numpy(digits.target)[order]
    held_out = 500
    model = Digits()
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    with torch.enable_grad():
        for batch in (rows for _ in range(8) for rows in torch.randperm(len(labels) - held_out).split(64)):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
    model.eval()
    test, truth = images[-held_out:], labels[-held_out:]
    quantized = quantize(model, images[:250].split(50), dynamic_shapes={"x": {0: torch.export.Dim.DYNAMIC}})
    assert len(quantized.report.layers) == 5
    with torch.no_grad():
        exact = float((model(test).argmax(1) == truth).float().mean())
    given = float((quantized.compile()(test).argmax(1) == truth).float().mean())
    assert exact > 0.95
    assert given > exact - 0.01


def test_the_page_shows_what_happens(capsys: pytest.CaptureFixture[str]) -> None:
    page = (DOCS / "quantised.md").read_text().partition("## Quantising a model")[2]
    program = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert program is not None
    exec(compile(program[1], "quantised.md", "exec"), {"__name__": "page"})
    assert "4 layers in int8, 0 in float" in capsys.readouterr().out


class Counting(nn.Module):
    """Writes to a buffer that its result depends on."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add_(x.mean(0))
        return x * self.seen


def test_models_side_by_side_share_no_buffers() -> None:
    """A model beside itself gives what it gives alone, without noise, and is left as it was."""
    torch.manual_seed(0)
    call = Call((torch.randn(3, 4),))
    module = torch.export.export(Counting(), call.args).module(check_guards=False)
    measurement = measured(Simulated(module, {}, []), [call, call], lambda step: None)
    assert measurement.results == 0
    (x,) = call.args
    assert measurement.tensors["mul"].signal == pytest.approx(2 * float((x * x.mean(0)).square().sum()))
    assert {noise.noise for noise in measurement.tensors.values()} == {0}
    assert not module.get_buffer("seen").any()
