"""Models that read and write by indices among their arguments, or computed of them, and that divide integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

ROWS, WIDTH, COUNT = 5, 4, 3


def _labels(loss: Callable[..., torch.Tensor], **named: Any) -> Callable[..., torch.Tensor]:
    return lambda x, i: loss(x[:COUNT], i, **named)


def _in_place(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[i] = 7.0
    return y


def _wide(i: torch.Tensor) -> torch.Tensor:
    return i.unsqueeze(1).expand(COUNT, WIDTH)


ON_ARGUMENTS: dict[str, Callable[..., torch.Tensor]] = {
    "embedding": lambda x, i: F.embedding(i, x),
    "embedding_bag": lambda x, i: F.embedding_bag(i, x, torch.tensor([0, 2]), mode="sum"),
    "embedding_bag_mean": lambda x, i: F.embedding_bag(i, x, torch.tensor([0, 2]), mode="mean"),
    "index_select": lambda x, i: x.index_select(0, i),
    "index": lambda x, i: x[i],
    "index_second_axis": lambda x, i: x[:, i],
    "take": lambda x, i: torch.take(x, i),
    "put": lambda x, i: torch.put(x, i, torch.ones(COUNT)),
    "gather": lambda x, i: x.gather(0, _wide(i)),
    "scatter": lambda x, i: x.scatter(0, _wide(i), 2.0),
    "scatter_add": lambda x, i: x.scatter_add(0, _wide(i), torch.ones(COUNT, WIDTH)),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, _wide(i), torch.ones(COUNT, WIDTH), "amax"),
    "index_put": _in_place,
    "index_add": lambda x, i: x.index_add(0, i, torch.ones(COUNT, WIDTH)),
    "index_copy": lambda x, i: x.index_copy(0, i, torch.ones(COUNT, WIDTH)),
    "index_fill": lambda x, i: x.index_fill(0, i, 2.0),
    "index_reduce": lambda x, i: x.index_reduce(0, i, torch.ones(COUNT, WIDTH), "amax"),
    "nll_loss": _labels(F.nll_loss),
    "cross_entropy": _labels(F.cross_entropy),
    "cross_entropy_ignoring": _labels(F.cross_entropy, ignore_index=-1, label_smoothing=0.1),
    "multi_margin_loss": _labels(F.multi_margin_loss),
    "one_hot": lambda x, i: F.one_hot(i, ROWS) + x.sum().to(torch.int64),
    "of_a_slice": lambda x, i: F.embedding(i[1:], x),
    "of_a_column": lambda x, i: F.embedding(i.reshape(1, COUNT)[0], x),
    "of_a_sum": lambda x, i: F.embedding(i + 2, x),
    "of_narrow": lambda x, i: F.embedding(i.to(torch.int32).to(torch.int64).clamp(-9, 9), x),
}
COMPUTED: dict[str, Callable[..., torch.Tensor]] = {
    "embedding": lambda x, i: F.embedding(i * 2 - 1, x),
    "index": lambda x, i: x[i * 2 - 1],
    "gather": lambda x, i: x.gather(0, _wide(i * 2)),
    "scatter_add": lambda x, i: x.scatter_add(0, _wide(i * 2), torch.ones(COUNT, WIDTH)),
    "index_add": lambda x, i: x.index_add(0, i * 2 - 1, torch.ones(COUNT, WIDTH)),
    "index_put": lambda x, i: _in_place(x, i * 2 - 1),
    "two": lambda x, i: F.embedding(i * 2, x) + x[:COUNT].index_select(0, i * i),
}
"""Those of `ON_ARGUMENTS` again, with indices that the program computes."""

DIVISIONS: dict[str, Callable[..., torch.Tensor]] = {
    "floor": lambda a, b: a // b,
    "truncated": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "remainder": lambda a, b: a % b,
    "fmod": lambda a, b: torch.fmod(a, b),
    "of_a_number": lambda a, b: 7 % b + a,
    "computed": lambda a, b: a // (b * b - 1),
    "by_zero": lambda a, b: a // 0 + b,
}
