"""Honest programs verify, and a lie beside each is rejected: data at another's location, constants, fills, copies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
import torch
from limits import part, some
from lineages import edited, performing
from oracle import assert_same
from torch import Tensor, nn
from torch.nn import functional as F
from torch_mlir import ir
from unprepared_functions import image
from unprepared_programs import PROGRAMS

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


@cache
def compiled(name: str) -> tuple[Any, Callable[..., Any], tuple[Tensor, ...]]:
    torch.manual_seed(0)
    program = PROGRAMS[name]
    model, args = program.model(), program.args()
    return covan_mlir.compile_module(model, args), model, args


MANY = list(PROGRAMS)[::6]


@pytest.mark.parametrize("name", part(PROGRAMS, kept=MANY))
def test_honest_programs_hold(name: str) -> None:
    exe, model, args = compiled(name)
    halves = any(isinstance(arg, Tensor) and arg.dtype in (torch.bfloat16, torch.float16) for arg in args)
    if halves:  # eager rounds what is one kernel here
        assert_same(exe(*args), model(*args), depth=4)
    else:
        torch.testing.assert_close(exe(*args), model(*args), rtol=1e-4, atol=1e-4)
    verdict = exe.verify()
    assert verdict, str(verdict)


SHARING = (
    "two convolutions of one image",
    "one convolution of two images",
    "a broadcast that a reduction and others read",
)


@pytest.mark.parametrize("name", SHARING)
def test_what_reductions_share_costs_no_kernels(name: str) -> None:
    """Where the check behind a pass of ours fails, this is an error, and not the same program without kernels."""
    program = PROGRAMS[name]
    options = covan_mlir.CompileOptions(fuse_reductions="always")
    exe = covan_mlir.compile_module(program.model(), program.args(), options=options)
    assert any(site.kernel.startswith("fred_") for site in exe.lineage.sites)


QUICK = [name for name in list(PROGRAMS)[::18] if not PROGRAMS[name].slow]
# Each lie is a whole verification: of programs with many sites a seeded part is told.
LIES = 2


@pytest.mark.parametrize("name", part(PROGRAMS, kept=QUICK))
def test_traces_that_are_dropped_or_exchanged_are_rejected(name: str) -> None:
    lineage = compiled(name)[0].lineage
    placed = [site for site in lineage.sites if site.node is not None and site.parts]
    different = [(first, second) for first, second in pairwise(placed) if first.parts != second.parts]
    for site in some(placed, LIES):
        assert verify(edited(lineage, performing(lineage, site, ()))).outcome == "no", site
    for first, second in some(different, LIES):
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
    assert exe.verify(), str(exe.verify())


def test_a_fill_belongs_to_those_who_read_it() -> None:
    """The compiler keeps one of two equal fills, that of the first product; messages are summed into it."""
    lineage = compiled("messages summed")[0].lineage
    (fill,) = (site for site in lineage.sites if site.kernel == "fill")
    assert [action.name for action in lineage.why(fill)] == ["index_add"]
    weight, product, *_ = (part.id for part in lineage.find("linear")[0].parts)
    assert verify(edited(lineage, performing(lineage, fill, (product,)))).outcome == "no"
    assert verify(edited(lineage, performing(lineage, fill, (*fill.parts, product)))).outcome == "no"
    assert verify(edited(lineage, replace(fill, folds=(weight,)))).outcome == "no"


def test_a_layout_for_a_product_is_none_of_its_work() -> None:
    """The compiler's own code gives a depthwise convolution as the rows that the product behind it reads, in the name
    of that one, which the site neither computes nor indexes by."""
    model = nn.Sequential(
        nn.Conv2d(64, 128, 1), nn.ReLU6(), nn.Conv2d(128, 128, 3, padding=1, groups=128), nn.Conv2d(128, 128, 1)
    )
    x = torch.randn(1, 64, 8, 8)
    exe = covan_mlir.compile_module(model, (x,), options=covan_mlir.CompileOptions(fuse_reductions=False))
    assert_same(exe(x), model(x))
    verdict = exe.verify()
    assert verdict, str(verdict)
    depthwise, product = (exe.lineage.find(name)[0].parts[-1].id for name in ("conv2d_1", "conv2d_2"))
    (site,) = (site for site in exe.lineage.sites if depthwise in site.parts and "conv" in site.kernel)
    assert product not in (*site.parts, *site.views)
    lie = edited(exe.lineage, replace(site, views=(*site.views, product)))
    assert verify(lie).outcome == "no"


def test_what_is_moved_for_each_reader_is_carried_by_them_and_no_more() -> None:
    lineage = compiled("patches and their positions")[0].lineage
    part = lineage.find("add")[0].parts[0].id
    carriers = next(changes[part] for step, changes in lineage.history if step == "fred-raise")
    assert carriers["fred.chain"] == 3
    for number in (4, 5):
        told = {**carriers, "fred.chain": number}
        history = [(step, {**c, part: told} if step == "fred-raise" else c) for step, c in lineage.history]
        assert verify(edited(lineage, history=tuple(history))).outcome == "no"


def test_work_added_late_holds_constants_and_no_more() -> None:
    """The compiler's own code of a padded convolution copies weights once more, in nobody's name."""
    program = PROGRAMS["norm, silu, padded convolution"]
    plain = covan_mlir.CompileOptions(fuse_reductions=False)
    lineage = covan_mlir.compile_module(program.model(), program.args(), options=plain).lineage
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


@pytest.mark.parametrize("how", ["to the size of another", "by a half"])
def test_resizing_of_what_is_as_large_as_it_comes(how: str) -> None:
    """Where places lie is counted in whole numbers, so that what is read of the code is what was asked for."""

    class Resized(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if how == "by a half":
                return F.interpolate(x, scale_factor=0.5, mode="bilinear")
            return F.interpolate(F.avg_pool2d(x, 2), size=x.shape[2:], mode="bilinear", align_corners=True)

    high, wide = (2 * torch.export.Dim(name, min=2, max=32) for name in ("h", "w"))
    exe = covan_mlir.compile_module(Resized(), (torch.randn(2, 3, 6, 8),), dynamic_shapes=({2: high, 3: wide},))
    x = torch.randn(2, 3, 10, 14)
    torch.testing.assert_close(exe(x), Resized()(x), rtol=1e-5, atol=1e-5)
    verdict = exe.verify()
    assert verdict, str(verdict)


def test_an_activation_behind_a_transposition_is_the_window_s() -> None:
    """One kernel performs the convolution and what is behind the transposition, and no site transposes."""
    for name in ("gelu", "silu"):
        lineage = compiled(f"{name} behind a transposition")[0].lineage
        first, second = (site for site in lineage.sites if site.phase == "call")
        performed = {lineage.actions[action].name for action in first.trace}
        assert performed == {"conv2d", name}
        assert {lineage.actions[action].name for action in second.trace} == {"linear"}


def test_what_nobody_reads_but_constants_is_not_imported() -> None:
    """Of a normalisation by known statistics a factor and a summand are left: no root, and no assertion that what is
    divided by is not zero, which no compiler would drop."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
    captured = capture(model, image(), None, None)
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
        (x,) = image()
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
