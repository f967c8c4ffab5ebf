"""``torch.compile(backend="covan")``."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import covan_mlir


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def test_a_module_and_its_lineage() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
    compiled = torch.compile(model, backend="covan")
    x = torch.randn(3, 8)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))
        executables = covan_mlir.last_compiled()
        exe = executables[-1]
        assert exe.lineage.where("relu")
        assert exe.verify()
        torch.testing.assert_close(compiled(torch.ones(3, 8)), model(torch.ones(3, 8)))
        assert covan_mlir.last_compiled() == executables  # the same program


def test_other_shapes() -> None:
    compiled = torch.compile(lambda x: x.sum(-1) * x.shape[0], backend="covan")
    with torch.no_grad():
        for rows in (2, 3, 5):
            x = torch.randn(rows, 4)
            torch.testing.assert_close(compiled(x), x.sum(-1) * rows)


def test_graph_breaks() -> None:
    def program(x: Tensor) -> Tensor:
        y = torch.softmax(x, -1)
        if y.max() > 2:  # decided in Python
            return y
        return y * 2 + x

    x = torch.randn(4, 8)
    before = covan_mlir.last_compiled()  # held: none of these goes meanwhile
    torch.testing.assert_close(torch.compile(program, backend="covan")(x), program(x))
    assert len(covan_mlir.last_compiled()) == len(before) + 2


def test_a_graph_that_cannot_be_compiled_runs_in_eager_mode_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    x = torch.randn(4, 8)
    with caplog.at_level(logging.WARNING, logger="covan_mlir"), torch.no_grad():
        torch.testing.assert_close(torch.compile(drawing, backend="covan")(x), drawing(x))
    assert "runs in eager mode" in caplog.text
    assert "random numbers" in caplog.text
    assert f"test_dynamo.py:{drawing.__code__.co_firstlineno + 1}" in caplog.text


def test_what_has_no_derivatives_for_the_compiler_runs_in_eager_mode(caplog: pytest.LogCaptureFixture) -> None:
    """torch says wrongly how large the sparse gradients of weighted bags are."""
    table, indices = torch.randn(4, 5, requires_grad=True), torch.tensor([[1, 2], [0, 1]])

    def bags(weights: torch.Tensor) -> torch.Tensor:
        return F.embedding_bag(indices, table, mode="sum", sparse=True, per_sample_weights=weights).exp()

    weights = torch.randn(2, 2)
    with caplog.at_level(logging.WARNING, logger="covan_mlir"):
        result = torch.compile(bags, backend="covan")(weights)
    torch.testing.assert_close(result, bags(weights))
    (own,), (eager,) = (torch.autograd.grad(y.sum(), table) for y in (result, bags(weights)))
    torch.testing.assert_close(own.to_dense(), eager.to_dense())
    assert "runs in eager mode: AOTAutograd has no derivatives" in caplog.text


def drawing(x: Tensor) -> Tensor:
    return torch.bernoulli(torch.zeros_like(x)) + x


def test_options() -> None:
    compiled = torch.compile(torch.relu, backend="covan", options={"device": "local-sync"})
    torch.testing.assert_close(compiled(torch.tensor([-1.0, 2.0])), torch.tensor([0.0, 2.0]))
    with pytest.raises(Exception, match="device is 'auto'"):
        torch.compile(torch.relu, backend="covan", options={"device": "abacus"})(torch.ones(2))
