"""8-bit arithmetic through 32 bits gives what eager gives, wrapping included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from limits import part
from oracle import assert_same

import covan_mlir

OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "times a number": lambda x: x * 7,
    "minus a number": lambda x: x - 100,
    "remainder": lambda x: x % 7,
    "floor division": lambda x: x // 5,
    "matrix product": lambda x: x @ x.T,
    "batched product": lambda x: torch.bmm(x[None], x.T[None]),
    "full maximum": lambda x: x.max(),
    "maximum with places": lambda x: x.max(1),
    "sorting": lambda x: x.sort(1)[0],
    "argmax": lambda x: x.argmax(1),
    "comparison": lambda x: x > 100,
}


@pytest.mark.parametrize("name", part(OPERATIONS, kept=list(OPERATIONS)[::2]))
def test_bytes(name: str) -> None:
    operation = OPERATIONS[name]
    bits = torch.tensor([[0, 1, 127, 128, 200], [255, 77, 3, 129, 90], [16, 32, 64, 250, 5]])
    unsigned, signed = bits.to(torch.uint8), bits.to(torch.uint8).view(torch.int8)

    def both(a: torch.Tensor, b: torch.Tensor) -> Any:
        return operation(a), operation(b)

    exe = covan_mlir.compile_module(both, (unsigned, signed))
    assert exe.info["frontend"] == "linalg"
    assert_same(exe(unsigned, signed), both(unsigned, signed))


def test_booleans_are_ordered_as_numbers() -> None:
    x = torch.tensor([[True, False, True], [False, True, False]])
    assert_same(covan_mlir.compile_module(lambda x: x.sort(1)[0], (x,))(x), x.sort(1)[0])
