"""Branches and loops as operators: `torch.cond`, ``while_loop``, ``scan``, ``map``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from limits import part
from oracle import assert_same
from torch import Tensor, nn
from torch._higher_order_ops import map as map_over
from torch._higher_order_ops import scan, while_loop

import covan_mlir

X = torch.randn(4, 5, generator=torch.Generator().manual_seed(1))
Program = Callable[..., Any]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


class Branches(nn.Module):
    """Weights that one branch reads alone."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(5, 5), nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = torch.cond(x.sum() > 0, lambda x: self.one(x).relu(), lambda x: self.other(x), (x,))
        return y.softmax(-1)


class Repeated(nn.Module):
    """A layer that is applied three times."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, 5)

    def forward(self, x: Tensor) -> Any:
        return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, self.layer(x).tanh()), (torch.tensor(0), x))


def nested(x: Tensor) -> Any:
    def step(i: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        return i + 1, torch.cond(x.sum() > 3, lambda x: x * 0.5, lambda x: x.abs() + 1, (x,))

    return while_loop(lambda i, x: i < 4, step, (torch.tensor(0), x))


def nested_loops(x: Tensor) -> Any:
    def add(i: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        _, sums = while_loop(lambda j, y: j < 3, lambda j, y: (j + 1, y * 1.5 + i), (_zero(), x))
        return i + 1, sums

    return while_loop(lambda i, x: i < 4, add, (_zero(), x))


def _grown(x: Tensor, factor: float) -> Tensor:
    y: Tensor = while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * factor), (_zero(), x))[1]
    return y


def _sine(x: Tensor) -> Tensor:
    y: Tensor = torch.cond(x.sum() > 0, lambda x: x.sin() * 2, lambda x: x.cos(), (x,))
    return y


def _set(x: Tensor) -> Tensor:
    times = (x.sum() > 0) * 3
    y: Tensor = while_loop(lambda i, y: i < times, lambda i, y: (i + 1, torch.full_like(y, 2.0)), (_zero(), x))[1]
    return y


def _some_set(x: Tensor) -> Any:
    """One is set to what is computed outside, one to a constant that iterations read, and one goes round."""
    times, other = (x.sum() > 0) * 3, x + 1

    def body(i: Tensor, y: Tensor, z: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        return i + 1, y * 2 + z.sin(), torch.ones_like(z), other.cos()

    return while_loop(lambda i, y, z, w: i < times, body, (_zero(), x, x + 2, x.exp()))


def _thinned(places: Tensor, ranks: Tensor) -> Any:
    """Rows lose the place of the highest rank, and those near it. A kernel gives distances, which the condition reads,
    and what is left, which the next turn reads."""
    turns = torch.arange(5)

    def step(turn: Tensor, left: Tensor, best: Tensor) -> tuple[Tensor, ...]:
        first = torch.where(left, ranks, -9.0).argmax(1, keepdim=True)
        here = torch.arange(ranks.shape[1]).unsqueeze(0) == first
        left = left & ~here & ~((places - places.gather(1, first)).abs() < 0.3)
        return turn + 1, left, torch.where((turns == turn).unsqueeze(0), first, best)

    def unfinished(turn: Tensor, left: Tensor, best: Tensor) -> Tensor:
        return (torch.lt(turn, 5) & left.any().reshape(1)).reshape(())

    start = (
        torch.zeros(1, dtype=torch.int64),
        torch.ones_like(ranks, dtype=torch.bool),
        torch.full((len(ranks), 5), -1),
    )
    return while_loop(unfinished, step, start)[2]


def _zero() -> Tensor:
    return torch.zeros((), dtype=torch.int64)


PROGRAMS: dict[str, tuple[Program, tuple[Tensor, ...], str]] = {
    # name: (program, arguments, an action of a body)
    "cond": (
        lambda x: torch.cond(x.sum() > 0, lambda x: x.sin() * 2, lambda x: x.cos() - 1, (x,)),
        (X,),
        "true_graph_0.sin",
    ),
    "cond, weights": (Branches().eval(), (X,), "false_graph_0.linear"),
    "while, values that begin as none of theirs": (
        lambda x: while_loop(lambda i, x, y: i < 3, lambda i, x, y: (i + 1, x * 2, x + 1), (torch.tensor(0), x, x + 2)),
        (X,),
        "while_loop_body_graph_0.mul",
    ),
    "while": (
        lambda x: while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 1.5 + 1), (torch.tensor(0), x)),
        (X,),
        "while_loop_body_graph_0.mul",
    ),
    "while, decided by values": (
        lambda x: while_loop(lambda x: x.sum() < 100, lambda x: (x.abs() * 1.5 + 1,), (x,)),
        (X,),
        "while_loop_body_graph_0.abs_1",
    ),
    "while, nothing in it is constant": (
        lambda x: while_loop(lambda x, y: (x < y).any(), lambda x, y: (x + x.exp(), y.sin()), (x, x.exp())),
        (X,),
        "while_loop_body_graph_0.sin",
    ),
    "while, whether to go on goes round": (
        lambda x: while_loop(
            lambda on, x: on.clone(), lambda on, x: ((x.sum() < 100).clone(), x.abs() + 1), (x.sum() < 200, x.clone())
        ),
        (X,),
        "while_loop_body_graph_0.abs_1",
    ),
    "while, never": (
        lambda x: while_loop(lambda i, x: i < 0, lambda i, x: (i + 1, x * 2), (torch.tensor(0), x)),
        (X,),
        "while_loop_body_graph_0.mul",
    ),
    "while, a number": (
        lambda x: while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x + 1), (0, x)),
        (X,),
        "while_loop_body_graph_0.add_1",
    ),
    "while, weights": (Repeated().eval(), (X,), "while_loop_body_graph_0.linear"),
    "while, exchanged": (
        lambda x: while_loop(
            lambda i, x, y: i < 3, lambda i, x, y: (i + 1, y.clone(), x.clone()), (torch.tensor(0), x, x + 1)
        ),
        (X,),
        "while_loop_body_graph_0.add",
    ),
    "while, the value before": (
        lambda x: while_loop(
            lambda i, x, y: i < 3, lambda i, x, y: (i + 1, y.clone(), x + y), (torch.tensor(0), x, x + 1)
        ),
        (X,),
        "while_loop_body_graph_0.add_1",
    ),
    "two equal loops": (lambda x: _grown(x, 1.5) + _grown(x, 1.5).exp(), (X,), "while_loop_body_graph_1.mul"),
    "two loops that begin alike": (
        lambda x: _grown(x, 1.5) + _grown(x, 1.25).exp(),
        (X,),
        "while_loop_body_graph_1.mul",
    ),
    "two equal branches": (lambda x: _sine(x) + _sine(x).exp(), (X,), "true_graph_1.sin"),
    "while, two results of one kernel": (_thinned, (X, X.sin()), "while_loop_body_graph_0.argmax"),
    "nested": (nested, (X,), "while_loop_body_graph_0.true_graph_0.mul"),
    "loop in a loop": (nested_loops, (X,), "while_loop_body_graph_0.while_loop_body_graph_0.mul"),
    "map": (lambda xs, y: map_over(lambda x, y: x.sin() @ y, xs, y), (X.repeat(3, 1, 1), X.t()), "body_graph_0.sin"),
    "scan": (
        lambda first, xs: scan(lambda carry, x: (carry * 0.5 + x, (carry + x).sin()), first, xs),
        (X[0], X),
        "scan_combine_graph_0.sin",
    ),
    "scan, from the first one on": (
        lambda xs: scan(lambda carry, x: (carry * 0.5 + x, (carry + x).sin()), xs[0] * 1, xs),
        (X,),
        "scan_combine_graph_0.sin",
    ),
    "scan, backwards": (
        lambda first, xs: scan(lambda carry, x: (carry * 0.5 + x, carry * 1), first, xs, reverse=True),
        (X[0], X),
        "scan_combine_graph_0.mul",
    ),
}


def _scaled(x: Tensor, over: Tensor) -> Tensor:
    y: Tensor = scan(lambda y, element: (y * 1.5, []), x, over)[0]
    return y


def test_loops_of_other_lengths_are_not_one() -> None:
    def program(x: Tensor, six: Tensor, three: Tensor) -> Tensor:
        return _scaled(x, six) + _scaled(x, three).exp()

    args = X[0], torch.randn(6, 5), torch.randn(3, 5)
    exe = covan_mlir.compile_module(program, args)
    assert_same(exe(*args), program(*args), depth=16)
    assert str(exe.verify()).startswith("yes"), str(exe.verify())
    fates = {action.name: exe.lineage.fate(action.name).kind for action in exe.lineage.actions}
    assert "merged" not in fates.values(), fates


@pytest.mark.parametrize("name", part(PROGRAMS, kept=[*list(PROGRAMS)[::3], "while, two results of one kernel"]))
def test_branches_and_loops(name: str, tmp_path: Path) -> None:
    program, args, action = PROGRAMS[name]
    exe = covan_mlir.compile_module(program, args)
    assert exe.info["frontend"] == "linalg"
    for sign in (1, -1):
        signed = tuple(sign * arg for arg in args)
        assert_same(exe(*signed), program(*signed), depth=16)
    assert exe.lineage.where(action), [action.name for action in exe.lineage.actions]
    (inner,) = exe.lineage.find(action)
    assert inner.line.startswith(__file__)
    exe.save(tmp_path / "model.covan")
    verdict = covan_mlir.load(tmp_path / "model.covan").verify()
    # Numbers between dispatches are not read.
    assert verdict.outcome == ("incomplete" if name == "while, a number" else "yes"), str(verdict)


STRAIGHT: dict[str, tuple[Program, tuple[Tensor, ...]]] = {
    "scan over one": (lambda first, xs: scan(lambda y, x: (y * 2 + x.sin(), y + x), first, xs), (X[0], X[:1])),
    "map over one": (lambda xs: map_over(lambda x: x.sin() * 2, xs), (X[:1],)),
    "map that copies": (lambda xs: map_over(lambda x: x.clone(), xs), (X,)),
    "scan, nothing is computed": (lambda first, xs: scan(lambda y, x: (y.clone(), x.clone()), first, xs), (X[0], X)),
    "while, nothing changes": (lambda x: while_loop(lambda x: x.sum() < -1e3, lambda x: (x.clone(),), (x,)), (X,)),
    "while, set to a constant": (_set, (X,)),
    "cond, constants": (
        lambda x: torch.cond(x.sum() > 0, lambda x: torch.ones(5), lambda x: torch.zeros(5), (x,)),
        (X,),
    ),
    "cond, what it is given": (
        lambda x, y: torch.cond(x.sum() > 0, lambda x, y: x.clone(), lambda x, y: y.clone(), (x, y)),
        (X, X + 1),
    ),
    "cond, twice the same": (lambda x: torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.sin(), (x,)), (X,)),
    "cond, decided": (lambda x: torch.cond(torch.tensor(True), lambda x: x.cos(), lambda x: x.sin(), (x,)), (X,)),
}
"""Branches and loops that decide nothing."""
SOME_STRAIGHT: dict[str, tuple[Program, tuple[Tensor, ...]]] = {
    "scan, a value stays": (lambda first, xs: scan(lambda y, x: (y.clone(), y + x.sin()), first, xs), (X[0], X)),
    "while, a value stays": (
        lambda x, y: while_loop(
            lambda i, x, y: i < 4, lambda i, x, y: (i + 1, x.clone(), y * x), (torch.tensor(0), x, y)
        ),
        (X, X + 1),
    ),
    "while, some are set to what no iteration changes": (_some_set, (X,)),
    "cond, one of two is decided by nothing": (
        lambda x: torch.cond(x.sum() > 0, lambda x: (x.sin(), x.exp()), lambda x: (x.cos(), x.exp()), (x,)),
        (X,),
    ),
}
"""Such with values besides that are decided, or go round."""


@pytest.mark.parametrize("name", part(STRAIGHT | SOME_STRAIGHT, kept=[*STRAIGHT, *SOME_STRAIGHT][::2]))
def test_what_decides_nothing_is_straight(name: str) -> None:
    program, args = (STRAIGHT | SOME_STRAIGHT)[name]
    exe = covan_mlir.compile_module(program, args)
    for sign in (1, -1):
        signed = tuple(sign * arg for arg in args)
        assert_same(exe(*signed), program(*signed), depth=16)
    control = [part.name for part in exe.lineage.parts.values() if part.op.startswith("control.")]
    assert bool(control) == (name in SOME_STRAIGHT), control
    assert str(exe.verify()).startswith("yes"), str(exe.verify())


@pytest.mark.parametrize("name", ["cond", "cond, weights", "while", "while, weights", "map", "scan"])
def test_through_torch_compile(name: str) -> None:
    program, args, _ = PROGRAMS[name]
    before = len(covan_mlir.last_compiled())
    with torch.no_grad():
        assert_same(torch.compile(program, backend="covan")(*args), program(*args), depth=16)
    assert len(covan_mlir.last_compiled()) == before + 1


def test_layers_of_a_region_are_actions() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))

        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16):
                y: Tensor = self.layers(x)
            return y

    exe = covan_mlir.compile_module(Net().eval(), (torch.randn(2, 4),))
    layers = [action for action in exe.lineage.actions if action.body]
    assert [action.op.removeprefix("aten.") for action in layers] == [
        "linear.default",
        "relu.default",
        "linear.default",
        "relu.default",
        "linear.default",
    ]
    assert [action.module for action in layers] == [f"layers.{index}" for index in range(5)]
    assert all(exe.lineage.where(action) for action in layers if action.op == "aten.linear.default")
    assert exe.verify(), str(exe.verify())


HOLDING: dict[str, tuple[Program, tuple[Tensor, ...]]] = {
    "cond, both": (
        lambda x: torch.cond(
            x.sum() > 0, lambda x: x * torch.tensor(1.5), lambda x: x - torch.tensor([1.0, 2, 3, 4, 5]), (x,)
        ),
        (X,),
    ),
    "while": (
        lambda x: while_loop(
            lambda i, x: i < torch.tensor(3), lambda i, x: (i + 1, x * torch.tensor(1.5) + 1), (torch.tensor(0), x)
        ),
        (X,),
    ),
    "map": (lambda xs: map_over(lambda x: x.sin() * torch.tensor(0.5), xs), (X,)),
    "scan": (
        lambda first, xs: scan(lambda y, x: (y * torch.tensor(0.5) + x, (y + torch.tensor(1.5)).sin()), first, xs),
        (X[0], X),
    ),
    "a function in a function": (
        lambda x: torch.cond(
            x.sum() > 0,
            lambda x: torch.cond(x.mean() < 1, lambda x: x * torch.tensor(2.5), lambda x: x.sin(), (x,)),
            lambda x: x - 1,
            (x,),
        ),
        (X,),
    ),
}


@pytest.mark.parametrize("name", HOLDING)
def test_functions_that_hold_tensors(name: str) -> None:
    program, args = HOLDING[name]
    exe = covan_mlir.compile_module(program, args)
    for sign in (1, -1):
        signed = tuple(sign * arg for arg in args)
        assert_same(exe(*signed), program(*signed), depth=16)
    assert exe.verify(), str(exe.verify())
