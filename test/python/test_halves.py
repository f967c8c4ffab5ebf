"""What IREE takes for a rotation by half must be one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from limits import part
from torch import Tensor

import covan_mlir

PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "rotation": lambda x: torch.cat([-x[..., 6:], x[..., :6]], -1),
    "rotation of chunks": lambda x: torch.cat([-x.chunk(2, -1)[1], x.chunk(2, -1)[0]], -1),
    "rotation from the end": lambda x: torch.cat([-x[..., -6:], x[..., :-6]], -1),
    "even and odd": lambda x: torch.cat([-x[..., 1::2], x[..., ::2]], -1),
    "other offsets": lambda x: torch.cat([-x[..., 5:11], x[..., 1:7]], -1),
    "first half negated": lambda x: torch.cat([-x[..., :6], x[..., 6:]], -1),
    "chunks, first negated": lambda x: torch.cat([-x.chunk(2, -1)[0], x.chunk(2, -1)[1]], -1),
    "one half twice": lambda x: torch.cat([-x[..., :6], x[..., :6]], -1),
    "split": lambda x: torch.cat([-x.split(6, -1)[0], x.split(6, -1)[1]], -1),
    "narrow": lambda x: torch.cat([-x.narrow(-1, 0, 6), x.narrow(-1, 6, 6)], -1),
    "copied": lambda x: torch.cat([-(x[..., :6].clone()), x[..., 6:]], -1),
    "subtracted": lambda x: torch.cat([0 - x[..., :6], x[..., 6:]], -1),
    "written": lambda x: torch.slice_scatter(x, -x[..., :6], -1, 0, 6),
}


@pytest.mark.parametrize("name", part(PROGRAMS, kept=list(PROGRAMS)[::2]))
def test_result(name: str) -> None:
    x = torch.randn(4, 5, 12)
    function = PROGRAMS[name]
    torch.testing.assert_close(covan_mlir.compile_module(function, (x,))(x), function(x))
