"""Gradients through ``torch.compile(backend="covan")``, against eager PyTorch's."""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from limits import part
from torch import Tensor, nn

import covan_mlir

PAGE = Path(__file__).resolve().parents[2] / "docs" / "training.md"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


class Net(nn.Module):
    """Convolution, normalisation with running statistics, dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.bn = nn.BatchNorm2d(8)
        self.drop = nn.Dropout(0.3)
        self.fc = nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn(self.conv1(x)))
        return F.log_softmax(self.fc(self.drop(y.mean((2, 3)))), -1)


class Attention(nn.Module):
    """A causal layer with an embedding that is tied to what it predicts by."""

    def __init__(self, tokens: int = 50, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.embedding = nn.Embedding(tokens, width)
        self.norm = nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.head = nn.Linear(width, tokens, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, indices: Tensor, targets: Tensor) -> Tensor:
        x = self.embedding(indices)
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.gelu(self.out(y.transpose(1, 2).reshape(b, t, d)))
        return F.cross_entropy(self.head(x).flatten(0, 1), targets.flatten())


def assert_learns_as_eager(
    model: nn.Module, loss: Callable[..., Tensor], args: Sequence[Any], **tolerance: float
) -> None:
    """Loss, gradients and buffers, from the same random numbers; both programs are verified."""
    twin, before = copy.deepcopy(model), covan_mlir.last_compiled()  # held: none of these goes meanwhile
    torch.manual_seed(1)
    expected = loss(twin, *args)
    expected.backward()
    compiled = torch.compile(model, backend="covan")
    torch.manual_seed(1)
    given = loss(compiled, *args)
    given.backward()
    torch.testing.assert_close(given, expected, **tolerance)
    for (name, own), other in zip(model.named_parameters(), twin.parameters(), strict=True):
        assert (own.grad is None) == (other.grad is None), name
        if other.grad is not None:
            torch.testing.assert_close(own.grad, other.grad, msg=lambda text, name=name: f"{name}: {text}", **tolerance)
    for own, other in zip(model.buffers(), twin.buffers(), strict=True):
        torch.testing.assert_close(own, other)
    programs = covan_mlir.last_compiled()[len(before) :]
    assert len(programs) == 2
    assert all(program.verify() for program in programs)


def test_a_convolution_with_running_statistics_and_dropout() -> None:
    torch.manual_seed(0)
    targets = torch.tensor([0, 1, 2, 3])
    x = torch.randn(4, 3, 8, 8)
    assert_learns_as_eager(Net(), lambda model, x: F.nll_loss(model(x), targets), [x])


def test_attention_and_a_tied_embedding() -> None:
    torch.manual_seed(0)
    args = [torch.randint(0, 50, (3, 16)) for _ in range(2)]
    assert_learns_as_eager(Attention(), lambda model, *args: model(*args), args)


def test_what_each_site_of_the_backward_program_is_the_gradient_of() -> None:
    model = Net()
    torch.compile(model, backend="covan")(torch.randn(4, 3, 8, 8)).sum().backward()
    backward = covan_mlir.last_compiled()[-1]
    roles = {action.role: action for site in backward.lineage.sites for action in backward.lineage.why(site)}
    weight = roles["gradient of fc with respect to weight"]
    assert weight.module == "fc"
    assert weight.line.endswith(f"test_training.py:{Net.forward.__code__.co_firstlineno + 2}")
    assert {"gradient of relu with respect to its input", "gradient of fc with respect to bias"} <= roles.keys()
    assert any(role.startswith("gradient of conv1 with respect to") and "weight" in role for role in roles)
    assert "gradient of fc with respect to weight" in backward.explain()


def test_parameters_that_nothing_depends_on_have_no_gradients() -> None:
    class Part(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused, self.frozen = (nn.Linear(4, 4) for _ in range(3))
            self.frozen.requires_grad_(requires_grad=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.frozen(self.used(x)) + self.unused.weight.shape[0]

    torch.manual_seed(0)
    assert_learns_as_eager(Part(), lambda model, x: model(x).square().sum(), [torch.randn(3, 4)])


def test_gradients_of_two_calls_add_up_and_hooks_see_them() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))
    twin, seen = copy.deepcopy(model), []
    model[2].weight.register_hook(lambda gradient: seen.append(gradient.clone()))
    compiled = torch.compile(model, backend="covan")
    for _ in range(2):
        x = torch.randn(5, 6)
        compiled(x).square().mean().backward()
        twin(x).square().mean().backward()
    for own, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(own.grad, other.grad)
    assert len(seen) == 2
    torch.testing.assert_close(seen[0] + seen[1], twin[2].weight.grad)


def test_autocast() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))

    def loss(model: nn.Module, x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            y = model(x)
        assert y.dtype == torch.bfloat16
        return y.float().square().mean()

    assert_learns_as_eager(model, loss, [torch.randn(8, 16)], rtol=2e-2, atol=2e-2)


def test_random_numbers_follow_the_seed() -> None:
    def noisy(x: Tensor, w: Tensor) -> Tensor:
        return (torch.rand_like(x) * x * w + torch.randn(3, 4)).sum()

    x, w = torch.randn(3, 4), torch.randn(3, 4, requires_grad=True)
    compiled = torch.compile(noisy, backend="covan")
    results = []
    for function in (noisy, compiled, compiled):
        torch.manual_seed(3)
        (gradient,) = torch.autograd.grad(function(x, w), w)
        results.append(gradient)
    torch.testing.assert_close(results[1], results[0])
    assert torch.equal(results[1], results[2])


def test_random_numbers_that_depend_on_what_is_computed(caplog: pytest.LogCaptureFixture) -> None:
    def chosen(x: Tensor) -> Tensor:
        return torch.bernoulli(torch.sigmoid(x * 2)) * x

    x = torch.randn(3, 4, requires_grad=True)
    with caplog.at_level(logging.WARNING, logger="covan_mlir"):
        torch.manual_seed(0)
        y = torch.compile(chosen, backend="covan")(x)
    torch.manual_seed(0)
    torch.testing.assert_close(y, chosen(x))
    assert "a graph of derivatives runs in eager mode" in caplog.text
    assert f"test_training.py:{chosen.__code__.co_firstlineno + 1}: bernoulli" in caplog.text


def test_a_result_has_the_strides_that_it_has_in_eager() -> None:
    w = torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last).requires_grad_()
    y = torch.compile(lambda w: w.relu() * 2, backend="covan")(w)
    assert y.stride() == (w.relu() * 2).stride()
    (gradient,) = torch.autograd.grad(y.sum(), w)
    torch.testing.assert_close(gradient, (w > 0) * 2.0)


def test_gradients_by_finite_differences() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Softplus(), nn.LayerNorm(4)).double()
    compiled = torch.compile(model, backend="covan")
    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(compiled, (x,))


CONVOLUTIONS = (
    (1, 1, 1, 1, False),
    (2, 1, 1, 2, False),
    (3, 2, 2, 1, False),
    (1, 0, 1, 4, False),
    (2, 1, 1, 1, True),
    (1, 1, 2, 2, True),
)


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups", "transposed"), part(CONVOLUTIONS, kept=CONVOLUTIONS[1::2])
)
def test_gradients_of_convolutions(stride: int, padding: int, dilation: int, groups: int, transposed: bool) -> None:
    torch.manual_seed(0)
    x, channels = torch.randn(2, 4, 9, 8, requires_grad=True), (4, 8) if transposed else (8, 4)
    weight = torch.randn(channels[0], channels[1] // groups, 3, 2, requires_grad=True)
    bias = torch.randn(8, requires_grad=True)

    def convolved(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        if transposed:
            return F.conv_transpose2d(x, weight, bias, stride, padding, groups=groups, dilation=dilation)
        return F.conv2d(x, weight, bias, stride, padding, dilation, groups)

    weights = torch.randn_like(convolved(x, weight, bias))
    expected = torch.autograd.grad(convolved(x, weight, bias), (x, weight, bias), weights)
    given = torch.autograd.grad(torch.compile(convolved, backend="covan")(x, weight, bias), (x, weight, bias), weights)
    for one, other in zip(given, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    assert covan_mlir.last_compiled()[-1].verify()


@pytest.mark.parametrize("mode", part(["nearest", "bilinear", "bicubic"], kept=["nearest", "bicubic"]))
def test_gradients_of_resizing_are_sums(mode: str) -> None:
    def resized(x: Tensor) -> Tensor:
        return F.interpolate(x * 2, scale_factor=2, mode=mode)

    x = torch.randn(2, 3, 5, 7, requires_grad=True)
    weights = torch.randn(2, 3, 10, 14)
    (expected,) = torch.autograd.grad(resized(x), x, weights)
    (given,) = torch.autograd.grad(torch.compile(resized, backend="covan")(x), x, weights)
    torch.testing.assert_close(given, expected, rtol=1e-5, atol=1e-5)
    programs = covan_mlir.last_compiled()[-2:]
    assert all(program.verify() for program in programs)
    assert not any("scatter" in site.kernel for program in programs for site in program.lineage.sites)


def test_the_page_about_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(programs) == 3
    monkeypatch.chdir(tmp_path)
    (file := tmp_path / "page.py").write_text("".join(programs))
    exec(compile(file.read_text(), str(file), "exec"), {"__name__": "page"})
