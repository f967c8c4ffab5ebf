"""Attached operators: eager PyTorch with forward hooks is the oracle."""

from __future__ import annotations

import json
import logging
import math
import zipfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import fails
from torch import nn

import covan_mlir
from covan_mlir import Attached, Attachment, CompileOptions, Executable, InputError, Lineage, MlirFunction
from covan_mlir.artifact import read, write
from covan_mlir.attaching import attach, locate, place
from covan_mlir.comparing.compare import CompareOptions
from covan_mlir.compile import compile_captured
from covan_mlir.errors import ArtifactError
from covan_mlir.fates import Fate
from covan_mlir.frontend.actions import source_actions
from covan_mlir.frontend.capture import capture
from covan_mlir.lowering import targets
from covan_mlir.tools import cli


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
        replace(first, source=first.source + " "),
        replace(first, sha256="0" * 64),
        replace(first, actions=(*first.actions[:-1], "none")),
        replace(first, mode="replace"),
    ):
        other = replace(variant, attachments=(changed, *rest))
        write(tmp_path / "changed.covan", replace(contents, variants=(other,)))
        with pytest.raises(ArtifactError, match=r"SHA-256|taps differ"):
            covan_mlir.load(tmp_path / "changed.covan")
    # the operator itself: another constant in the argument of a call
    row = variant.lineage.to_json()
    index = next(i for i, part in enumerate(row["parts"]) if "127" in part[-1])
    row["parts"][index][-1] = row["parts"][index][-1].replace("127", "15")
    other = replace(variant, lineage=type(variant.lineage).from_json(row))
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
    found = exe.compare(x)
    assert found, found
    assert {"conv_to", "pool_clamp"} <= {row.action.name for row in found.rows}


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
    made = attach.placed(attach.plan(plain.origin.captured, {"softmax": both}), [plain.lineage])
    assert [choice.way for choice in made.choices] == ["recompute"] * 2
    first, second = made.insertion.inserted
    assert first.copies == second.copies
    ops = [str(node.target) for node in made.captured.program.graph.nodes]
    assert ops.count("aten.softmax.int") == 2  # the model's, and the one for both
    assert ops.count("covan.barrier.default") == 2  # queries and keys
    q, k, v = heads(64, 16)
    out, taps = made.captured.program.module()(q, k, v)
    torch.testing.assert_close(out, attention(q, k, v))
    torch.testing.assert_close(taps["largest"], taps["bytes"].amax(-1) / 255, atol=0.5 / 255, rtol=0)
    # Where one tensor is stored anyway, the next is computed from it.
    stored = attach.placed(
        attach.plan(plain.origin.captured, {"div": Attachment(clip, "replace"), "softmax": to_byte}), [plain.lineage]
    )
    assert [choice.way for choice in stored.choices] == ["split"] * 2  # nothing behind a replacement has a second form


def test_merged_copies_give_way_to_a_cut(plain: Executable, caplog: pytest.LogCaptureFixture) -> None:
    """Equal dispatches are merged where nobody sees it: a copy is then said to be a view."""
    assert plain.origin is not None
    made = attach.placed(attach.plan(plain.origin.captured, {"softmax": to_byte}), [plain.lineage])
    actions = list(source_actions(made.captured.program.graph).values())

    def lineage(kind: Any) -> Lineage:
        return Lineage(actions, fates=[Fate(kind if a.name == "softmax_matmul" else "view", (), "") for a in actions])

    views = [action.name for action in actions if action.view]
    assert "softmax_matmul" not in views
    for action in list(actions):
        if not action.view and action.name in made.insertion.inserted[0].copies and action.name != "softmax_matmul":
            actions[action.id] = replace(action, view=True)
    assert attach.undone(made, [lineage("dispatched")]) is None
    with caplog.at_level(logging.INFO, "covan_mlir.attaching.attach"):
        other = attach.undone(made, [lineage("view")])
    assert other is not None
    assert "softmax_matmul was merged with what the model computes" in caplog.text
    assert [choice.way for choice in other.choices] == ["split"]
    assert not other.insertion.inserted[0].copies


def test_what_is_expensive_to_compute_is_stored() -> None:
    """Few rows of many features: the site is cut."""
    arguments = heads(64, 256)
    plain = covan_mlir.compile_module(attention, arguments)
    assert plain.origin is not None
    made = attach.placed(attach.plan(plain.origin.captured, {"softmax": to_byte}), [plain.lineage])
    (choice,) = made.choices
    assert choice.way == "split"
    split, again = choice.places
    assert (split.flops, again.flops) == (0, pytest.approx(2 * 4 * 64 * 64 * 256, rel=0.1))
    assert split.bytes >= 2 * 4 * 64 * 64 * 4  # probabilities in float32, written and read
    assert not made.goals[0].again


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
    made = attach.plan(fates.origin.captured, {key: clip})
    with pytest.raises(InputError, match=said):
        attach.placed(made, [fates.lineage])


def attached_to(exe: Executable, attachments: dict[str | int, Any]) -> tuple[Executable, tuple[Attached, ...]]:
    """As `compile_module` would, next to a program without attachments that is there already."""
    assert exe.origin is not None
    made = attach.placed(attach.plan(exe.origin.captured, attachments), [exe.lineage])
    new = compile_captured(made.captured, targets.parse_all("cpu"), CompileOptions())
    attach.tag(made, new.lineage)
    return new, attach.records(made, exe.lineage, new.lineage)


def test_views_and_merged_results_are_told(fates: Executable, caplog: pytest.LogCaptureFixture) -> None:
    attached: dict[str | int, Any] = {
        "mul": (
            Attachment(lambda x: x, name="itself"),
            Attachment(lambda x: x.float(), name="float"),
            Attachment(lambda x: x.t() @ x, name="one"),
            Attachment(lambda x: x.t() @ x, name="other"),
        )
    }
    with caplog.at_level(logging.WARNING, "covan_mlir.attaching.attach"):
        exe, them = attached_to(fates, attached)
    assert [it.fate for it in them] == ["view", "view", "dispatched", "merged"]
    assert "'other': its result is merged: the same value as one_matmul" in caplog.text
    y, taps = exe.call_with_attachments(torch.randn(3, 4))
    torch.testing.assert_close(taps, {"itself": y, "float": y, "one": y.t() @ y, "other": y.t() @ y})
    assert exe.verify()


def test_a_constant_is_no_attached_operator(fates: Executable) -> None:
    with pytest.raises(InputError, match=r"folded into a constant.*it is the same in every call"):
        attached_to(fates, {"exp": torch.ones_like})


# --- what is refused before anything is compiled ---------------------------------------------------------------------


class Calls(nn.Module):
    """A module called twice, one in place, one that gives two tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        y = self.act(self.act(self.linear(x)) - 1)
        a, b = y.chunk(2, -1)
        z = y * 2
        z.add_(1)
        return a, b, z


class Trains(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class Counts(nn.Module):
    n: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("n", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.n.add_(1)
        return x + self.n


@pytest.mark.parametrize(
    ("attached", "said"),
    [
        ({"lineer": clip}, "nothing in the model is called 'lineer'; did you mean linear"),
        ({"act": clip}, r"'act' gives 2 tensors: attach to one of them by name: relu f32\[2, 4\], relu_1"),
        ({"chunk": clip}, "chunk .* gives 2 tensors: attach to one of getitem, getitem_1"),
        ({99: clip}, "no action 99"),
        ({"sub": Attachment(lambda x: x.half(), "replace")}, r"gives f16\[2, 4\] in place of sub, .* f32\[2, 4\]"),
        ({"sub": Attachment(lambda x: (x, x + 1), "replace")}, "replaces one tensor and gives 2"),
        ({"mul": Attachment(clip, "replace")}, "add_ writes to mul: attach to add_"),
        ({"sub": lambda x: x @ x}, "'sub' cannot be traced on f32.*same reduction dim"),
        ({"sub": lambda x: x.mul_(2)}, "writes to its tensor"),
        ({"sub": Counts().eval()}, "or to its own buffers"),
        ({"sub": lambda x: torch.ones(3)}, "does not depend on sub"),
        ({"sub": Trains()}, "training mode"),
        ({"sub": lambda x: 3}, "gives 3, which is no tensor"),
        ({"sub": (Attachment(clip, "replace", "a"), Attachment(clip, "replace", "b"))}, "two attachments replace sub"),
        ({"sub": MlirFunction("func.func @f(%x: tensor<3xf32>)")}, "no valid MLIR|no body"),
        ({"sub": MlirFunction("module {")}, "no valid MLIR"),
        (
            {"sub": MlirFunction("func.func @f(%x: tensor<3xf32>) -> tensor<3xf32> { return %x : tensor<3xf32> }")},
            r"takes tensor<3xf32>, not f32\[2, 4\]",
        ),
    ],
)  # fmt: skip
def test_bad_attachments(calls: Any, attached: dict[str | int, Any], said: str) -> None:
    with pytest.raises(InputError, match=f"attach: .*({said})"):
        attach.plan(calls, attached)


class InPlace(nn.Module):
    """A buffer that is written to, values that are written to, and results that are no tensors."""

    n: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("n", torch.zeros(4))

    def forward(self, x: torch.Tensor, scale: float = 2.0) -> dict[str, Any]:
        self.n.add_(x.sum(0))
        y = x * scale
        y.add_(1)
        a, b = (y * self.n).split(2, -1)
        return {"none": None, "a": a, "three": (3, b)}


def test_writes_in_place_and_odd_results() -> None:
    """The program with its taps is an exported program like others: eager PyTorch runs it."""
    x = torch.randn(3, 4)
    captured = capture(InPlace(), (x,), {"scale": 3.0}, None)
    attachments: dict[str | int, Any] = {
        "mul": Attachment(lambda t: t + 0.5),
        "getitem_1": lambda t: {"both": (t * 5, t.sum())},
        "sum_1": torch.neg,
    }
    made = attach.plan(captured, attachments).captured
    want = InPlace()(x, scale=3.0)
    got, taps = made.program.module()(x, scale=3.0)
    torch.testing.assert_close(got, want)
    b = want["three"][1]
    torch.testing.assert_close(
        taps, {"mul": 3 * x + 0.5, "getitem_1": {"both": (b * 5, b.sum())}, "sum_1": -x.sum(0)}
    )  # `mul` before it was written to


@pytest.fixture(scope="module")
def calls() -> Any:
    return capture(Calls(), (torch.randn(2, 4),), None, None)


def test_what_names_name(calls: Any) -> None:
    graph = calls.program.graph
    assert locate.named(graph, "linear").name == "linear"
    assert locate.named(graph, 0).name == "linear"
    assert locate.named(graph, "module:linear").name == "linear"


def test_options_say_what_is_no_attachment() -> None:
    with pytest.raises(TypeError, match="not a int"):
        CompileOptions(attach={"x": 3})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="'tap' or 'replace'"):
        Attachment(clip, "tapp")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="name them"):
        CompileOptions(attach={"x": (clip, clip)})
    with pytest.raises(ValueError, match=r"two attachments are called 'a.b'"):
        CompileOptions(attach={"a_b": clip, "a.b": clip})
    assert "attach" not in CompileOptions(attach={"x": clip}).to_json()


def test_lineage_is_needed() -> None:
    with pytest.raises(InputError, match="provenance=True"):
        covan_mlir.compile_module(
            Fates(), (torch.randn(3, 4),), options=CompileOptions(attach={"exp": clip}), provenance=False
        )


# --- command line, targets -------------------------------------------------------------------------------------------


def test_command_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "post.py").write_text("import torch\ndef quantise(x):\n    return (x * 100).to(torch.int8)\n")
    compile_ = ["compile", "models.py:make", "-o", "m.covan", "--target", "cpu,cuda:sm_80"]
    assert cli.main([*compile_, "--attach", "softmax=post.py:quantise", "--attach", "linear=post.py:quantise:tap"]) == 0
    capsys.readouterr()
    assert cli.main(["explain", "m.covan"]) == 0
    said = capsys.readouterr().out
    assert "attached 'softmax' to softmax: tap, dispatched, sites" in said
    assert "split" in said or "at hand" in said or "recompute" in said
    assert cli.main(["explain", "m.covan", "--json", "--target", "cuda:sm_80"]) == 0
    rows = json.loads(capsys.readouterr().out)["attachments"]
    assert [row["name"] for row in rows] == ["softmax", "linear"]
    assert cli.main(["run", "m.covan", "-i", "2x4xf32=1"]) == 0
    assert "tap softmax: int8[2, 8]" in capsys.readouterr().out
    with zipfile.ZipFile(here / "m.covan") as archive:
        manifest = json.loads(archive.read("manifest.json"))
    assert [len(row["attachments"]) for row in manifest["variants"]] == [2, 2]


@pytest.mark.parametrize(
    ("row", "code", "error", "hint"),
    [
        ("softmax", 2, "not understood", "--attach features.3.conv=post.py:quantise"),
        ("softmax=post.txt:f", 2, "not understood", "--attach"),
        ("softmax=none.py:f", 1, "none.py: no such file", "path"),
        ("softmax=models.py:doubel", 1, "there is no 'doubel'", "did you mean double"),
        ("softmax=models.py:number", 1, "is a int, not a function", "name a function"),
        ("sofmax=models.py:double", 1, "nothing in the model is called 'sofmax'", "did you mean softmax"),
    ],
)
def test_command_line_errors(
    here: Path, capsys: pytest.CaptureFixture[str], row: str, code: int, error: str, hint: str
) -> None:
    said = fails(capsys, "compile", "models.py:make", "-o", "m.covan", "--attach", row, code=code)
    assert error in said[0]
    assert hint in said[1]
