"""What a report holds, how it is laid out, and its command."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import dacite
import pytest
from artifacts import lineage
from command_line import covan, fails
from hypothesis import given, settings
from hypothesis import strategies as st
from lineages import large
from model_explorer import graph_builder
from small_report import SOURCE, small

from covan_mlir import InputError, Lineage
from covan_mlir.provenance.model import Action, Fate, Frame
from covan_mlir.reporting import report
from covan_mlir.reporting.layout import layered
from covan_mlir.reporting.sources import listing
from covan_mlir.tools import cli


def content(page: str) -> Any:
    """What a page holds."""
    script = re.search(r'<script type="application/json" id="content">(.*?)</script>', page, re.DOTALL)
    assert script is not None
    return json.loads(script[1])


# --- layout


@settings(max_examples=60)
@given(st.lists(st.lists(st.integers(0, 1 << 16), max_size=4), max_size=60))
def test_edges_point_down_and_nodes_are_apart(rows: list[list[int]]) -> None:
    inputs = [[i % node for i in row] if node else [] for node, row in enumerate(rows)]
    layout = layered(inputs)
    assert all(layout.layer[i] < layout.layer[node] for node, row in enumerate(inputs) for i in row)
    for layer in set(layout.layer):
        places = sorted(x for x, at in zip(layout.x, layout.layer, strict=True) if at == layer)
        assert all(b - a > 0.999 for a, b in pairwise(places))


def test_a_chain_is_straight_and_what_skips_it_runs_beside() -> None:
    layout = layered([[], [0], [1], [2], [3, 0]])
    assert max(layout.x) - min(layout.x) < 0.1  # widths of a node
    assert layout.layer == (0, 1, 2, 3, 4)
    assert all(abs(x - layout.x[0]) > 0.5 for x in layout.lanes[0])  # half of a node's width


def test_a_cycle_is_laid_out() -> None:
    assert sorted(layered([[2], [0], [1]]).layer) == [0, 1, 2]


# --- source lines


def test_lines_are_shown_with_some_around(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(SOURCE)
    source_listing = listing(small(str(tmp_path / "model.py")).actions)
    assert [row.line for row in source_listing.rows] == [0, -1, *range(2, 14)]
    row = source_listing.rows[source_listing.index[str(tmp_path / "model.py"), 6]]
    assert row.text == "    y = y.softmax(-1)"


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("gone.py", None, "No such file"),
        ("secret.txt", SOURCE, "only .py files"),
        ("short.py", "x = 1\n", "2 lines now, and had more"),
        ("huge.py", " " * (5 << 20), "larger than"),
    ],
)
def test_lines_that_cannot_be_shown_are_stubs(tmp_path: Path, name: str, text: str | None, why: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    source_listing = listing(small(str(tmp_path / name)).actions)
    assert why in source_listing.files[0].note
    assert {row.text for row in source_listing.rows if row.line > 0} == {"in block", "in forward"}


def test_files_changed_since_are_marked(tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(SOURCE)
    when = path.stat().st_mtime
    actions = small(str(path)).actions
    assert "changed" in listing(actions, written=when - 1).files[0].note
    assert listing(actions, written=when + 1).files[0].note == ""


# --- the page


def test_names_cannot_leave_the_data(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script><!--\u2028\udc80{{style}}"
    action = Action(0, evil, evil, evil, (Frame(f"/{evil}.py", 1, evil),), (evil,))
    page = report.page(Lineage([action], fates=[Fate("dead", (), evil)]), title=evil)
    assert page.count("<script") == 2
    assert content(page)["actions"][0]["name"] == evil


def test_page_fetches_nothing(tmp_path: Path) -> None:
    page = report.page(small("/nowhere.py"))
    assert "default-src 'none'" in page
    assert not re.search(r"\b(src|href)\s*=|@import|url\(|https?:", page)


def test_profiles_and_comparisons_of_other_programs_are_refused() -> None:
    with pytest.raises(InputError, match=r"the profile is of another program: it knows site 7, this one has 2 sites"):
        report.page(small("/m.py"), profile={7: 1.0})
    with pytest.raises(InputError, match=r"the comparison is of another program"):
        report.page(small("/m.py"), comparison={5: 1.0})
    with pytest.raises(InputError, match=r"gives site 0 a time of nan s"):
        report.page(small("/m.py"), profile={0: float("nan")})
    with pytest.raises(InputError, match="no lineage"):
        report.page(Lineage())


def test_every_node_of_a_large_graph_is_placed() -> None:
    value = content(report.page(large(1000)))
    assert len(value["source"]["x"]) == len(value["actions"]) == 1000


def test_report_command_needs_no_torch(stub: str, tmp_path: Path) -> None:
    before = "sys.modules['torch'] = sys.modules['iree'] = None"
    result = covan("report", stub, "-o", "out.html", cwd=tmp_path, before=before)
    assert result.returncode == 0, result.stderr
    value = content((tmp_path / "out.html").read_text())
    assert [action["name"] for action in value["actions"]] == ["linear", "view"]
    assert [site["kernel"] for site in value["sites"]] == ["main_dispatch_0"]


def test_report_command_refuses(stub: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "is the artifact itself" in fails(capsys, "report", stub, "-o", stub, code=2)[0]
    assert cli.main(["report", stub, "-o", f"{tmp_path}/a.html", "--target", "gpu"]) == 1
    assert "there is no program for 'gpu'; there is one for cpu" in capsys.readouterr().err
    (tmp_path / "p.json").write_text("{}")
    assert cli.main(["report", stub, "-o", f"{tmp_path}/a.html", "--profile", f"{tmp_path}/p.json"]) == 1
    assert "p.json is no profile" in capsys.readouterr().err
    assert not (tmp_path / "a.html").exists()


def test_saved_comparisons_colour_by_what_is_allowed(
    stub: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {"action": "linear", "op": "aten.linear.default", "status": "beyond", "excess": 12.5},
        {"action": "view", "op": "aten.view.default", "status": "beyond", "excess": "inf"},
    ]
    asked = ["report", stub, "-o", f"{tmp_path}/out.html", "--comparison", f"{tmp_path}/c.json"]
    (tmp_path / "c.json").write_text(json.dumps({"rows": rows}))
    assert cli.main(asked) == 0
    value = content((tmp_path / "out.html").read_text())
    assert (value["errors"], value["unit"]) == ([12.5, "inf"], "of what is allowed")
    for text, why in (
        (json.dumps({"rows": [{**rows[0], "action": "conv"}]}), "no aten.linear.default that is called 'conv'"),
        ('{"rows": [1]}', "is no comparison"),
        ('{"rows": [{}]}', "`$.rows[0]`"),
        ("[", "got `array`"),
        ("{", "it is not JSON"),
    ):
        (tmp_path / "c.json").write_text(text)
        assert cli.main(asked) == 1
        assert why in capsys.readouterr().err


# --- Model Explorer


def test_model_explorer_graphs() -> None:
    """The fields are those of ``GraphCollection`` in ai-edge-model-explorer's graph_builder, ids and edges agree."""
    collection = json.loads(json.dumps(small("/m.py").to_model_explorer()))
    assert set(collection) == {"label", "graphs", "graphSorting"}
    assert [graph["id"] for graph in collection["graphs"]] == ["source", "program"]
    fields = {"id", "label", "namespace", "attrs", "incomingEdges", "outputsMetadata", "style"}
    for graph in collection["graphs"]:
        ids = [node["id"] for node in graph["nodes"]]
        assert len(set(ids)) == len(ids)
        for node in graph["nodes"]:
            assert set(node) <= fields
            assert all(set(row) == {"key", "value"} and isinstance(row["value"], str) for row in node["attrs"])
            assert all(edge["sourceNodeId"] in ids for edge in node["incomingEdges"])
    softmax = collection["graphs"][0]["nodes"][1]
    assert (softmax["namespace"], softmax["incomingEdges"][0]["sourceNodeId"]) == ("block", "action:0")
    assert {"key": "sites", "value": "1 (main_dispatch_1_softmax)"} in softmax["attrs"]
    assert {"key": "indexes by", "value": "view"} in collection["graphs"][1]["nodes"][1]["attrs"]


def test_model_explorer_reads_the_graphs() -> None:
    """Into Model Explorer's own classes: a field that it does not know is an error."""
    graphs = dacite.from_dict(graph_builder.GraphCollection, lineage().to_model_explorer(), dacite.Config(strict=True))
    assert [len(graph.nodes) for graph in graphs.graphs] == [2, 1]
