"""Models that take derivatives themselves compile as the operators that compute these."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vmap

import covan_mlir


def _energy(x: Tensor) -> Tensor:
    return (x.softmax(-1) * x).sum()


PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "gradients": grad(_energy),
    "along a direction, of gradients": lambda x: jvp(grad(_energy), (x,), (torch.ones_like(x),))[1],
    "rows of a Jacobian": vmap(jacrev(lambda v: v.sin() * v.sum())),
    "columns of one": jacfwd(lambda x: x.sin().sum(0)),
    "curvature": lambda x: hessian(lambda v: (v.sin() ** 3).sum())(x[0]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_derivatives(name: str, caplog: pytest.LogCaptureFixture) -> None:
    program, x = PROGRAMS[name], torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    with caplog.at_level(logging.INFO, "covan_mlir.frontend.capture"):
        exe = covan_mlir.compile_module(lambda x: program(x), (x,))
    assert "takes derivatives" in caplog.text
    for given in (x, x.cos()):
        torch.testing.assert_close(exe(given), program(given))
    verdict = exe.verify()
    assert verdict, str(verdict)


def _asked(x: Tensor) -> Tensor:
    return grad(_energy)(x).exp()


def test_what_computes_a_derivative_is_found_by_the_line_that_asks_for_it() -> None:
    lineage = covan_mlir.compile_module(_asked, (torch.randn(3, 4),)).lineage
    asked = lineage.where(f"test_derivatives.py:{_asked.__code__.co_firstlineno + 1}")
    assert {*lineage.where("_softmax_backward_data")} <= {*asked}


def test_a_model_without_derivatives_keeps_its_operators() -> None:
    """Vectorised functions alone are recorded as they are called."""
    exe = covan_mlir.compile_module(lambda x: vmap(lambda v: v.softmax(-1))(x), (torch.randn(3, 4),))
    assert "aten.softmax.int" in {action.op for action in exe.lineage.actions}
