"""Operations one by one: what compiles gives eager's numbers, and what does not is refused by name.

The programs of a group are compiled many at a time; when that fails, each is compiled alone to say which.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from typing import Any

import op_programs_algebra
import op_programs_math
import op_programs_shape
import pytest
import torch
import torch.nn.functional as F
from limits import sweep
from op_inputs import Group, Program, r
from oracle import assert_same
from torch import Tensor, nn

import covan_mlir
from covan_mlir import CompileError
from covan_mlir.frontend.decompose import decompose

DEPTH = 16  # of the deepest decomposition, roughly
SIZE = 14

BATCHES = [
    pytest.param(
        dict(items[start : start + SIZE]),
        id=f"{group}-{start // SIZE}",
        marks=[sweep] if start // SIZE % 2 == 1 else [],
    )
    for group, programs in (op_programs_math.GROUPS | op_programs_shape.GROUPS | op_programs_algebra.GROUPS).items()
    for items in [list(programs.items())]
    for start in range(0, len(items), SIZE)
]


class Batch(nn.Module):
    """Runs several programs."""

    def __init__(self, programs: Group) -> None:
        super().__init__()
        self.programs = {name: function for name, (function, _) in programs.items()}
        # registered, or their weights would be constants
        self.inner = nn.ModuleList(f for f in self.programs.values() if isinstance(f, nn.Module))

    def forward(self, inputs: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
        return {name: function(*inputs[name]) for name, function in self.programs.items()}


def problem(programs: Group) -> str:
    """What is wrong with programs compiled together; nothing if they agree with eager."""
    batch, inputs = Batch(programs).eval(), {name: args for name, (_, args) in programs.items()}
    with torch.no_grad():
        expected = batch(copy.deepcopy(inputs))
    try:
        exe = covan_mlir.compile_module(batch, (copy.deepcopy(inputs),))
        assert_same(exe(inputs), expected, depth=DEPTH)
        assert exe.info["frontend"] == "linalg", "takes IREE's torch input"
    except Exception as error:
        return f"{', '.join(programs)}: {type(error).__name__}: {error}"
    return ""


@pytest.mark.parametrize("programs", BATCHES)
def test_operations(programs: Group) -> None:
    together = problem(programs)
    alone = [failure for name in programs if together and (failure := problem({name: programs[name]}))]
    assert not together, "\n".join(alone or [together])


LIMITATIONS: dict[str, tuple[Program, str, str]] = {
    # name: (program, operation that the error names, why)
    "ldl": ((lambda x: torch.linalg.ldl_factor_ex(x)[0], (r(3, 3),)), "linalg_ldl_factor_ex", "no decomposition"),
}


@pytest.mark.parametrize("name", LIMITATIONS)
def test_limitations_are_named(name: str) -> None:
    (function, args), operation, _ = LIMITATIONS[name]
    with pytest.raises(CompileError, match=operation) as caught:
        covan_mlir.compile_module(function, args)
    assert operation in (caught.value.action or "")
    # a builtin function has no line
    assert caught.value.file == (__file__ if function.__name__ == "<lambda>" else None)


TORCH_INPUT: dict[str, Program] = {
    "view_as_dtype": (lambda x: (x * 2).view(torch.int32) + 1, (r(3, 4),)),
    "frexp": (lambda x: torch.frexp(x * 2), (r(5),)),
}


@pytest.mark.parametrize("name", TORCH_INPUT)
def test_what_torch_mlir_cannot_lower_takes_the_torch_input(name: str, caplog: pytest.LogCaptureFixture) -> None:
    function, args = TORCH_INPUT[name]
    with caplog.at_level(logging.INFO, logger="covan_mlir"):
        exe = covan_mlir.compile_module(function, args)
    assert_same(exe(*args), function(*args))
    assert exe.info["frontend"] == "torch"
    assert exe.lineage.actions
    assert exe.lineage.sites
    assert "torch-mlir cannot lower" in caplog.text
    assert "the whole program takes IREE's torch input instead" in caplog.text


DYNAMIC: dict[str, Callable[[Tensor], Any]] = {
    "elementwise": lambda x: F.gelu(x, approximate="tanh") * torch.clamp(x, -1, 1),
    "softmax": lambda x: x.softmax(0),
    "sum": lambda x: (x.sum(), x.sum(0), x.mean(1)),
    "matmul": lambda x: x @ x.T,
    "cat": lambda x: torch.cat([x, x * 2]),
    "reshape": lambda x: (x.reshape(-1), x.unsqueeze(0).expand(2, -1, -1)),
    "layer_norm": lambda x: F.layer_norm(x, (4,)),
    "cumsum": lambda x: x.cumsum(0),
    "reflected": lambda x: F.pad(x.T[None], (1, 1), mode="reflect"),
    "a size before a tensor": lambda x: (x.shape[0] - x, x.shape[0] / 2 - torch.arange(4)),
    "arange": lambda x: x + torch.arange(x.shape[0]).unsqueeze(1),
    "index": lambda x: x[:, torch.tensor([0, -1])],
    "index_put": lambda x: x.index_put((torch.tensor([0, -1]),), torch.zeros(4)),
    "masked": lambda x: x.masked_fill(x > 0, 0.0),
    "argmax": lambda x: (x.argmax(0), x.max(1)),
    "tril": lambda x: (x @ x.T).tril(),
}


def test_dynamic_shapes() -> None:
    batch = Batch({name: (function, ()) for name, function in DYNAMIC.items()})
    rows = torch.export.Dim("rows", min=2, max=64)
    x = r(5, 4)
    exe = covan_mlir.compile_module(
        batch,
        (dict.fromkeys(DYNAMIC, (x,)),),
        dynamic_shapes={"inputs": {name: ({0: rows},) for name in DYNAMIC}},
    )
    for count in (3, 5, 17):
        y = r(count, 4)
        inputs = dict.fromkeys(DYNAMIC, (y,))
        assert_same(exe(inputs), batch(inputs), depth=DEPTH)


def test_indices_into_slices_at_strides() -> None:
    def forward(x: Tensor, i: Tensor) -> tuple[Tensor, ...]:
        return x[::2, 1::3].index_select(1, i), x[1, ::2][i], x[:, ::2].unflatten(0, (3, -1))[:, :, i]

    i = torch.tensor([2, 0])
    shapes = {"x": {1: torch.export.Dim.DYNAMIC}, "i": None}
    exe = covan_mlir.compile_module(forward, (r(6, 9), i), dynamic_shapes=shapes)
    for count in (9, 14):
        x = r(6, count)
        assert_same(exe(x, i), forward(x, i))
    assert exe.verify()


def test_written_inputs() -> None:
    def forward(x: Tensor, y: Tensor) -> Tensor:
        x[-1] = 3.0
        y[:, 0].mul_(2)
        x.index_put_((torch.tensor([0, -2]),), y[:2], accumulate=True)
        return x.sum() + y.sum()

    x, y = r(5, 4), r(3, 4)
    mine, theirs = (x.clone(), y.clone()), (x.clone(), y.clone())
    assert_same(covan_mlir.compile_module(forward, (x.clone(), y.clone()))(*mine), forward(*theirs), depth=DEPTH)
    assert_same(mine, theirs)


KEPT: dict[str, tuple[Callable[..., Any], str, int]] = {
    # name: (function of a [4, 8] tensor, operation that must stay, how often it stands in the graph)
    "sigmoid": (lambda x: x.sigmoid(), "sigmoid", 1),
    "gelu": (lambda x: F.gelu(x), "gelu", 1),
    "relu": (lambda x: x.relu(), "relu", 1),
    "clamp of integers": (lambda x: x.to(torch.int64).clamp(0, 3), "clamp", 1),
    "power": (lambda x: x**2, "pow", 1),
    "roll": (lambda x: x.roll(1, 0), "roll", 1),
    "cumsum": (lambda x: x.cumsum(0), "cumsum", 1),
    "convolution": (lambda x: F.conv1d(x[None], torch.ones(2, 4, 3)), "conv", 1),
    "pooling": (lambda x: F.max_pool2d(x[None, None], 2), "max_pool2d", 1),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_is_lowered_well_is_left_alone(name: str) -> None:
    function, operation, count = KEPT[name]

    class Model(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return function(x)

    graph = decompose(torch.export.export(Model(), (r(4, 8),))).graph
    targets = [str(node.target) for node in graph.nodes if f"aten.{operation}" in str(node.target)]
    assert len(targets) == count, [str(node.target) for node in graph.nodes]


@pytest.mark.parametrize("function", [torch.erfc, torch.lgamma, lambda x: x.cummax(1), lambda x: x.sort(1)])
def test_rules_keep_the_lineage(function: Callable[[Tensor], Any]) -> None:
    exe = covan_mlir.compile_module(lambda x: function(x + 1), (r(3, 5),))
    add, action = exe.lineage.actions[0], exe.lineage.actions[1]
    assert add.op == "aten.add.Tensor"
    assert len(action.parts) > 1, "its parts are its own"
    performed = {index for site in exe.lineage.sites for index in site.trace}
    assert {add.id, action.id} <= performed
