"""Models that read and write by indices among their arguments, or computed of them, and that divide integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch._higher_order_ops import map as map_over
from torch._higher_order_ops import scan, while_loop

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
    "counted": lambda x, i: F.embedding(torch.where(i < 0, i + ROWS, i), x),
    "of_narrow": lambda x, i: F.embedding(i.to(torch.int32).to(torch.int64).clamp(-9, 9), x),
}
COMPUTED: dict[str, Callable[..., torch.Tensor]] = {
    "counted from elsewhere": lambda x, i: F.embedding(torch.where(i < 0, i + ROWS + 1, i), x),
    "embedding": lambda x, i: F.embedding(i * 2 - 1, x),
    "index": lambda x, i: x[i * 2 - 1],
    "gather": lambda x, i: x.gather(0, _wide(i * 2)),
    "scatter_add": lambda x, i: x.scatter_add(0, _wide(i * 2), torch.ones(COUNT, WIDTH)),
    "index_add": lambda x, i: x.index_add(0, i * 2 - 1, torch.ones(COUNT, WIDTH)),
    "index_put": lambda x, i: _in_place(x, i * 2 - 1),
    "two": lambda x, i: F.embedding(i * 2, x) + x[:COUNT].index_select(0, i * i),
}
"""Those of `ON_ARGUMENTS` again, with indices that the program computes."""


def _in_branch(x: torch.Tensor, i: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x, i: x.index_select(0, i), lambda x, i: x[:COUNT] * 2, (x, i))


def _in_loop(x: torch.Tensor, i: torch.Tensor) -> Any:
    def step(n: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return n + 1, y + x.index_select(0, i + n)

    return while_loop(lambda n, y: n < 2, step, (torch.tensor(0), x[:COUNT] * 1))


def _in_branch_of_loop(x: torch.Tensor, i: torch.Tensor) -> Any:
    def step(n: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return n + 1, torch.cond(y.sum() > 0, lambda y, n: y + F.embedding(i * n, x), lambda y, n: y - n, (y, n))

    return while_loop(lambda n, y: n < 3, step, (torch.tensor(0), x[:COUNT] * 1))


def _in_condition(x: torch.Tensor, i: torch.Tensor) -> Any:
    def goes_on(n: torch.Tensor, y: torch.Tensor) -> Any:
        return torch.cond(n < 2, lambda n: x.index_select(0, i + n).sum() < 1e9, lambda n: n < 0, (n,))

    return while_loop(goes_on, lambda n, y: (n + 1, y.sin()), (torch.tensor(0), x * 1))


def _in_scan(x: torch.Tensor, i: torch.Tensor) -> Any:
    def step(carried: torch.Tensor, place: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return carried + 1, carried.sin() * x.index_select(0, place.reshape(1) + 1)[0]

    return scan(step, x[0] * 1, i)


def _in_map(x: torch.Tensor, i: torch.Tensor) -> Any:
    return map_over(lambda place, x: x.index_select(0, place.reshape(1) + 1), i, x)


def _divided_in_loop(x: torch.Tensor, i: torch.Tensor) -> Any:
    def step(n: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return n + 1, y + 6 // (i + n)

    return while_loop(lambda n, y: n < 2, step, (torch.tensor(0), i * 1))


IN_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "branch": _in_branch,
    "loop": _in_loop,
    "branch of a loop": _in_branch_of_loop,
    "condition": _in_condition,
    "scan": _in_scan,
    "map": _in_map,
    "division": _divided_in_loop,
}
"""Models that read, or divide, in functions that operators take."""

DIVISIONS: dict[str, Callable[..., torch.Tensor]] = {
    "floor": lambda a, b: a // b,
    "truncated": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "remainder": lambda a, b: a % b,
    "fmod": lambda a, b: torch.fmod(a, b),
    "of_a_number": lambda a, b: 7 % b + a,
    "computed": lambda a, b: a // (b * b - 1),
    "by_zero": lambda a, b: a // 0 + b,
}
