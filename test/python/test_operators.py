"""`verify()` reads what dispatches compute: honest programs hold, lies that leave the graph as it is are refused."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from limits import part
from msgspec import structs
from torch import Tensor, nn
from torch._higher_order_ops import scan, while_loop
from torch.nn import functional as F

import covan_mlir
from covan_mlir import Lineage
from covan_mlir.checking.affine import affine_map
from covan_mlir.checking.evaluate import evaluate
from covan_mlir.checking.layouts import layouts
from covan_mlir.checking.samples import agree, sampled
from covan_mlir.checking.sizes import Sizes
from covan_mlir.checking.source_values import function_of
from covan_mlir.checking.tensors import Direct, Held, UnevaluatedError, deep, inserted, sliced
from covan_mlir.checking.verify import verify
from covan_mlir.provenance.bodies import Block, Body, Operation
from covan_mlir.provenance.model import Action, Part
from covan_mlir.provenance.phases import Phase
from covan_mlir.provenance.program_graph import Definition, ProgramGraph, ProgramNode


def _pooled(x: Tensor) -> Tensor:
    return F.max_pool2d(F.conv2d(x, torch.full((4, 3, 3, 3), 0.1), stride=2, padding=1), 3, 2, 1).mean((2, 3))


def _put(x: Tensor, i: Tensor, values: Tensor) -> Tensor:
    return x.index_put_((i,), values) * 2.0


def _scattered(x: Tensor, i: Tensor, values: Tensor) -> Tensor:
    x.scatter_(1, i, values)
    return x.exp()


def _indices() -> Tensor:
    return torch.randint(0, 9, (6, 9), generator=torch.Generator().manual_seed(0))


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Tensor, ...]]] = {
    "two sums": (lambda x: torch.relu(x).sum(-1) - torch.exp(x).sum(-1), (torch.randn(6, 9),)),
    "slices": (
        lambda x: torch.cat([x[:, 1:4] * 2.0, x.flip(1)[:, :3].exp()], 1).permute(1, 0).contiguous() + 0.5,
        (torch.randn(6, 9),),
    ),
    "gather": (lambda x, i: torch.where(x > 0, x.clamp(max=0.5), x.gather(1, i)), (torch.randn(6, 9), _indices())),
    "windows": (_pooled, (torch.randn(1, 3, 12, 12),)),
    "norm": (lambda x: F.layer_norm(x, (16,)), (torch.randn(5, 16),)),
    "attention": (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), (torch.randn(1, 2, 5, 8),)),
    "sum and mean": (lambda x: (x.sum(-1), x.mean(-1)), (torch.randn(4, 8),)),
    "extremes": (lambda x: (x.amax(1), x.argmax(1), x.cumsum(0)), (torch.randn(4, 6),)),
    "linear": (nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)), (torch.randn(2, 8),)),
    "branch": (
        lambda x: torch.cond(x.sum() > 0, lambda x: x.tanh() * 2, lambda x: x.sigmoid() - 1, (x,)),
        (torch.randn(4, 5),),
    ),
    "loop": (
        lambda x: while_loop(lambda x: x.sum() < 100, lambda x: (x.abs() * 1.5 + 1,), (x,)),
        (torch.randn(4, 5),),
    ),
    "loop over elements": (
        lambda first, xs: scan(lambda carry, x: (carry * 0.5 + x, (carry + x).tanh()), first, xs),
        (torch.randn(5), torch.randn(4, 5)),
    ),
    "counts that are often zero": (  # as routers of experts count
        lambda x: torch.histc(x.float(), 4, 0, 3).cumsum(0, dtype=torch.int32),
        (torch.randint(0, 4, (12,), generator=torch.Generator().manual_seed(0)),),
    ),
    "positions that an identity shares": (
        lambda x: torch.linalg.inv(x @ x.mT + torch.eye(4)),
        (torch.randn(4, 4, generator=torch.Generator().manual_seed(0)),),
    ),
    "rows put into an argument": (_put, (torch.randn(6, 4), torch.tensor([1, 3]), torch.randn(2, 4))),
    "elements scattered into an argument": (
        _scattered,
        (torch.randn(3, 4), torch.tensor([[0, 2], [1, 3], [3, 0]]), torch.randn(3, 2)),
    ),
    "a slice of an argument replaced": (
        lambda x, y: torch.slice_scatter(x, y, 0, 1, 3),
        (torch.randn(4, 4), torch.randn(2, 4)),
    ),
    "bags": (lambda w, i: F.embedding_bag(i, w, mode="sum"), (torch.randn(10, 4), torch.arange(16).reshape(2, 8) % 10)),
    "equal identities": (
        lambda x: (torch.eye(3, 4, dtype=torch.int64) + x, torch.eye(3, dtype=torch.bool), torch.eye(3)),
        (torch.arange(12).reshape(3, 4),),
    ),
    "sorted": (lambda x: x.sort(-1, descending=True)[0], (torch.randn(4, 6),)),
    "transposed": (lambda x, y: (x.transpose(1, 2) @ y).tanh(), (torch.randn(2, 4, 4), torch.randn(2, 4, 4))),
}


@cache
def compiled(name: str, fuse: bool = False) -> Lineage:
    model, args = PROGRAMS[name]
    options = covan_mlir.CompileOptions(fuse_reductions="always" if fuse else False)
    return covan_mlir.compile_module(model, args, options=options).lineage


HONEST = [*((name, False) for name in PROGRAMS if name != "attention"), *((name, True) for name in PROGRAMS)]


@pytest.mark.parametrize(
    ("name", "fuse"),
    part(HONEST, kept=HONEST[::5]),
)
def test_honest_programs_hold(name: str, fuse: bool) -> None:
    verdict = verify(compiled(name, fuse))
    assert verdict, str(verdict)
    assert verdict.checks[-1].phase == "operators"


FIELDS = (
    *("actions", "sites", "commands", "fates", "part_fates", "history", "groups", "results", "phases", "fusions"),
    "bodies",
)


def edited(lineage: Lineage, **changes: Any) -> Lineage:
    return Lineage(**({name: getattr(lineage, name) for name in FIELDS} | changes))


def with_part(lineage: Lineage, name: str, change: Callable[[Part], Part]) -> Lineage:
    """The lineage of a source in which one part is another; nothing of the program is changed."""

    def of(action: Action) -> Action:
        return replace(action, parts=tuple(change(part) if part.name == name else part for part in action.parts))

    assert any(part.name == name for part in lineage.parts.values()), sorted(p.name for p in lineage.parts.values())
    return edited(lineage, actions=[of(action) for action in lineage.actions])


def called(change: Callable[[list[Any]], list[Any]]) -> Callable[[Part], Part]:
    """Other positional arguments."""

    def of(part: Part) -> Part:
        positional, named = json.loads(part.args)
        return replace(part, args=json.dumps([change(positional), named], separators=(",", ":")))

    return of


def operator(op: str) -> Callable[[Part], Part]:
    return lambda part: replace(part, op=op)


@dataclass(frozen=True)
class Lie:
    program: str
    part: str
    change: Callable[[Part], Part]
    action: str


LIES = {
    "a difference the other way round": Lie("two sums", "sub", called(lambda a: a[::-1]), "sub"),
    "another function": Lie("two sums", "relu", operator("aten.abs.default"), "sub"),
    "another constant": Lie("slices", "mul", called(lambda a: [a[0], 3.0]), "mul"),
    "a slice of another offset": Lie("slices", "slice_1", called(lambda a: [a[0], 1, 2, 5]), "mul"),
    "another axis flipped": Lie("slices", "flip", called(lambda a: [a[0], [0]]), "exp"),
    "pieces in another order": Lie("slices", "cat", called(lambda a: [a[0][::-1], a[1]]), "cat"),
    "counts that are not summed up": Lie("counts that are often zero", "cumsum", operator("aten._to_copy.default"), ""),
    "axes of one size not exchanged": Lie("slices", "permute", called(lambda a: [a[0], [0, 1]]), "add"),
    "the other branch": Lie("gather", "where", called(lambda a: [a[0], a[2], a[1]]), "where"),
    "another bound": Lie("gather", "gt_1", called(lambda a: [a[0], 0.75]), "where"),
    "another comparison": Lie("gather", "gt", operator("aten.lt.Scalar"), "where"),
    "least for greatest": Lie("extremes", "amax", operator("aten.amin.default"), "amax"),
    "the least's position": Lie("extremes", "argmax", operator("aten.argmin.default"), "argmax"),
    "sums along another axis": Lie("extremes", "cumsum", called(lambda a: [a[0], 1]), "cumsum"),
    "another function in a branch": Lie("branch", "true_graph_0.tanh", operator("aten.tan.default"), "tanh"),
    "another condition": Lie("branch", "gt", operator("aten.lt.Scalar"), "gt"),
    "another step of a loop": Lie("loop", "while_loop_body_graph_0.mul", called(lambda a: [a[0], 1.25]), "mul"),
    "another end of a loop": Lie("loop", "while_loop_body_graph_0.lt_scalar", operator("aten.gt.Scalar"), ""),
    "another function of an element": Lie(
        "loop over elements", "scan_combine_graph_0.tanh", operator("aten.cos.default"), "tanh"
    ),
    "a factor transposed": Lie(
        "transposed", "permute", lambda part: replace(called(lambda a: [a[0], [0, 1, 2]])(part)), "matmul"
    ),
    "windows of other steps": Lie(
        "windows", "max_pool2d_with_indices", called(lambda a: [a[0], [3, 3], [2, 2], [1, 1], [1, 1], True]), ""
    ),
    "another padding": Lie("windows", "convolution", called(lambda a: [*a[:3], [2, 2], [1, 1], [2, 2], *a[6:]]), ""),
}


@pytest.mark.parametrize("lie", LIES)
def test_lies_about_operators_are_refused(lie: str) -> None:
    told = LIES[lie]
    verdict = verify(with_part(compiled(told.program), told.part, told.change))
    assert verdict.outcome == "no", str(verdict)


def exchanged(lineage: Lineage, ids: Mapping[int, int]) -> Lineage:
    """The program's locations name other parts, in each phase, and all that follows from them agrees."""

    def renamed(parts: Any) -> tuple[int, ...]:
        return tuple(sorted(ids.get(part, part) for part in parts))

    def node(one: ProgramNode) -> ProgramNode:
        outputs = tuple(tuple(Definition(d.how, renamed(d.ids)) for d in links) for links in one.outputs)
        return structs.replace(one, outputs=outputs, evidence=renamed(one.evidence))

    def graph(one: ProgramGraph) -> ProgramGraph:
        return structs.replace(one, nodes=tuple(map(node, one.nodes)))

    sites = []
    for site in lineage.sites:
        parts = renamed(site.parts)
        trace = tuple(sorted({lineage.parts[part].action for part in parts}))
        sites.append(replace(site, parts=parts, trace=trace, views=renamed(site.views), folds=renamed(site.folds)))
    performing = {part: tuple(site.id for site in sites if part in site.parts) for part in lineage.parts}
    part_fates = {p: replace(f, sites=performing[p] or f.sites) for p, f in lineage.part_fates.items()}
    fates = [
        replace(fate, sites=tuple(site.id for site in sites if action.id in site.trace) or fate.sites)
        for action, fate in zip(lineage.actions, lineage.fates, strict=True)
    ]
    phases = [Phase(phase.step, graph(phase.graph)) for phase in lineage.phases]
    return edited(lineage, sites=sites, phases=phases, fates=fates, part_fates=part_fates)


def test_numbers_of_other_kinds_agree_where_they_are_equal() -> None:
    """No float is taken for the boolean or the integer that it would be cast to."""
    half, one, true = np.array([1.5]), np.array([1]), np.array([True])
    assert not agree(half, one)
    assert not agree(one, half)
    assert not agree(half, true)
    assert agree(one.astype(np.int8), true)
    assert agree(np.array([1.0]), one)


def test_what_is_one_in_few_places_is_compared_there() -> None:
    """A sample of it is all zeros, and says nothing of which rows they are in."""
    one = np.zeros((16, 2, 10240), np.int64)
    np.put_along_axis(one, np.arange(32).reshape(16, 2, 1), 1, axis=2)
    other = Held(np.ascontiguousarray(one.transpose(1, 0, 2)).reshape(16, 2, 10240))
    for got, want in itertools.permutations([Held(one), other, Held(np.zeros_like(one))], 2):
        assert not agree(*sampled(got, want))
    transposed = next(order for order in layouts((16, 2, 10240), (2, 16, 10240)) if order is not None)
    values, wanted = sampled(other, Held(one), transposed)
    assert values.any()
    assert agree(values, wanted)


def test_two_locations_exchanged() -> None:
    """`relu` and `exp` have the same place in the graph: only what the kernels compute tells them apart."""
    lineage = compiled("two sums")
    ids = {part.name: part.id for part in lineage.parts.values()}
    pairs = {("relu", "exp"), ("sum_1", "sum_2")}
    swap = {ids[a]: ids[b] for one, other in pairs for a, b in ((one, other), (other, one))}
    assert verify(exchanged(lineage, {}))
    verdict = verify(exchanged(lineage, swap))
    assert verdict.outcome == "no"
    assert "operators" in {check.phase for check in verdict.checks if check.outcome == "no"}
    assert "does not compute" in str(verdict)


def test_bodies_are_kept() -> None:
    lineage = compiled("norm")
    assert Lineage.from_json(lineage.to_json()).bodies == lineage.bodies
    verdict = verify(edited(lineage, bodies=None))
    assert verdict.outcome == "incomplete"


def test_operation_that_is_not_known_is_named() -> None:
    lineage = compiled("two sums")
    bodies = structs.replace(
        lineage.bodies,
        bodies=tuple(
            structs.replace(body, operations=(Operation("vendor.secret", (0,), ("f32",)), *body.operations))
            for body in lineage.bodies.bodies
        ),
    )
    verdict = verify(edited(lineage, bodies=bodies))
    assert verdict.outcome == "incomplete"
    assert "vendor.secret" in str(verdict)
    assert "test_operators.py" in str(verdict)


@pytest.mark.parametrize("op", ["aten.from_file.default", "aten.relu_.default", "aten.add.out", "operator.eval"])
def test_operators_that_do_more_than_give_a_result_are_not_run(op: str) -> None:
    verdict = verify(with_part(compiled("two sums"), "relu", operator(op)))
    assert verdict.outcome != "yes"
    assert function_of(op) is None


def test_pieces_of_tensors() -> None:
    held = Held(np.arange(20.0).reshape(4, 5))
    piece = sliced(held, (1, 0), (2, 3), (2, 2))
    np.testing.assert_array_equal(piece.all(), held.all()[1:4:2, 0:5:2])
    target = inserted(piece, held, (0, 1), (2, 3), (1, 1))
    expected = held.all().copy()
    expected[0:2, 1:4] = piece.all()
    np.testing.assert_array_equal(target.all(), expected)
    assert np.isnan(held.at(np.array([20, -1]))).all()


def test_affine_maps() -> None:
    assert affine_map("(d0, d1)[s0] -> (d1 * 2 - s0, d0 floordiv 2, d0 mod 2, 7)")([5, 3, 1]) == [5, 2, 1, 7]
    assert affine_map("(d0, d1) -> (d1, 0)").plain == (1, None)
    with pytest.raises(UnevaluatedError):
        affine_map("(d0) -> (__import__('os'))")([1])


def test_sizes_of_symbols() -> None:
    sizes = Sizes(["f32[s0, 4]", "f32[2*s0 + 1, s1]"])
    (size, four), (odd, other) = sizes.of("f32[s0, 4]"), sizes.of("f32[2*s0 + 1, s1]")
    assert (four, odd) == (4, 2 * size + 1)
    assert other != size
    equal = Sizes(["f32[s0, s1 + s2]", "f32[s3]"], [["f32[s0, s1 + s2]", "bool[s1 + s3]"]])
    assert equal.of("f32[s2]") == equal.of("f32[s3]") != equal.of("f32[s1]")


def test_reductions_are_evaluated_where_asked() -> None:
    """The body of a product of matrices, as MLIR says it."""
    block = (
        ("f32", "f32", "f32"),
        (
            Operation("arith.mulf", (4, 5), ("f32",)),
            Operation("arith.addf", (6, 7), ("f32",)),
            Operation("linalg.yield", (8,)),
        ),
    )
    maps = ["(d0, d1, d2) -> (d0, d2)", "(d0, d1, d2) -> (d2, d1)", "(d0, d1, d2) -> (d0, d1)"]
    attributes = {
        "indexing_maps": maps,
        "iterator_types": ["parallel", "parallel", "reduction"],
        "operandSegmentSizes": [2, 1],
    }
    product = Operation("linalg.generic", (0, 1, 3), ("f32[3, 4]",), attributes, (Block(*block),))
    zero = (Operation("arith.constant", (), ("f32",), {"value": 0.0}),)
    fill = Operation("tensor.splat", (2,), ("f32[3, 4]",))
    body = Body(("f32[3, 5]", "f32[5, 4]"), (*zero, fill, product), (9,))
    left, right = np.random.default_rng(0).normal(size=(3, 5)), np.random.default_rng(1).normal(size=(5, 4))
    (result,) = evaluate(body, [Held(left), Held(right)])
    assert agree(result.all().reshape(-1), (left @ right).reshape(-1))


def test_many_operators_behind_one_another() -> None:
    """As many as an unrolled recurrent network has: elements ask for elements, and calls go only so deep."""

    def steps(x: Tensor) -> Tensor:
        for k in range(200):
            x = x * 0.99 + k
        return x

    verdict = covan_mlir.compile_module(steps, (torch.randn(4, 8),)).verify()
    assert verdict, str(verdict)


def test_values_beside_eager() -> None:
    exe = covan_mlir.compile_module(lambda x: torch.relu(x) - x.abs(), (torch.randn(4, 8),))
    verdict = exe.verify(values=(torch.randn(4, 8),))
    assert verdict, str(verdict)
    assert verdict.checks[-1].phase == "values"
    positive = exe.verify(values=(torch.rand(4, 8) + 0.5,))
    assert positive.outcome == "incomplete"
    assert "relu and abs_1 have the same values" in str(positive)


def test_long_chains_are_followed() -> None:
    """A tensor may be computed of another, and that of another, more often than Python lets functions call others."""
    limit = sys.getrecursionlimit()

    def more(tensor: Direct | Held) -> Direct:
        return Direct(tensor.shape, tensor.dtype, lambda flat: tensor.at(flat) + 1)

    last: Direct | Held = Held(np.zeros(3))
    for _ in range(limit):
        last = more(last)
    with pytest.raises(RecursionError):
        last.all()
    with deep():
        assert last.all().tolist() == [limit] * 3
    assert sys.getrecursionlimit() == limit
