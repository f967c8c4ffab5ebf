"""Open sizes and 1: a program that would have other shapes there than eager has does not take it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.export import Dim

import covan_mlir
from covan_mlir import InputError

# Each, and whether it takes a size of 1.
PROGRAMS: dict[str, tuple[Callable[[Tensor], Tensor], bool]] = {
    "element-wise": (lambda x: x * 2 + torch.ones(3), True),
    "a product": (lambda x: torch.softmax(x @ torch.ones(3, 4), -1), True),
    "an axis that goes": (lambda x: (x * 2).squeeze(0), False),
    "one that goes inside": (lambda x: x.unsqueeze(0).squeeze(1).sum(-1).flatten(), False),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_size_of_one_is_right_or_refused(name: str) -> None:
    function, taken = PROGRAMS[name]
    exe = covan_mlir.compile_module(function, (torch.randn(4, 3),), dynamic_shapes=({0: Dim("rows")},))
    x, one = torch.randn(5, 3), torch.randn(1, 3)
    torch.testing.assert_close(exe(x), function(x))
    if taken:
        torch.testing.assert_close(exe(one), function(one))
    else:
        with pytest.raises(InputError, match="is 1; the model was exported for 2"):
            exe(one)
