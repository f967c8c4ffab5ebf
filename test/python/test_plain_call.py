"""Which calls are of the usual kind, and that they give what the general way gives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import covan_mlir


class Scores(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(24, 40)

    def forward(self, x: Tensor, scale: Tensor) -> dict[str, Tensor | int]:
        y = self.linear(x) * scale
        return {"scores": y, "most": y.argmax(-1), "count": 7}


@pytest.fixture(scope="module")
def model() -> Scores:
    torch.manual_seed(0)
    return Scores().eval()


@pytest.fixture(scope="module")
def exe(model: Scores) -> covan_mlir.Executable:
    return covan_mlir.compile_module(model, (torch.randn(8, 24), torch.randn(8, 1)))


def general_calls(exe: covan_mlir.Executable, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Gets an element for each call that goes the general way."""
    calls: list[int] = []
    checked = exe.checked

    def counted(*passed: object, **named: object) -> object:
        calls.append(1)
        return checked(*passed, **named)

    monkeypatch.setattr(exe, "checked", counted)
    return calls


USUAL: dict[str, Callable[[Tensor], Tensor]] = {
    "plain": lambda x: x,
    "parameter": nn.Parameter,
    "requires_grad": lambda x: x.clone().requires_grad_(),
}
UNUSUAL: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda x: x.t().contiguous().t(),
    "odd address": lambda x: torch.cat([torch.zeros(1), x.flatten()])[1:].view(8, 24),
    "negated": lambda x: torch.complex(x, -x).conj().imag,
    "subclass": lambda x: x.as_subclass(type("Named", (Tensor,), {})),
}


@pytest.mark.parametrize(("kind", "general"), [*((k, 0) for k in USUAL), *((k, 1) for k in UNUSUAL)])
def test_tensors(
    kind: str, general: int, model: Scores, exe: covan_mlir.Executable, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, scale = (USUAL | UNUSUAL)[kind](torch.randn(8, 24)), torch.randn(8, 1)
    calls = general_calls(exe, monkeypatch)
    actual, expected = exe(x, scale), model(x, scale)
    assert len(calls) == general
    assert actual.keys() == expected.keys()
    torch.testing.assert_close(actual["scores"], expected["scores"].detach())
    assert actual["most"].equal(expected["most"])
    assert actual["count"] == 7


def test_arrays_give_arrays(model: Scores, exe: covan_mlir.Executable, monkeypatch: pytest.MonkeyPatch) -> None:
    x, scale = torch.randn(8, 24), torch.randn(8, 1)
    calls = general_calls(exe, monkeypatch)
    scores = exe(x.numpy(), scale.numpy())["scores"]
    assert len(calls) == 1
    assert isinstance(scores, np.ndarray)
    np.testing.assert_allclose(scores, model(x, scale)["scores"].detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.randn(9, 24), torch.randn(8, 1)), "argument x"),
        ((torch.randn(8, 24).double(), torch.randn(8, 1)), "is float64"),
        ((torch.randn(8, 24),), "scale"),
        ((torch.randn(8, 24), 2.0), "argument scale is a float"),
    ],
)
def test_what_does_not_fit_is_refused_as_ever(
    arguments: tuple[object, ...], message: str, exe: covan_mlir.Executable
) -> None:
    with pytest.raises(covan_mlir.InputError, match=message):
        exe(*arguments)


def test_indices_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    table, places = torch.randn(10, 4), torch.tensor([1, 9, 0])
    exe = covan_mlir.compile_module(lambda t, i: t[i], (table, places))
    calls = general_calls(exe, monkeypatch)
    assert exe(table, places).equal(table[places])
    with pytest.raises(covan_mlir.OutOfRangeError, match="10"):
        exe(table, torch.tensor([1, 10, 0]))
    assert not calls


def test_a_result_lives_as_long_as_it_is_held(exe: covan_mlir.Executable) -> None:
    """Results are memory of their own, not that of the next call's."""
    x, scale = torch.randn(8, 24), torch.randn(8, 1)
    first = exe(x, scale)["scores"]
    kept = first.clone()
    for _ in range(3):
        exe(torch.randn(8, 24), scale)
    assert first.equal(kept)
