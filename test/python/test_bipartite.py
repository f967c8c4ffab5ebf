"""The bipartite graph of actions and sites, read back by parsers that are not ours."""

from __future__ import annotations

import json
import re

import networkx
import pydot
import pytest
from artifacts import lineage as small_lineage
from hypothesis import given
from hypothesis import strategies as st

from covan_mlir.lineage import Lineage
from covan_mlir.provenance import bipartite
from covan_mlir.provenance.model import Action, Site


def graph(lineage: Lineage) -> pydot.Dot:
    parsed = pydot.graph_from_dot_data(bipartite.dot(lineage, lineage.actions))
    assert parsed is not None
    (dot_graph,) = parsed
    return dot_graph


def labels(parsed: pydot.Dot) -> dict[str, str]:
    """What Graphviz shows for each node: its escapes are resolved."""
    texts = {}
    for node in parsed.get_nodes():
        label = node.get("label")
        if label is not None:
            text = label[1:-1] if label.startswith('"') else label
            texts[node.get_name()] = re.sub(r"\\(.)", lambda m: "\n" if m[1] == "n" else m[1], text)
    return texts


def test_json_is_what_networkx_reads() -> None:
    lineage = small_lineage()
    value = json.loads(json.dumps(bipartite.graph_json(lineage, lineage.actions)))
    read = networkx.node_link_graph(value, edges="edges")
    assert read.nodes["action:0"]["name"] == "linear"
    assert read.nodes["action:1"]["fate"] == "view"
    assert read.nodes["site:0"]["tags"] == ["audit:pii", "hot"]
    assert read.edges["action:0", "site:0"]["relation"] == "performed"
    assert networkx.is_bipartite(read.to_undirected())


def test_only_what_was_asked_for() -> None:
    lineage = small_lineage()
    value = bipartite.graph_json(lineage, lineage.find("view"))
    assert [node["id"] for node in value["nodes"]] == ["action:1", "site:0"]
    assert bipartite.graph_json(Lineage(), ())["nodes"] == []


def test_dot() -> None:
    parsed = graph(small_lineage())
    assert labels(parsed) == {
        "action0": "linear\naten.linear\nmlp.0\naudit:pii, hot",
        "action1": "view\naten.view\nhot",
        "site0": "site 0\nmain_dispatch_0\naudit:pii, hot",
    }
    assert {(e.get_source(), e.get_destination(), e.get("style")) for e in parsed.get_edges()} == {
        ("action0", "site0", "solid"),
        ("action1", "site0", "dashed"),
    }


HOSTILE = [
    '"',
    '\\"',
    "\\",
    "\\n",
    "<b>",
    "<",
    "é\u2192",
    'a"]; evil [label="',
    "\x00\n\r",
    "node",
    "{|}",
    "\\\\",
    "//",
    "/*",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names(name: str) -> None:
    shows_as_named(name)


@given(st.text(min_size=1, max_size=40))
def test_any_name(name: str) -> None:
    shows_as_named(name)


def shows_as_named(name: str) -> None:
    lineage = Lineage([Action(0, name, "op", "", (), ())], [Site(0, "k", "call", (0,))])
    parsed = graph(lineage)
    shown = "".join(c if c.isprintable() else "?" for c in name)
    assert labels(parsed) == {"action0": f"{shown}\nop", "site0": "site 0\nk"}
    assert len(parsed.get_edges()) == 1
