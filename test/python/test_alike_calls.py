"""Calls that are alike are decomposed once, and the program is what decomposing all of them gives."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
import zoo
from torch import Tensor, nn
from torch.export import ExportedProgram

from covan_mlir.frontend import decompose as module
from covan_mlir.frontend.alike_calls import decompose_alike
from covan_mlir.frontend.capture import capture


def _capture(model: Any, *args: Any, **named: Any) -> ExportedProgram:
    with torch.no_grad():
        return capture(model, args, named.pop("kwargs", None), named.pop("dynamic_shapes", None)).program


def _text(program: ExportedProgram) -> list[str]:
    """The graph without what nobody reads, with what lineages take from it."""
    for check in program.graph.find_nodes(op="call_function", target=torch.ops.aten._assert_tensor_metadata.default):
        program.graph.erase_node(check)
    program.graph.eliminate_dead_code()
    lines = []
    for node in program.graph.nodes:
        origin = node.meta.get("from_node")
        while origin and origin[-1].from_node:  # the innermost: a node of the exported program
            origin = origin[-1].from_node
        line = [node.name, node.op, node.target, node.args, node.kwargs, node.meta.get("val")]
        line += [node.meta.get("stack_trace"), list(node.meta.get("nn_module_stack") or {})]
        lines.append(" ".join(map(str, [*line, origin[-1].name if origin and node.op == "call_function" else ""])))
    return lines


class _Blocks(nn.Module):
    def __init__(self, count: int, **options: Any) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.ReLU(**options)) for _ in range(count)
        )

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + block(x)
        return x


def _pieces(x: Tensor) -> tuple[Tensor, ...]:
    a, b = x.split(2, -1)
    c, d = (a * b).split(1, -1)
    values, places = torch.cat([c, d], -1).max(-1)
    more, _ = torch.cat([d, c], -1).max(-1)
    return values + more + values + more, places, x


def _same_twice(x: Tensor, y: Tensor) -> Tensor:
    first = torch.atan2(x, x) + torch.atan2(y, y)
    return first + torch.atan2(x, y) + torch.atan2(y, x)


def _written_then_read(x: Tensor) -> Tensor:
    a, b = x + 1, x + 2
    a.mul_(3)
    b.mul_(3)
    return a.relu_() + a + b.relu_() + b


def _itself(input: Tensor) -> Tensor:
    for _ in range(3):
        input = nn.functional.dropout(input, training=False).contiguous()
    return input


def _writes_to_the_last_view(x: Tensor) -> Tensor:
    y = x.exp().flatten().relu_().view(2, 6)
    y.mul_(2)
    return y.relu_() + x.exp().flatten().relu_().view(2, 6).mul_(2)


@pytest.mark.parametrize(
    ("model", "args"),
    [
        (_Blocks(4), (torch.randn(3, 8),)),
        (_Blocks(4, inplace=True), (torch.randn(3, 8),)),
        (_pieces, (torch.randn(3, 4),)),
        (_same_twice, (torch.randn(3), torch.randn(3))),
        (_written_then_read, (torch.randn(3),)),
        (lambda x: (x + torch.tensor([1.0, 2.0])) + (x + torch.tensor([2.0, 1.0])), (torch.randn(2),)),
        (_itself, (torch.randn(3, 2),)),
    ],
    ids=["blocks", "in-place", "pieces", "same-twice", "written-then-read", "constants", "itself"],
)
def test_as_all_calls_decomposed(model: Any, args: tuple[Tensor, ...]) -> None:
    program = _capture(model, *args)
    alike = decompose_alike(program, module._by_torch)
    assert alike is not None
    assert _text(alike) == _text(module._by_torch(program))
    torch.testing.assert_close(alike.module()(*args), model(*args))


@pytest.mark.parametrize("name", ["bert-eager", "gpt2-sdpa", "mobilenet_v2_hf"])
def test_models(name: str) -> None:
    model, args, kwargs = zoo.build(name)
    program = _capture(model, *args, kwargs=kwargs)
    alike = decompose_alike(program, module._by_torch)
    assert alike is not None
    assert _text(alike) == _text(module._by_torch(program))


def test_writing_to_what_is_a_view() -> None:
    """Nobody reads what it is a view of: the view alone is written to, and not all that it is a view of."""
    x = torch.randn(3, 4)
    program = _capture(_writes_to_the_last_view, x)
    alike = decompose_alike(program, module._by_torch)
    assert alike is not None
    torch.testing.assert_close(alike.module()(x), _writes_to_the_last_view(x))
    assert len(alike.graph.nodes) < len(module._by_torch(program).graph.nodes)


def _writes_to_its_argument(x: Tensor) -> Tensor:
    x.add_(1)
    return x.relu() + x.relu()


def _writes_to_a_view(x: Tensor) -> Tensor:
    y = x.exp()
    y[0].add_(1)
    return y.relu() + y.relu() + y.relu()


def _writes_to_what_dropout_gives_back(x: Tensor) -> Tensor:
    a, b = x + 1, x + 2
    nn.functional.dropout(a, training=False).relu_()
    c = nn.functional.dropout(b, training=False).view(-1)
    b.mul_(3)
    return a + b.relu_().view(3, 4) + c.view(3, 4)


def test_dropout_gives_back_what_it_is_given() -> None:
    """torch.export's own decompositions take it for another tensor."""
    x = torch.randn(3, 4)
    program = _capture(_writes_to_what_dropout_gives_back, x)
    (result,) = module.decompose(program).module()(x)
    torch.testing.assert_close(result, _writes_to_what_dropout_gives_back(x))
    assert "aten.dropout.default" in [str(node.target) for node in program.graph.nodes]


def _writes_to_a_copy(x: Tensor) -> tuple[Tensor, ...]:
    y, kept = torch.native_dropout(x, 0.5, False)
    y.add_(1)
    z = x + 1
    w, _ = torch.native_dropout(z, 0.5, False)
    z.mul_(2)
    return x * 2, y, w, z, kept


def test_native_dropout_gives_back_a_copy() -> None:
    x = torch.randn(3, 4)
    results = module.decompose(_capture(_writes_to_a_copy, x)).module()(x)
    torch.testing.assert_close(tuple(results), _writes_to_a_copy(x))


def _keeps_its_type(x: Tensor) -> Tensor:
    y = x.half()
    y.add_(x).add_(x)  # in half precision; the sum would have the wider type
    return y.relu().relu() + y.relu()


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (_writes_to_its_argument, "add_"),
        (_writes_to_a_view, "add_"),
        (_keeps_its_type, "add_"),
        (_writes_to_what_dropout_gives_back, "dropout"),
        (lambda x: x.exp().t_().t_().t_() + x.exp().t(), "t_"),
        (lambda x: torch.as_strided(x.relu(), (2,), (1,)).relu().relu().relu(), "strides"),
        (lambda x: torch.cond(x.sum() > 0, lambda v: v.relu(), lambda v: -v, (x,)).relu().relu().relu(), "own kind"),
    ],
    ids=["argument", "view", "type", "dropout", "seen-otherwise", "strides", "branches"],
)
def test_calls_that_see_more_than_their_arguments(function: Any, why: str, caplog: pytest.LogCaptureFixture) -> None:
    x = torch.randn(3, 4)
    program = _capture(function, x)
    with caplog.at_level(logging.INFO):
        assert decompose_alike(program, module._by_torch) is None
    assert why in caplog.text


def test_open_sizes(caplog: pytest.LogCaptureFixture) -> None:
    program = _capture(
        lambda x: x.relu().relu().relu(), torch.randn(3, 4), dynamic_shapes=({0: torch.export.Dim("n")},)
    )
    with caplog.at_level(logging.INFO):
        assert decompose_alike(program, module._by_torch) is None
    assert "open sizes" in caplog.text


def test_calls_that_all_differ_are_decomposed_as_they_are() -> None:
    program = _capture(lambda x: x.exp().sum(), torch.randn(3))
    assert decompose_alike(program, module._by_torch) is None
