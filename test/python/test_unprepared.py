"""Honest programs verify, and a lie beside each is rejected: data at another's location, constants, fills, copies."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from typing import Any

import pytest
import torch
from limits import part
from lineages import edited, performing
from oracle import assert_same
from torch import Tensor, nn
from torch.nn import functional as F
from torch_mlir import ir

import covan_mlir
from covan_mlir import dialects
from covan_mlir.checking.verify import verify
from covan_mlir.dialects.prov_graph import functions
from covan_mlir.frontend.capture import capture
from covan_mlir.frontend.constants import literals
from covan_mlir.frontend.decompose import decompose
from covan_mlir.frontend.importer import import_program
from covan_mlir.provenance.data_nodes import data_nodes, readers, renamed
from covan_mlir.provenance.program_graph import (
    Argument,
    Constant,
    Definition,
    Global,
    NodeResult,
    ProgramGraph,
    ProgramNode,
    Unknown,
)


class Graph(nn.Module):
    """Messages along edges, summed or averaged where they arrive."""

    def __init__(self, *, mean: bool) -> None:
        super().__init__()
        self.a, self.b, self.mean = nn.Linear(16, 32), nn.Linear(32, 8), mean

    def forward(self, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
        hidden = torch.relu(self.a(x))
        total = torch.zeros(30, 32).index_add(0, target, hidden[source])
        if self.mean:
            count = torch.zeros(30).index_add(0, target, torch.ones(60))
            total = total / count.clamp(min=1)[:, None]
        result: Tensor = self.b(total)
        return result


class Router(nn.Module):
    """Two experts for each token: the ranges of two one-hot encodings and of ``topk`` are one constant."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        value, index = torch.softmax(self.gate(x), -1).topk(2)
        first, second = F.one_hot(index[:, 0], 4), F.one_hot(index[:, 1], 4)
        return first * value[:, :1] + second * value[:, 1:], (first + second).float().mean(0)


class Nest(nn.Module):
    """A token taken off a sequence and put in front of it again."""

    def forward(self, x: Tensor) -> Tensor:
        whole = torch.cat([x[:, :1], x[:, 1:].exp()], 1)
        return torch.cat([whole[:, :1].sin(), whole[:, 1:]], 1) * 2


class Experts(nn.Module):
    """Rows that are sorted by expert; the last one has none."""

    def __init__(self) -> None:
        super().__init__()
        importlib.import_module("transformers.integrations.moe")  # registers its operators
        self.weight = nn.Parameter(torch.randn(4, 8, 6))

    def forward(self, x: Tensor, ends: Tensor) -> Tensor:
        product: Tensor = torch.ops.transformers.grouped_mm_fallback(x.sin(), self.weight, ends)
        return product.relu()


class Grown(nn.Module):
    """Each layer is given what all before it gave."""

    def __init__(self) -> None:
        super().__init__()
        widths = range(4, 12, 2)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, 2, 1)) for width in widths
        )

    def forward(self, x: Tensor) -> Tensor:
        pieces = [x]
        for layer in self.layers.eval():
            pieces.append(layer(torch.cat(pieces, 1)))
        return torch.cat(pieces, 1)


class Again(nn.Module):
    """A convolution that is applied twice: its bias is spread over a plane once."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(16, 16, 3, padding=1, groups=16)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x) + x
        return (self.layer(x) + x).softmax(1)


def _written(x: Tensor, y: Tensor) -> Tensor:
    whole = y.clone()
    whole[:, :, 2:6, 2:6].copy_(x.relu()[:, :, :4, :4])
    return whole.sin()


def _masked(scores: Tensor) -> Tensor:
    """What is done of the mask again, after it was written to, belongs to no assertion about it."""
    groups = scores.view(3, 1, 8).topk(2, dim=-1)[0].sum(-1)
    mask = torch.zeros_like(groups)
    mask.scatter_(1, groups.topk(1, dim=-1, sorted=False)[1], 1)
    mask = mask.unsqueeze(-1).expand(-1, 1, 8).reshape(-1, 8)
    return scores.masked_fill(~mask.bool(), 0.0).exp()


def _shifted(x: Tensor) -> Tensor:
    shifted = x.clone()
    shifted[1:, 1:] += x[:-1, :-1]
    return shifted


def _signed(x: Tensor) -> tuple[Tensor, Tensor]:
    return x.to(torch.int8), x.to(torch.int8).to(torch.uint8) + 1


def _recurrence(x: Tensor) -> Tensor:
    """Each row is written in place; a copy gives back what it is given, whatever it is written over."""
    out, state = torch.zeros_like(x), x[:, 0].sin()
    for row in range(x.shape[1]):
        state = torch.tanh(state + x[:, row])
        out[:, row] = state
    return out


def _places(x: Tensor, up: Tensor, down: Tensor, scores: Tensor) -> Tensor:
    hidden = torch.relu(torch.relu(x @ up) @ down)
    ranks = torch.argsort(torch.topk(torch.softmax(hidden @ scores, -1), 2, -1)[1].reshape(-1), stable=True)
    places = torch.empty_like(ranks)
    places[ranks] = torch.arange(ranks.shape[0])
    return places


@dataclass(frozen=True)
class Program:
    model: Callable[[], Callable[..., Any]]
    args: Callable[[], tuple[Tensor, ...]]


def _padded(x: Tensor, mode: str) -> Tensor:
    return F.pad(x, (1, 2, 2, 1), mode=mode).relu()


def _image() -> tuple[Tensor, ...]:
    return (torch.randn(1, 3, 8, 8),)


def _graph() -> tuple[Tensor, ...]:
    return torch.randn(30, 16), torch.randint(0, 30, (60,)), torch.randint(0, 30, (60,))


def _sorted_rows(rows: int) -> tuple[Tensor, ...]:
    return torch.randn(rows, 8), torch.tensor([0, 1, rows - 1, rows - 1], dtype=torch.int32)


def _rows() -> tuple[Tensor, ...]:
    return (torch.randn(3, 4),)


# Of four rows a window of three that moves by two reads three, and of six columns it reads five.
_WINDOWS: tuple[tuple[str, Callable[..., nn.Module], dict[str, int]], ...] = (
    ("convolution", nn.Conv2d, {"in_channels": 8, "out_channels": 4, "kernel_size": 3, "stride": 2}),
    (
        "convolution of channels",
        nn.Conv2d,
        {"in_channels": 8, "out_channels": 8, "kernel_size": 3, "stride": 2, "groups": 8},
    ),
    ("maximum", nn.MaxPool2d, {"kernel_size": 3, "stride": 2}),
    ("mean", nn.AvgPool2d, {"kernel_size": 3, "stride": 2}),
)

PROGRAMS = {
    **{
        f"pad {mode}": Program(partial(partial, _padded, mode=mode), _image)
        for mode in ("reflect", "replicate", "circular")
    },
    **{
        f"convolution, padded {mode}": Program(
            partial(nn.Conv2d, 3, 4, 3, padding=1, padding_mode=mode),
            _image,
        )
        for mode in ("zeros", "reflect", "circular")
    },
    "interpolate bicubic": Program(lambda: lambda x: F.interpolate(x, size=(12, 12), mode="bicubic"), _image),
    "interpolate bilinear": Program(lambda: lambda x: F.interpolate(x, size=(12, 12), mode="bilinear"), _image),
    "interpolate one row": Program(
        lambda: lambda x: F.interpolate(x.sin(), size=(4, 4), mode="bilinear").cos(), lambda: (torch.randn(1, 3, 1, 2),)
    ),
    "ranks of two": Program(
        lambda: lambda x, y: (x.sort()[1], y.sort()[1]), lambda: (torch.randn(16), torch.randn(16))
    ),
    "mask of chosen groups": Program(lambda: _masked, lambda: (torch.randn(3, 8),)),
    "messages summed": Program(lambda: Graph(mean=False), _graph),
    "messages averaged": Program(lambda: Graph(mean=True), _graph),
    "norm, silu, padded convolution": Program(
        lambda: nn.Sequential(nn.GroupNorm(2, 8), nn.SiLU(), nn.Conv2d(8, 8, 3, padding=1)),
        lambda: (torch.randn(1, 8, 6, 6),),
    ),
    "batch norm, relu, padded convolution": Program(
        lambda: nn.Sequential(nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 3, padding=1)).eval(),
        lambda: (torch.randn(1, 4, 6, 6),),
    ),
    "router": Program(Router, lambda: (torch.randn(6, 8),)),
    "sums of constants": Program(lambda: lambda x: (x + torch.ones(4).sum(), torch.ones(3, 4).sum(-1)), _rows),
    "sums of what is like an argument": Program(
        lambda: lambda x: (torch.ones_like(x).sum(-1), torch.zeros_like(x).sum(), (x.long() * 0).sum()), _rows
    ),
    "slices of a concatenation": Program(Nest, lambda: (torch.randn(1, 3, 16),)),
    **{
        f"{kind}, in one place": Program(partial(layer, **options), lambda: (torch.randn(2, 8, 4, 6),))
        for kind, layer, options in _WINDOWS
    },
    **{f"experts, {rows} rows": Program(Experts, partial(_sorted_rows, rows)) for rows in (3, 16)},
    "detached": Program(
        lambda: lambda x: (x.sin().sigmoid() @ x.mT, x.sin().detach().sigmoid()[:, None, :, :2]), _image
    ),
    "a layer applied twice": Program(Again, lambda: (torch.randn(1, 16, 16, 16),)),
    "rows written one by one": Program(lambda: _recurrence, lambda: (torch.randn(2, 3, 4),)),
    "added to a slice of slices": Program(lambda: _shifted, lambda: (torch.randn(4, 4),)),
    "copies, one of them returned": Program(lambda: lambda x: (x.clone(), x.clone() + 1), _rows),
    "signs, and one by what has them": Program(lambda: lambda x: (torch.signbit(x), 1 / x), _rows),
    "bytes with a sign": Program(lambda: _signed, lambda: (torch.tensor([250, 3, 128], dtype=torch.uint8),)),
    "padded behind work": Program(lambda: lambda x: F.pad(x * 2, (8, 0)), _rows),
    "transposed and padded, twice": Program(
        lambda: lambda x, y: (F.pad(x.mT, (0, 0, 0, 2)) * 2, F.pad(y.mT, (0, 0, 0, 2)) * 3),
        lambda: (torch.randn(1, 4, 6), torch.randn(1, 4, 6)),
    ),
    "work, padding, depthwise convolution": Program(
        lambda: nn.Sequential(nn.SiLU(), nn.ConstantPad1d((8, 0), 0.0), nn.Conv1d(8, 8, 9, groups=8)),
        lambda: (torch.randn(1, 8, 13),),
    ),
    "depthwise convolution, norm of its channels": Program(
        lambda: lambda x, w: F.layer_norm(F.conv1d(x, w, groups=8).mT, (8,)),
        lambda: (torch.randn(1, 8, 13), torch.randn(8, 1, 9)),
    ),
    "places of ranks, far behind the arguments": Program(
        lambda: _places,
        lambda: (
            torch.randn(16, 1024),
            *(torch.randn(rows, width) / rows**0.5 for rows, width in ((1024, 4096), (4096, 1024), (1024, 4))),
        ),
    ),
    "what grows by one piece after the other": Program(Grown, lambda: (torch.randn(1, 4, 6, 6),)),
    "those that a mask of two axes takes": Program(
        lambda: lambda x: (x[x > 0].sum(), x.reshape(-1)[x.reshape(-1) < 0], x[:, x[0] > 0].relu()),
        lambda: (torch.randn(7, 13),),
    ),
    "products padded alike": Program(
        lambda: (
            lambda x, y: (
                F.pad((x @ x.mT)[None], (1, 0))[..., 1:].exp(),
                F.pad((y @ y.mT)[None], (1, 0))[..., 1:].sin(),
            )
        ),
        lambda: (torch.randn(2, 6, 4), torch.randn(2, 6, 4)),
    ),
    "sums of bags that begin anywhere": Program(
        lambda: lambda weight, indices, begins: F.embedding_bag(indices, weight, begins, mode="sum"),
        lambda: (torch.randn(10, 4), torch.randint(0, 10, (8,)), torch.tensor([0, 3, 5])),
    ),
    "written into a diagonal": Program(
        lambda: lambda x, y: torch.diagonal_scatter(x, y) * 2, lambda: (torch.randn(4, 4), torch.randn(4))
    ),
    "copy into a slice": Program(lambda: _written, lambda: (*_image(), torch.randn(1, 3, 9, 9))),
}


@cache
def compiled(name: str) -> tuple[Any, Callable[..., Any], tuple[Tensor, ...]]:
    torch.manual_seed(0)
    program = PROGRAMS[name]
    model, args = program.model(), program.args()
    return covan_mlir.compile_module(model, args), model, args


@pytest.mark.parametrize("name", PROGRAMS)
def test_honest_programs_hold(name: str) -> None:
    exe, model, args = compiled(name)
    torch.testing.assert_close(exe(*args), model(*args), rtol=1e-4, atol=1e-4)
    verdict = exe.verify()
    assert verdict, str(verdict)


@pytest.mark.parametrize("name", part(PROGRAMS, kept=list(PROGRAMS)[::4]))
def test_traces_that_are_dropped_or_exchanged_are_rejected(name: str) -> None:
    lineage = compiled(name)[0].lineage
    placed = [site for site in lineage.sites if site.node is not None and site.parts]
    for site in placed:
        assert verify(edited(lineage, performing(lineage, site, ()))).outcome == "no", site
    for first, second in pairwise(placed):
        if first.parts != second.parts:
            swapped = performing(lineage, first, second.parts), performing(lineage, second, first.parts)
            assert verify(edited(lineage, *swapped)).outcome == "no", (first, second)


def test_pieces_have_sizes_that_the_program_computes() -> None:
    def pieces(x: Tensor, group: Tensor) -> Tensor:
        counts: list[int] = F.one_hot(group, 3).sum(0).tolist()
        return torch.cat([piece * k for k, piece in enumerate(torch.split(x[group.argsort(stable=True)], counts))])

    x = torch.randn(7, 5)
    exe = covan_mlir.compile_module(pieces, (x, torch.tensor([0, 1, 1, 2, 0, 1, 1])))
    for groups in ([0, 1, 1, 2, 0, 1, 1], [2] * 7, [0, 2, 2, 2, 0, 0, 0]):
        assert_same(exe(x, torch.tensor(groups)), pieces(x, torch.tensor(groups)))


def test_a_fill_belongs_to_those_who_read_it() -> None:
    """The compiler keeps one of two equal fills, that of the first product; messages are summed into it."""
    lineage = compiled("messages summed")[0].lineage
    (fill,) = (site for site in lineage.sites if site.kernel == "fill")
    assert [action.name for action in lineage.why(fill)] == ["index_add"]
    weight, product, *_ = (part.id for part in lineage.find("linear")[0].parts)
    assert verify(edited(lineage, performing(lineage, fill, (product,)))).outcome == "no"
    assert verify(edited(lineage, performing(lineage, fill, (*fill.parts, product)))).outcome == "no"
    assert verify(edited(lineage, replace(fill, folds=(weight,)))).outcome == "no"


def test_work_added_late_holds_constants_and_no_more() -> None:
    lineage = compiled("norm, silu, padded convolution")[0].lineage
    added = [site for site in lineage.sites if site.node is None]
    assert added
    assert not any(site.parts or site.views for site in added)
    varying = lineage.find("silu")[0].parts[-1].id
    assert verify(edited(lineage, performing(lineage, added[0], (varying,)))).outcome != "yes"
    assert verify(edited(lineage, replace(added[0], folds=(varying,)))).outcome == "no"


def test_interpolation_computes_nothing_at_load() -> None:
    for mode in ("bicubic", "bilinear"):
        lineage = compiled(f"interpolate {mode}")[0].lineage
        assert not [site for site in lineage.sites if site.phase == "init"]


def test_what_nobody_reads_but_constants_is_not_imported() -> None:
    """Of a normalisation by known statistics a factor and a summand are left: no root, and no assertion that what is
    divided by is not zero, which no compiler would drop."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
    captured = capture(model, _image(), None, None)
    bytecode = import_program(captured, provenance=True, external_weight_bytes=1 << 24).bytecode
    with ir.Context() as context:
        dialects.load(context)
        module = ir.Module.parse(bytecode)
        (main,) = functions(module.operation)
        names = [op.name.removeprefix("torch.aten.") for op in main.regions[0].blocks[0] if "aten" in op.name]
    assert names == ["convolution", "mul.Tensor", "add.Tensor"]


def test_circular_padding_is_a_gather_an_axis() -> None:
    assert len(compiled("pad circular")[0].lineage.sites) <= 2
    x = torch.randn(2, 3, 5)
    program = torch.export.export(_Circular(), (x,))
    assert "index_select" in str(decompose(program).graph) or "index" in str(decompose(program).graph)
    torch.testing.assert_close(covan_mlir.compile_module(_Circular(), (x,))(x), _Circular()(x))


def test_circular_padding_cuts_first() -> None:
    """What is left goes round."""
    for pads in ((-1, 1, -2, 1), (2, -1, 0, -2), (-1, -1, 1, 2)):
        model = _Cut(pads)
        (x,) = _image()
        torch.testing.assert_close(covan_mlir.compile_module(model, (x,))(x), model(x))


class _Cut(nn.Module):
    def __init__(self, pads: tuple[int, ...]) -> None:
        super().__init__()
        self.pads = pads

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x, self.pads, mode="circular")


class _Circular(nn.Module):
    """More than one axis, and one side only."""

    def forward(self, x: Tensor) -> Tensor:
        return F.pad(x[:, :, None].expand(-1, -1, 4, -1), (0, 3, 2, 0), mode="circular")


def test_vectors_of_constants_are_literals_and_masks_are_not() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            weights = torch.arange(8).to(torch.float32).div(8).sin().exp()
            halves = torch.arange(8).to(torch.float32).div(2)  # a kernel computes it where it needs it
            mask = torch.arange(8)[:, None] >= torch.arange(8)
            return (x * weights + halves).masked_fill(mask, 0.0) + torch.rand(8) * torch.full((8,), 2.0)

    graph = decompose(torch.export.export(Model(), (torch.randn(8, 8),))).graph
    values = literals(graph, {})
    (weights,) = (value for node, value in values.items() if "exp" in node.name)
    torch.testing.assert_close(weights, torch.arange(8).to(torch.float32).div(8).sin().exp())
    assert not [node for node in values if "div" in node.name]
    assert not [node for node, value in values.items() if value.numel() > 8 or "rand" in node.name]


def test_batch_norms_are_a_factor_and_a_summand_computed_exactly() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8)).eval()
    norm = model[1]
    assert isinstance(norm, nn.BatchNorm2d)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    norm.running_mean.normal_(3.0)
    norm.running_var.uniform_(0.5, 2.0)
    x = torch.randn(1, 3, 9, 9)
    program = decompose(torch.export.export(model, (x,)))
    given = {node: tensor for node in program.graph.nodes if (tensor := _weight(program, node)) is not None}
    factor, summand = literals(program.graph, given).values()
    expected = norm.weight.double() / (norm.running_var.double() + norm.eps).sqrt()
    torch.testing.assert_close(factor.flatten(), expected.float(), rtol=0, atol=0)
    rest = norm.bias.double() - norm.running_mean.double() * expected
    torch.testing.assert_close(summand.flatten(), rest.float(), rtol=0, atol=0)
    exe = covan_mlir.compile_module(model, (x,))
    assert_same(exe(x), model(x))
    fates = {part.name: exe.lineage.part_fates[part.id].kind for part in exe.lineage.find("batch_norm")[0].parts}
    assert {name for name, fate in fates.items() if fate == "folded"} >= {"sqrt", "reciprocal", "neg"}
    assert exe.verify()


def _weight(program: torch.export.ExportedProgram, node: torch.fx.Node) -> torch.Tensor | None:
    signature = program.graph_signature
    name = signature.inputs_to_parameters.get(node.name) or signature.inputs_to_buffers.get(node.name)
    return None if name is None else program.state_dict[name].detach()


def _node(inputs: tuple[Any, ...], ids: tuple[int, ...], data: tuple[int, ...] = ()) -> ProgramNode:
    return ProgramNode("dispatch", "call", inputs, ((Definition("compute", ids),),), (*ids, *data), data=data)


def test_data_is_what_no_argument_lies_behind() -> None:
    graph = ProgramGraph(
        nodes=(
            _node((), (1,)),
            _node((NodeResult(0), Constant()), (2,)),
            _node((Argument(0), NodeResult(1)), (3,), data=(1, 4)),
            _node((Unknown(),), (5,)),
            _node((Global("held"),), (6,)),
            _node((Global("given"),), (7,)),
        ),
        results=(NodeResult(2),),
        globals={"held": NodeResult(0), "given": Argument(0)},
    )
    data = data_nodes(graph)
    assert data == {0, 1, 4}
    assert readers(graph, data)[0] == {1, 2, 4}
    # Part 1 reads no argument, part 2 does: the second node gives some constant at its location.
    independent = {1: True, 2: False, 3: False, 4: False, 5: False, 6: True, 7: False}
    nodes = renamed(graph, independent).nodes
    assert [node.all_states for node in nodes] == [{1}, set(), {3}, {5}, {6}, {7}]
    assert nodes[2].evidence == (3, 1)
