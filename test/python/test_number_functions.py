"""Functions of numbers that are read from tensors, compiled: as Python computes them, whatever the numbers are."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import covan_mlir

NAN = torch.tensor(math.nan)
HALF = torch.tensor(2.5)


def _compared(x: Tensor, t: Tensor, u: Tensor) -> tuple[Any, ...]:
    a, b = float(t), float(u)
    return x * (a >= b), x * (a < b), torch.tensor(a != b), x + ((a > 1) & (b > 0)), x * torch.sym_not(a > b)


def _extreme(x: Tensor, t: Tensor, u: Tensor) -> tuple[Tensor, ...]:
    a, b = float(t), float(u)
    return x + torch.sym_max(a, b), x + torch.sym_min(a, b), x * abs(b)


def _rounded(x: Tensor, t: Tensor) -> tuple[Tensor, ...]:
    number = float(t)
    return x * math.floor(number), x * math.ceil(number), x * int(number), x * round(number)


def _whole(x: Tensor, i: Tensor, j: Tensor) -> tuple[Tensor, ...]:
    a, b = int(i), int(j)
    return x + a % b, x + a // b, x * abs(a), x * a**3, x + (1 << abs(b)), x * torch.sym_max(a, b)


def _decided(x: Tensor, b: Tensor) -> tuple[Any, ...]:
    truth = bool(b)
    return x * truth, torch.full((2,), truth), x + torch.sym_ite(truth, 2, 3), x.masked_fill(torch.tensor(truth), 0.5)


PROGRAMS: dict[str, tuple[Callable[..., Any], list[tuple[Tensor, ...]]]] = {
    "comparisons": (_compared, [(HALF, -HALF), (NAN, HALF), (HALF, NAN), (-HALF, HALF)]),
    "the larger": (_extreme, [(HALF, -HALF), (NAN, HALF), (HALF, NAN)]),
    "to whole numbers": (_rounded, [(HALF,), (-HALF,), (HALF + 1,)]),
    "integers": (_whole, [(torch.tensor(a), torch.tensor(b)) for a, b in ((7, 3), (-7, 3), (7, -3), (-7, -3))]),
    "booleans": (_decided, [(torch.tensor(True),), (torch.tensor(False),)]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_are_computed_as_in_python(name: str) -> None:
    function, numbers = PROGRAMS[name]
    x = torch.randn(4, 6)
    executable = covan_mlir.compile_module(function, (x, *numbers[0]))
    for given in numbers:
        torch.testing.assert_close(executable(x, *given), function(x, *given), equal_nan=True)
    verdict = executable.verify()
    assert verdict.outcome == "yes", verdict


def test_of_open_sizes() -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        rows = x.shape[0]
        return x * torch.sym_max(rows, 5), x * (rows % 3) + rows**2

    rows = torch.export.Dim("rows", min=2, max=64)
    executable = covan_mlir.compile_module(program, (torch.randn(4, 6),), dynamic_shapes=({0: rows},))
    x = torch.randn(9, 6)
    torch.testing.assert_close(executable(x), program(x))
    assert executable.verify().outcome == "yes"


def test_what_has_no_counterpart_is_refused_by_its_name() -> None:
    with pytest.raises(covan_mlir.CovanError, match=r"test_number_functions.py:\d+: .*operator.mod"):
        covan_mlir.compile_module(lambda x, t: x + float(t) % 0.7, (torch.randn(3), HALF))
