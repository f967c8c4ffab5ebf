"""The table of kernels and source."""

from __future__ import annotations

import textwrap

from hypothesis import given
from hypothesis import strategies as st

from covan_mlir.lineage import Lineage
from covan_mlir.provenance.explain import fates_json, fates_text, table, table_json, unperformed
from covan_mlir.provenance.model import Action, Fate, Frame, Group, Part, Site


def action(id_: int, name: str, op: str, module: str = "", line: int = 1, file: str = "/me/net/model.py") -> Action:
    frames = (Frame("/torch/functional.py", 9, "f", internal=True), Frame(file, line, "forward"))
    return Action(id_, name, op, module, frames, ("f32[8]",), (Part(id_, id_, f"{name}_part", op, (), ()),))


ACTIONS = [
    action(0, "linear", "aten.linear.default", "mlp.0", 12),
    action(1, "mul", "aten.mul.Tensor", "mlp", 14),
    action(2, "mul_1", "aten.mul.Tensor", "mlp", 14),
    action(3, "view", "aten.view.default", "", 20),
    action(4, "softmax", "aten.softmax.int", "head", 3, "/me/net/head.py"),
]
SITES = [
    Site(0, "init_dispatch_0", "init", ()),
    Site(1, "main_dispatch_0_matmul", "call", (0, 1, 2), (0, 1)),
    Site(2, "main_dispatch_1_softmax", "call", (4,)),
]
LINEAGE = Lineage(ACTIONS, SITES)


def test_table() -> None:
    assert table(LINEAGE, SITES) == textwrap.dedent("""\
        5 actions, 3 sites (2 per call, 1 at load), 3 kernels

        site 0  init  init_dispatch_0
          (no action of the model)

        site 1  call  main_dispatch_0_matmul
          aten.linear       linear      mlp.0  model.py:12
          aten.mul.Tensor   mul, mul_1  mlp    model.py:14

        site 2  call  main_dispatch_1_softmax
          aten.softmax.int  softmax     head   head.py:3

        1 action is performed by no site: view
        """)


def test_a_part_of_the_table_says_so() -> None:
    text = table(LINEAGE, LINEAGE.where("softmax"))
    assert text.startswith("5 actions, 3 sites (2 per call, 1 at load), 3 kernels; 1 of the sites shown\n")
    assert "main_dispatch_1_softmax" in text
    assert "main_dispatch_0_matmul" not in text
    assert "no site" not in text


def test_lineage_explains_itself_with_it() -> None:
    assert LINEAGE.explain() == str(LINEAGE) == table(LINEAGE, SITES)


def test_nothing_at_all() -> None:
    assert table(Lineage(), ()) == "0 actions, 0 sites, 0 kernels\n"


def test_an_action_without_a_source_line() -> None:
    lineage = Lineage([Action(0, "add", "aten.add.Tensor", "", (), ())], [Site(0, "k", "call", (0,))])
    assert table(lineage, lineage.sites).endswith("\nsite 0  call  k\n  aten.add.Tensor  add\n")


def test_files_of_one_name_are_told_apart() -> None:
    files = ["/a/net/model.py", "/b/net/model.py", "/b/other/model.py", "model.py", "/x/alone.py"]
    actions = [action(i, f"n{i}", f"op{i}", "", i, file) for i, file in enumerate(files)]
    text = table(Lineage(actions, [Site(0, "k", "call", tuple(range(5)))]), [Site(0, "k", "call", tuple(range(5)))])
    places = [line.split()[-1] for line in text.splitlines() if line.startswith("  ")]
    assert places == ["a/net/model.py:0", "b/net/model.py:1", "other/model.py:2", "model.py:3", "alone.py:4"]


def test_json_gives_whole_paths() -> None:
    value = table_json(LINEAGE, SITES[1:2])
    assert value["counts"] == {"actions": 5, "sites": 3, "kernels": 3}
    assert value["unperformed"] == ["view"]
    (site,) = value["sites"]
    assert (site["id"], site["phase"], site["kernel"]) == (1, "call", "main_dispatch_0_matmul")
    assert site["parts"] == ["linear_part", "mul_part"]
    assert site["actions"][0] == {
        "id": 0,
        "name": "linear",
        "op": "aten.linear.default",
        "module": "mlp.0",
        "file": "/me/net/model.py",
        "line": 12,
        "types": ["f32[8]"],
        "tags": [],
    }
    assert site["tags"] == []


def test_fates_and_tags() -> None:
    fates = [
        Fate("dispatched", (1,), "iree:dispatch-creation"),
        Fate("merged", (1,), "iree:import", 0),
        Fate("folded", (1, 2), "iree:global-optimization"),
        Fate("view", (2,), "iree:import"),
        Fate("dead", (), "decompose"),
    ]
    sites = [SITES[0], Site(1, "main_dispatch_0_matmul", "call", (0,), (0,))]
    groups = [Group("attention@0", "block", (1, 2))]
    lineage = Lineage(ACTIONS, sites, (), fates, groups=groups, tags={0: frozenset({"hot", "audit:pii"})})
    assert table(lineage, sites) == textwrap.dedent("""\
        5 actions, 2 sites (1 per call, 1 at load), 2 kernels

        site 0  init  init_dispatch_0
          (no action of the model)

        site 1  call  main_dispatch_0_matmul
          aten.linear  linear  mlp.0  model.py:12
          tags: audit:pii, hot

        4 actions are performed by no site:
          dead    decompose                 softmax
          folded  iree:global-optimization  mul_1
          merged  iree:import               mul
          view    iree:import               view
        """)
    assert fates_text(lineage, ACTIONS) == textwrap.dedent("""\
        linear (aten.linear)
          performed by site 1
          tags: audit:pii, hot
        mul (aten.mul.Tensor)
          merged: the same value as linear, of site 1; decided by iree:import
          groups: attention@0
        mul_1 (aten.mul.Tensor)
          folded into a constant, read by sites 1, 2; decided by iree:global-optimization
          groups: attention@0
        view (aten.view)
          a view: site 2 indexes by it; decided by iree:import
        softmax (aten.softmax.int)
          dead: no result needs it; decided by decompose
        """)
    assert fates_json(lineage, ACTIONS[1:2]) == [
        {"action": "mul", "kind": "merged", "sites": [1], "decided_by": "iree:import", "twin": "linear"}
    ]


def test_unperformed() -> None:
    assert [a.name for a in unperformed(LINEAGE)] == ["view"]


names = st.text(max_size=60)
frames = st.builds(Frame, names, st.integers(0, 10**6), names, st.booleans())


@given(st.lists(st.tuples(names, names, names, st.lists(frames, max_size=2)), max_size=30), st.integers(0, 40), names)
def test_stays_within_its_width(rows: list[tuple[str, str, str, list[Frame]]], first: int, kernel: str) -> None:
    actions = [Action(i, n, op, m, tuple(fs), ()) for i, (n, op, m, fs) in enumerate(rows)]
    sites = [Site(0, kernel, "call", tuple(range(min(first, len(actions)), len(actions))))]
    text = table(Lineage(actions, sites), sites)
    lines = text.split("\n")
    assert all(len(line) <= 110 and (line.isprintable() or not line) for line in lines)
    assert lines == [*text.splitlines(), ""]
