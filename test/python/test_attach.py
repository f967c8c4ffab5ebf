"""Attached operators: eager PyTorch with forward hooks is the oracle."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec import structs
from torch import nn

import covan_mlir
from covan_mlir import Attached, Attachment, CompileOptions, Executable, InputError, Lineage, MlirFunction
from covan_mlir.artifacts.artifact import read, write
from covan_mlir.attaching import attach, place
from covan_mlir.comparing.compare import CompareOptions
from covan_mlir.compilation.captured import compile_captured
from covan_mlir.errors import ArtifactError
from covan_mlir.frontend.actions import source_actions
from covan_mlir.lowering import targets
from covan_mlir.provenance import lineage_json
from covan_mlir.provenance.model import Fate


class Pool(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((2, 3))


class Net(nn.Module):
    """Convolution, normalisation and activation in one kernel; a value with several readers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.act = nn.ReLU()
        self.pool = Pool()
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.act(self.conv(x))  # LINE
        pooled = self.pool(x)
        return {"y": self.head(pooled), "twice": pooled * 2, "sum": pooled.sum(-1)}


LINE = next(number for number, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "# LINE" in text)


class Quantise(nn.Module):
    """To bytes and a scale."""

    scale: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor(0.05))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.round(x / self.scale).clamp(-127, 127).to(torch.int8), x.abs().amax() * self.scale


def clip(x: torch.Tensor) -> torch.Tensor:
    return x.clamp(0.1, 0.3)


HALF = MlirFunction("""
func.func @half(%x: tensor<?x8x6x6xf32>) -> tensor<?x8x6x6xf32> {
  %c = arith.constant dense<0.5> : tensor<8x6x6xf32>
  %zero = arith.constant 0 : index
  %n = tensor.dim %x, %zero : tensor<?x8x6x6xf32>
  %e = tensor.empty(%n) : tensor<?x8x6x6xf32>
  %r = linalg.generic {
    indexing_maps = [affine_map<(a, b, c, d) -> (a, b, c, d)>, affine_map<(a, b, c, d) -> (b, c, d)>,
                     affine_map<(a, b, c, d) -> (a, b, c, d)>],
    iterator_types = ["parallel", "parallel", "parallel", "parallel"]
  } ins(%x, %c : tensor<?x8x6x6xf32>, tensor<8x6x6xf32>) outs(%e : tensor<?x8x6x6xf32>) {
  ^bb0(%a: f32, %h: f32, %o: f32):
    %m = arith.mulf %a, %h : f32
    linalg.yield %m : f32
  } -> tensor<?x8x6x6xf32>
  %s = arith.addf %r, %r : tensor<?x8x6x6xf32>
  %t = arith.mulf %s, %r : tensor<?x8x6x6xf32>
  return %t : tensor<?x8x6x6xf32>
}
""")  # 2 (x / 2)²
ATTACH: dict[str | int, Any] = {
    "conv": Quantise().eval(),
    f"test_attach.py:{LINE}": torch.sqrt,
    "pool": Attachment(clip, mode="replace"),
    "relu": (Attachment(HALF, name="half"), Attachment(lambda x: x.sum((1, 2, 3)), name="total")),
    "mean": Attachment(lambda x: x * 3, name="before the clip"),
}


@pytest.fixture(scope="module")
def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture(scope="module")
def exe(net: Net) -> Executable:
    x = torch.randn(2, 3, 8, 8)
    batch = {0: torch.export.Dim.DYNAMIC}
    return covan_mlir.compile_module(net, (x,), dynamic_shapes=(batch,), options=CompileOptions(attach=ATTACH))


@torch.no_grad()
def eager(net: Net, x: torch.Tensor) -> tuple[Any, dict[str, Any]]:
    """The model with hooks that see, and in one place change, what modules give."""
    taps: dict[str, Any] = {}

    def tap(names: dict[str, Callable[[torch.Tensor], Any]], module: Any, args: Any, out: torch.Tensor) -> None:
        taps.update({name: fn(out) for name, fn in names.items()})

    hooks = [
        net.conv.register_forward_hook(partial(tap, {"conv": Quantise()})),
        net.act.register_forward_hook(
            partial(
                tap,
                {
                    f"test_attach.py:{LINE}": torch.sqrt,
                    "half": lambda x: 2 * (x / 2) ** 2,
                    "total": lambda x: x.sum((1, 2, 3)),
                },
            )
        ),
        net.pool.register_forward_hook(partial(tap, {"before the clip": lambda x: x * 3})),
        net.pool.register_forward_hook(lambda module, args, out: clip(out)),
    ]
    try:
        return net(x), taps
    finally:
        for hook in hooks:
            hook.remove()


@pytest.mark.parametrize("batch", [2, 5])
def test_taps_and_replacements_are_those_of_hooks(exe: Executable, net: Net, batch: int) -> None:
    x = torch.randn(batch, 3, 8, 8, generator=torch.Generator().manual_seed(batch))
    want, want_taps = eager(net, x)
    got, taps = exe.call_with_attachments(x)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(exe(x), want)  # the model's own results have their own structure
    assert taps.keys() == want_taps.keys()
    torch.testing.assert_close(taps, want_taps, atol=2e-5, rtol=1e-5)
    assert got["twice"].min() >= 0.2  # all readers read the clipped one
    assert {it.name: it.cost.chosen for it in exe.attachments}["pool"] in ("at hand", "in place")
    as_numpy, taps_as_numpy = exe.call_with_attachments(x.numpy())
    torch.testing.assert_close(torch.from_numpy(as_numpy["y"]), want["y"])
    assert taps_as_numpy["conv"][0].dtype.name == "int8"


def test_attached_operators_are_actions_of_their_own(exe: Executable) -> None:
    verdict = exe.verify()
    assert verdict, verdict
    for it in exe.attachments:
        actions = exe.lineage.find(it.module)
        assert {action.name for action in actions} == set(it.actions)
        assert it.fate == "dispatched"
        assert it.sites
        assert {site.id for site in exe.lineage.where(it.module)} == set(it.sites)
        assert all("attached" in exe.lineage.tags(action) for action in actions)
    by_name = {it.name: it for it in exe.attachments}
    assert by_name["pool"].target == by_name["before the clip"].target == "mean"
    assert by_name["conv"].types[0].startswith("i8[s")  # of any batch
    assert by_name["conv"].types[1] == "f32[]"
    assert by_name["conv"].constants.keys() == {"scale"}
    assert "class Quantise" in by_name["conv"].source
    assert by_name["half"].source == HALF.text
    lines = {action.line for action in exe.lineage.find(by_name["pool"].module)}
    assert all(line.startswith(__file__) for line in lines)
    own = {"conv2d", "relu", "mean", "linear", "mul", "sum_1"}
    assert own <= {action.name for action in exe.lineage.actions}  # named as without attachments


def test_saved_and_loaded(exe: Executable, net: Net, tmp_path: Path) -> None:
    path = tmp_path / "m.covan"
    exe.save(path)
    loaded = covan_mlir.load(path)
    assert loaded.attachments == exe.attachments
    x = torch.randn(3, 3, 8, 8)
    torch.testing.assert_close(loaded.call_with_attachments(x), exe.call_with_attachments(x))
    contents = read(path)
    (variant,) = contents.variants
    first, *rest = variant.attachments
    for changed in (
        structs.replace(first, source=first.source + " "),
        structs.replace(first, sha256="0" * 64),
        structs.replace(first, actions=(*first.actions[:-1], "none")),
        structs.replace(first, mode="replace"),
    ):
        other = replace(variant, attachments=(changed, *rest))
        write(tmp_path / "changed.covan", replace(contents, variants=(other,)))
        with pytest.raises(ArtifactError, match=r"SHA-256|taps differ"):
            covan_mlir.load(tmp_path / "changed.covan")
    # the operator itself: another constant in the argument of a call
    row = lineage_json.dump(variant.lineage)
    arguments = next(part for part in row["parts"] if "127" in part[7])
    arguments[7] = arguments[7].replace("127", "15")
    other = replace(variant, lineage=lineage_json.load(row))
    write(tmp_path / "changed.covan", replace(contents, variants=(other,)))
    with pytest.raises(ArtifactError, match="'conv' is not the one that was compiled"):
        covan_mlir.load(tmp_path / "changed.covan")


def test_compare_from_a_file_needs_the_functions(exe: Executable, net: Net, tmp_path: Path) -> None:
    x = torch.randn(2, 3, 8, 8)
    exe.save(tmp_path / "m.covan")
    loaded = covan_mlir.load(tmp_path / "m.covan")
    with pytest.raises(InputError, match=r"attachments .*CompareOptions\(attach="):
        loaded.compare(x, model=net)
    with pytest.raises(InputError, match=r"compiled with conv, .* not with conv"):
        loaded.compare(x, model=net, options=CompareOptions(attach={"conv": clip}))
    other = ATTACH | {"pool": Attachment(lambda t: t.clamp(0.1, 0.4), mode="replace")}
    with pytest.raises(InputError, match="'pool' is not the function"):
        loaded.compare(x, model=net, options=CompareOptions(attach=other))
    comparison = exe.compare(x)
    assert comparison, comparison
    assert {"conv_to", "pool_clamp"} <= {row.action.name for row in comparison.rows}


# --- inside of fused kernels -----------------------------------------------------------------------------------------


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), -1) @ v


def to_byte(x: torch.Tensor) -> torch.Tensor:
    return torch.round(x * 255).to(torch.uint8)


def heads(rows: int, depth: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(4, rows, depth, generator=generator) for _ in range(3))
    return q, k, v


@pytest.fixture(scope="module")
def plain() -> Executable:
    """Attention of four heads as one kernel."""
    return covan_mlir.compile_module(attention, heads(64, 16))


def test_inside_of_a_fused_chain(plain: Executable) -> None:
    """The kernel stays as it is, and the probabilities are computed once more: that costs less than to store them."""
    rows, depth = 64, 16
    q, k, v = heads(rows, depth)
    (whole,) = plain.lineage.where("softmax")
    assert len(whole.trace) > 2, "the probabilities have to be inside of a kernel"
    exe = covan_mlir.compile_module(attention, (q, k, v), options=CompileOptions(attach={"softmax": to_byte}))
    out, taps = exe.call_with_attachments(q, k, v)
    torch.testing.assert_close(out, attention(q, k, v))
    probabilities = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(depth), -1)
    off = (taps["softmax"].int() - to_byte(probabilities).int()).abs()
    assert off.max() <= 1  # a value in the middle between two bytes may be rounded either way
    assert off.float().mean() < 1e-3
    assert exe.verify()
    (it,) = exe.attachments
    assert it.cost.chosen == "recompute" == min(it.cost.places, key=lambda at: at.seconds).way
    assert {at.way for at in it.cost.places} == {"recompute", "split"}
    assert it.cost.before == (whole.kernel,)
    assert whole.kernel in it.cost.after
    assert set(it.again) == {"transpose", "matmul", "div", "softmax"}
    # The cost is what the two lineages differ by: among other things, scores once more, 2 FLOPs for each product.
    before, after = (place.totals(one.lineage, {}) for one in (plain, exe))
    assert (it.cost.bytes, it.cost.flops) == (after[0] - before[0], after[1] - before[1])
    assert it.cost.flops > 2 * 4 * rows * rows * depth


def test_what_is_computed_again_is_computed_once(plain: Executable) -> None:
    assert plain.origin is not None
    both = (Attachment(to_byte, name="bytes"), Attachment(lambda p: p.amax(-1), name="largest"))
    plan = attach.placed(attach.plan(plain.origin.captured, {"softmax": both}), [plain.lineage])
    assert [choice.way for choice in plan.choices] == ["recompute"] * 2
    first, second = plan.insertion.inserted
    assert first.copies == second.copies
    ops = [str(node.target) for node in plan.captured.program.graph.nodes]
    assert ops.count("aten.softmax.int") == 2  # the model's, and the one for both
    assert ops.count("covan.barrier.default") == 2  # queries and keys
    q, k, v = heads(64, 16)
    out, taps = plan.captured.program.module()(q, k, v)
    torch.testing.assert_close(out, attention(q, k, v))
    torch.testing.assert_close(taps["largest"], taps["bytes"].amax(-1) / 255, atol=0.5 / 255, rtol=0)
    # Nothing behind a replacement has a second form.
    stored = attach.placed(
        attach.plan(plain.origin.captured, {"div": Attachment(clip, "replace"), "softmax": to_byte}), [plain.lineage]
    )
    assert [choice.way for choice in stored.choices] == ["in place", "split"]


def test_merged_copies_give_way_to_a_cut(plain: Executable, caplog: pytest.LogCaptureFixture) -> None:
    """Equal dispatches are merged where nobody sees it: a copy is then said to be a view."""
    assert plain.origin is not None
    plan = attach.placed(attach.plan(plain.origin.captured, {"softmax": to_byte}), [plain.lineage])
    actions = list(source_actions(plan.captured.program.graph).values())

    def lineage(kind: Any) -> Lineage:
        return Lineage(actions, fates=[Fate(kind if a.name == "softmax_matmul" else "view", (), "") for a in actions])

    views = [action.name for action in actions if action.view]
    assert "softmax_matmul" not in views
    for action in list(actions):
        if not action.view and action.name in plan.insertion.inserted[0].copies and action.name != "softmax_matmul":
            actions[action.id] = replace(action, view=True)
    assert attach.undone(plan, [lineage("dispatched")]) is None
    with caplog.at_level(logging.INFO, "covan_mlir.attaching.attach"):
        other = attach.undone(plan, [lineage("view")])
    assert other is not None
    assert "softmax_matmul was merged with what the model computes" in caplog.text
    assert [choice.way for choice in other.choices] == ["split"]
    assert not other.insertion.inserted[0].copies


def test_what_is_expensive_to_compute_is_stored() -> None:
    """Few rows of many features: the site is cut."""
    arguments = heads(64, 256)
    plain = covan_mlir.compile_module(attention, arguments)
    assert plain.origin is not None
    plan = attach.placed(attach.plan(plain.origin.captured, {"softmax": to_byte}), [plain.lineage])
    (choice,) = plan.choices
    assert choice.way == "split"
    split, again = choice.places
    assert (split.flops, again.flops) == (0, pytest.approx(2 * 4 * 64 * 64 * 256, rel=0.1))
    assert split.bytes >= 2 * 4 * 64 * 64 * 4  # probabilities in float32, written and read
    assert not plan.goals[0].again


# --- fates -----------------------------------------------------------------------------------------------------------


class Fates(nn.Module):
    var: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("var", torch.rand(4) + 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = torch.rsqrt(self.var + 1e-5)
        torch.sin(x)
        return torch.dropout(torch.exp(x), 0.5, self.training) * scale


@pytest.fixture(scope="module")
def fates() -> Executable:
    return covan_mlir.compile_module(Fates().eval(), (torch.randn(3, 4),))


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (
            "rsqrt",
            r"rsqrt \(aten.rsqrt.*\) at .*test_attach.py:\d+ is folded into a constant, read by site \d+; dec",
        ),
        ("sin", "sin .* is dead: no result needs it; .*; return it"),
        ("dropout", "dropout .* is merged: the same value as exp, of site 0; .*; attach to exp"),
    ],
)
def test_what_is_gone_has_a_fate(fates: Executable, key: str, said: str) -> None:
    assert fates.origin is not None
    plan = attach.plan(fates.origin.captured, {key: clip})
    with pytest.raises(InputError, match=said):
        attach.placed(plan, [fates.lineage])


def attached_to(exe: Executable, attachments: dict[str | int, Any]) -> tuple[Executable, tuple[Attached, ...]]:
    """As `compile_module` would, next to a program without attachments that is there already."""
    assert exe.origin is not None
    plan = attach.placed(attach.plan(exe.origin.captured, attachments), [exe.lineage])
    new = Executable(compile_captured(plan.captured, targets.parse_all("cpu"), CompileOptions()))
    attach.tag(plan, new.lineage)
    return new, attach.records(plan, exe.lineage, new.lineage)


def test_views_are_told_and_equal_results_share_a_kernel(fates: Executable) -> None:
    attached: dict[str | int, Any] = {
        "mul": (
            Attachment(lambda x: x, name="itself"),
            Attachment(lambda x: x.float(), name="float"),
            Attachment(lambda x: x.t() @ x, name="one"),
            Attachment(lambda x: x.t() @ x, name="other"),
        )
    }
    exe, them = attached_to(fates, attached)
    assert [it.fate for it in them] == ["view", "view", "dispatched", "dispatched"]
    assert them[2].sites == them[3].sites
    assert len(exe.lineage.where("one_matmul")) == 1
    y, taps = exe.call_with_attachments(torch.randn(3, 4))
    torch.testing.assert_close(taps, {"itself": y, "float": y, "one": y.t() @ y, "other": y.t() @ y})
    assert exe.verify()


def test_a_constant_is_no_attached_operator(fates: Executable) -> None:
    with pytest.raises(InputError, match=r"folded into a constant.*it is the same in every call"):
        attached_to(fates, {"exp": torch.ones_like})
