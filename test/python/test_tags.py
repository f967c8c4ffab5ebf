"""Tags and groups: what the user says of a model reaches the sites that do it."""

from __future__ import annotations

import gc
import inspect
import json
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from artifacts import lineage as small_lineage
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import covan_mlir
from covan_mlir import CompileOptions, CovanError, Executable, Lineage, TagError
from covan_mlir.provenance.model import Action, Fate, Group, Part, Site
from covan_mlir.provenance.words import is_group, is_tag


def rotate(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x) * 2


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = rotate(x)
        with covan_mlir.group("attention"):
            with covan_mlir.group("scores", "hot"):
                x = self.up(x)
            x = torch.softmax(x, -1)
        return x.reshape(-1).view(2, 4)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(4), Block(4)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return self.blocks[0](x) + torch.arange(4) * 3


ARGS = (torch.randn(2, 4),)


def compiled(model: Any = None, args: Any = ARGS, **options: Any) -> Lineage:
    return covan_mlir.compile_module(model or Model().eval(), args, **options).lineage


@pytest.fixture(scope="module")
def exe() -> Executable:
    tags = {"blocks.1": ["audit:pii"], "arange": "const", "group:rotate@2": ["late"]}
    # A fused kernel would compute the arange, which is to be folded here.
    options = CompileOptions(fuse_reductions=False)
    return covan_mlir.compile_module(Model().eval(), ARGS, tags=tags, options=options)


def names(actions: Iterable[Action]) -> list[str]:
    return [action.name for action in actions]


# --- tags ------------------------------------------------------------------------------------------------------------


def test_a_module_s_tag_reaches_its_actions_and_their_sites(exe: Executable) -> None:
    lineage = exe.lineage
    tagged = lineage.tagged("audit:pii")
    assert names(tagged) == names(lineage.find("blocks.1")) == names(lineage.find("tag:audit:pii"))
    for site in lineage.sites:
        performs = any(action in tagged for action in lineage.why(site))
        assert performs <= ("audit:pii" in lineage.tags(site))
    assert lineage.tags("linear_1") == {"audit:pii", "hot"}
    assert lineage.tags(lineage.find("linear_1")[0].parts[0]) == {"audit:pii", "hot"}
    assert lineage.tags("linear") == {"hot"}
    assert set(lineage.where("blocks.1")) <= set(lineage.where("tag:audit:pii"))


def test_what_is_only_read_or_indexed_by_still_tags(exe: Executable) -> None:
    lineage = exe.lineage
    (site,) = lineage.where("tag:const")
    assert "const" in lineage.tags(site)
    assert "const" in lineage.tags(site, ["folded"])
    assert "const" not in lineage.tags(site, ["performed"])
    reshaped = Lineage.from_json(lineage.to_json())
    reshaped.tag("reshape", "shape")
    assert reshaped.where("reshape") == ()
    (site,) = reshaped.where("tag:shape")
    assert reshaped.tags(site, ["viewed"]) >= {"shape"}


def line_of(function: Any, text: str) -> int:
    lines, start = inspect.getsourcelines(function)
    return start + next(index for index, line in enumerate(lines) if text in line)


def test_lines_names_and_rules() -> None:
    line = f"test_tags.py:{line_of(Block.forward, 'softmax')}"
    with covan_mlir.tag(line, "soft"), covan_mlir.tag("relu", "first", "first"):
        lineage = compiled(tags=[covan_mlir.tag("blocks", "below")])
    assert names(lineage.tagged("soft")) == ["softmax", "softmax_1", "softmax_2"]
    assert names(lineage.tagged("first")) == ["relu"]
    assert names(lineage.tagged("below")) == names(lineage.find("blocks"))
    assert not compiled().tagged("soft")  # the rules ended with their block


def test_tags_after_compilation_are_saved(exe: Executable, tmp_path: Path) -> None:
    exe.lineage.tag("softmax", "later")
    exe.save(tmp_path / "m.covan")
    lineage = covan_mlir.load(tmp_path / "m.covan").lineage
    assert names(lineage.tagged("later")) == ["softmax"]
    assert lineage.action_tags == exe.lineage.action_tags
    assert lineage.groups == exe.lineage.groups
    assert lineage.edges == exe.lineage.edges


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        ({"blocks.0.upp": ["x"]}, r"tag\('blocks.0.upp', 'x'\): nothing in the model .* did you mean blocks.0.up"),
        ({"group:rotat": "x"}, "did you mean group:rotate"),
        ({"relu": []}, "no tag is given"),
        ({"relu": [""]}, "is no tag"),
        ({"relu": ["a\n"]}, "is no tag"),
        ({"relu": [7]}, "is no tag"),
        ({7: ["x"]}, "not a int"),
        (["blocks.0"], "tags is {"),
    ],
)
def test_wrong_tags(tags: Any, message: str) -> None:
    with pytest.raises(TagError, match=message):
        compiled(tags=tags)


def test_tags_need_a_lineage() -> None:
    with pytest.raises(TagError, match="provenance=True"):
        compiled(tags={"relu": "x"}, provenance=False)


def test_unknown_names_after_compilation(exe: Executable) -> None:
    with pytest.raises(KeyError, match="did you mean softmax"):
        exe.lineage.tag("softmacs", "x")
    with pytest.raises(KeyError, match="did you mean tag:audit:pii"):
        exe.lineage.find("tag:audit:pi")
    assert exe.lineage.tagged("nobody") == ()


def test_a_rule_that_nobody_uses_says_so() -> None:
    with pytest.warns(RuntimeWarning, match="had no effect"):
        covan_mlir.tag("relu", "x")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with covan_mlir.tag("relu", "x"):
            pass
        gc.collect()


def test_rules_do_not_belong_into_the_model() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        with covan_mlir.tag("relu", "x"):
            return torch.relu(x)

    assert model(torch.ones(2)).tolist() == [1, 1]
    with pytest.raises(CovanError, match=r"covan_mlir\.group"):
        compiled(model)


# --- what a site's tags are, by hand ---------------------------------------------------------------------------------


def by_hand() -> Lineage:
    """Site 0 performs a, reads the constant c, indexes by v, and computes what m computes as well; d is dead."""
    rows = ["a", "c", "v", "m", "d", "gone"]
    kinds: Any = ["dispatched", "folded", "view", "merged", "dead", "view"]
    actions = [
        Action(i, name, "op", "", (), (), (Part(i, i, name, "op", (), ()),) if name != "gone" else ())
        for i, name in enumerate(rows)
    ]
    fates = [Fate(kind, () if kind == "dead" else (0,), "step", 0 if kind == "merged" else None) for kind in kinds]
    sites = [Site(0, "k", "call", (0,), (0,), views=(2,), folds=(1,)), Site(1, "k2", "call", ())]
    tags = {i: frozenset({f"t:{name}"}) for i, name in enumerate(rows)}
    return Lineage(actions, sites, (), fates, dict(enumerate(fates[:5])), tags=tags)


def test_relations() -> None:
    lineage = by_hand()
    site = lineage.sites[0]
    assert {(lineage.actions[e.action].name, e.relation) for e in lineage.edges} == {
        ("a", "performed"),
        ("c", "folded"),
        ("v", "viewed"),
        ("m", "merged"),
        ("gone", "viewed"),
    }
    assert lineage.tags(site) == {"t:a", "t:c", "t:v", "t:m", "t:gone"}
    assert lineage.tags(site, ["performed", "merged"]) == {"t:a", "t:m"}
    assert lineage.tags(lineage.sites[1]) == frozenset()
    assert lineage.tags("d") == {"t:d"}
    assert lineage.where("tag:t:d") == ()


@given(st.dictionaries(st.integers(0, 5), st.frozensets(st.text(min_size=1).filter(is_tag), min_size=1)))
def test_any_tags_survive_json(tags: dict[int, frozenset[str]]) -> None:
    lineage = by_hand()
    lineage.action_tags = tags
    assert Lineage.from_json(json.loads(json.dumps(lineage.to_json()))).action_tags == tags
    for tag in {tag for words in tags.values() for tag in words}:
        assert {a.id for a in lineage.find(f"tag:{tag}")} == {i for i, words in tags.items() if tag in words}
        assert all(tag in lineage.tags(site) for site in lineage.where(f"tag:{tag}"))


def test_the_stub_artifact_has_some() -> None:
    lineage = small_lineage()
    assert lineage.tags(lineage.sites[0]) == {"audit:pii", "hot"}
    assert [g.name for g in lineage.groups] == ["attention@0", "mlp@0"]


# --- groups ----------------------------------------------------------------------------------------------------------


def test_blocks_and_functions(exe: Executable) -> None:
    lineage = exe.lineage
    groups = {group.name: (group.kind, names(lineage.actions[i] for i in group.actions)) for group in lineage.groups}
    assert groups == {
        "rotate@0": ("function", ["relu", "mul"]),
        "attention@0": ("block", ["linear", "softmax"]),
        "scores@0": ("block", ["linear"]),
        "rotate@1": ("function", ["relu_1", "mul_1"]),
        "attention@1": ("block", ["linear_1", "softmax_1"]),
        "scores@1": ("block", ["linear_1"]),
        "rotate@2": ("function", ["relu_2", "mul_2"]),
        "attention@2": ("block", ["linear_2", "softmax_2"]),
        "scores@2": ("block", ["linear_2"]),
    }


def test_queries_by_group(exe: Executable) -> None:
    lineage = exe.lineage
    assert names(lineage.find("group:attention@1")) == ["linear_1", "softmax_1"]
    assert names(lineage.find("scores")) == ["linear", "linear_1", "linear_2"]
    assert set(lineage.where("attention@0")) == set(lineage.where("linear")) | set(lineage.where("softmax"))
    assert names(lineage.tagged("late")) == ["relu_2", "mul_2"]
    with pytest.raises(KeyError, match="did you mean group:attention"):
        lineage.find("group:atention")


def test_a_decorated_function_tells_iterations_apart() -> None:
    @covan_mlir.group
    def step(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x)

    @covan_mlir.group("odd one", "loop")
    def other(x: torch.Tensor) -> torch.Tensor:
        return torch.cos(x)

    def plain(x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x)

    def model(x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = step(x)
        for _ in range(2):
            x = other(x)
        for _ in range(2):
            x = plain(x)
        return x

    lineage = compiled(model, (torch.rand(4),))
    sizes = {group.name: len(group.actions) for group in lineage.groups}
    # calls of a plain function from one line, with nothing between them, look like one
    assert sizes.pop("plain@0") == 2
    assert sizes == {"model@0": 7, "step@0": 1, "step@1": 1, "step@2": 1, "odd one@0": 1, "odd one@1": 1, "other@0": 2}
    assert names(lineage.tagged("loop")) == ["cos", "cos_1"]


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def helper(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(self.inner(x))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.helper(x)


def test_calls_in_sibling_modules_are_told_apart() -> None:
    """The same lines, one after the other: only the module stack tells these calls apart."""
    lineage = compiled(nn.Sequential(Twice(), Twice()).eval(), ARGS)
    helpers = [group for group in lineage.groups if group.function == "helper"]
    assert [names(lineage.actions[i] for i in group.actions) for group in helpers] == [
        ["linear", "relu", "sin"],
        ["linear_1", "relu_1", "sin_1"],
    ]
    shared = Twice()
    lineage = compiled(nn.Sequential(shared, shared).eval(), ARGS)
    assert [len(group.actions) for group in lineage.groups if group.function == "helper"] == [3, 3]


def test_outside_export_a_group_does_nothing() -> None:
    model = Model().eval()
    x = ARGS[0]
    assert torch.equal(model(x), model(x))
    assert "custom" not in torch.fx.traceback.current_meta


def test_groups_survive_a_saved_export(tmp_path: Path) -> None:
    with torch.fx.traceback.preserve_node_meta():
        program = torch.export.export(Model().eval(), ARGS)
    torch.export.save(program, tmp_path / "m.pt2")
    lineage = compiled(str(tmp_path / "m.pt2"), ())
    assert names(lineage.find("group:attention@1")) == ["linear_1", "softmax_1"]
    assert lineage.tags("linear") == {"hot"}


@pytest.mark.parametrize("name", ["", "a@0", " a", "a\n", 7])
def test_wrong_names_of_groups(name: Any) -> None:
    with pytest.raises(TagError, match="no name for a group"):
        covan_mlir.group(name)
    with pytest.raises(TagError, match="is no tag"):
        covan_mlir.group("a", "")


@given(st.text())
def test_names_of_groups(name: str) -> None:
    group = Group(f"{name}@12", "block", ())
    assert group.function == name
    assert is_group(name) <= is_tag(name)
