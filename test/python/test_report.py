"""The report: what it holds, and what a reader does with it in a browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import dacite
import pytest
from artifacts import fusion, lineage
from browser import SCREENSHOTS, browser
from command_line import covan, fails
from hypothesis import given, settings
from hypothesis import strategies as st
from lineages import large
from model_explorer import graph_builder

from covan_mlir import InputError, Lineage
from covan_mlir.provenance.model import Action, Fate, Frame, Part, Site
from covan_mlir.reporting import report, saved
from covan_mlir.reporting.layout import layered
from covan_mlir.reporting.sources import listing
from covan_mlir.tools import cli

SOURCE = """import torch


def block(x, w):
    y = x @ w
    y = y.softmax(-1)
    return y.view(-1)


def forward(x, w):
    z = x + 1  # nobody needs it
    return block(x, w), block(x, w)
"""
# action: name, op, module, lines, inputs, fate
ACTIONS = (
    ("matmul", "aten.matmul.default", "block", (5, 12), (), Fate("dispatched", (0,), "iree:dispatch-creation")),
    ("softmax", "aten.softmax.int", "block", (6, 12), (0,), Fate("dispatched", (1,), "iree:dispatch-creation")),
    ("view", "aten.view.default", "block", (7, 12), (1,), Fate("view", (1,), "torch-to-linalg")),
    ("add", "aten.add.Tensor", "", (11,), (), Fate("dead", (), "decompose")),
    ("matmul_1", "aten.matmul.default", "block", (5, 12), (), Fate("merged", (0,), "iree:global-optimization", 0)),
)


def small(file: str) -> Lineage:
    """Five actions in two sites: one action viewed, one dead, one merged into another."""
    actions = [
        Action(
            i,
            name,
            op,
            module,
            tuple(Frame(file, line, "forward" if line > 9 else "block") for line in lines),
            ("f32[8, 8]",),
            (Part(i, i, f"{name}_part", op, inputs, ("f32[8, 8]",)),),
            inputs,
        )
        for i, (name, op, module, lines, inputs, _) in enumerate(ACTIONS)
    ]
    fates = [row[-1] for row in ACTIONS]
    return Lineage(
        actions,
        [
            Site(0, "main_dispatch_0", "call", (0,), (0,)),
            Site(1, "main_dispatch_1_softmax", "call", (1,), (1,), inputs=(0,), views=(2,)),
        ],
        fates=fates,
        part_fates=dict(enumerate(fates)),
        history=[
            ("import", {i: {"torch.aten.op": 1} for i in range(5)}),
            ("torch-to-linalg", {0: {"linalg.matmul": 1}}),
        ],
        tags={1: frozenset({"audit:pii"})},
        fusions=[fusion()],
    )


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


# --- in a browser


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with browser() as driver:
        yield driver


@pytest.fixture
def page(chromium: Any, tmp_path: Path) -> Any:
    """The small report, with times and errors."""
    (tmp_path / "model.py").write_text(SOURCE)
    whole = small(str(tmp_path / "model.py"))
    errors = {0: 1e-6, 1: 1e-3, 2: float("nan")}
    report.write(tmp_path / "out.html", whole, title="small", profile={0: 3e-3, 1: 1e-3}, comparison=errors)
    show(chromium, tmp_path / "out.html")
    yield chromium
    assert [row for row in chromium.get_log("browser") if row["level"] == "SEVERE"] == []


def show(driver: Any, path: Path) -> None:
    driver.get("about:blank")
    driver.get(path.as_uri())
    settle(driver)


def settle(driver: Any) -> None:
    """Until what was asked for is drawn."""
    driver.execute_async_script("const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done));")


def point(driver: Any, kind: str, index: int, *, click: bool) -> None:
    """Move the pointer to a node, and perhaps press."""
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.actions.action_builder import ActionBuilder

    x, y = driver.execute_script(f"return covan.graphs.{kind}.screen({index})")
    actions = ActionBuilder(driver)
    actions.pointer_action.move_to_location(round(x), round(y))
    actions.perform()
    if click:
        ActionChains(driver).click().perform()
    settle(driver)


def press(driver: Any, *keys: str) -> None:
    from selenium.webdriver import ActionChains

    ActionChains(driver).send_keys(*keys).perform()
    settle(driver)


def lines(driver: Any, kind: str) -> set[int]:
    """Source lines that have a class."""
    script = "return [...document.querySelectorAll(`#lines .row.${arguments[0]}`)].map((r) => r.firstChild.textContent)"
    return {int(text) for text in driver.execute_script(script, kind)}


def lit(driver: Any, kind: str) -> dict[int, bool]:
    """Nodes that are lit, and whether strongly: only those whose places on the canvas were drawn count."""
    script = """
    const graph = covan.graphs[arguments[0]], box = graph.box.getBoundingClientRect(), ratio = devicePixelRatio;
    const drawn = (id) => {
      const [x, y] = graph.screen(id);
      const [left, top] = [(x - box.left) * ratio, (y - box.top + 15 * graph.scale) * ratio];
      return graph.upper.getContext("2d").getImageData(left, top, 1, 1).data[3] === 255;  // the veil alone lets through
    };
    return [...(graph.lit ?? [])].filter(([id]) => drawn(id));
    """
    return dict(driver.execute_script(script, kind))


def details(driver: Any) -> str:
    text: str = driver.execute_script("return document.getElementById('details').innerText")
    return text


def test_clicking_an_action_lights_its_lines_and_sites(page: Any) -> None:
    point(page, "action", 1, click=True)
    assert (lines(page, "lit"), lines(page, "weak")) == ({6}, {12})
    assert lit(page, "action") == {1: True}
    assert lit(page, "site") == {1: True}
    text = details(page)
    assert "softmax" in text
    assert "Chain of passes" in text
    assert "one of" in text or "the only action of site 1" in text
    assert "1.00 ms" in text  # of its site
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    assert page.save_screenshot(str(SCREENSHOTS / "report.png"))


def test_clicking_a_kernel_lights_what_it_performs_and_views(page: Any) -> None:
    point(page, "site", 1, click=True)
    assert lit(page, "action") == {1: True, 2: False}
    assert (lines(page, "lit"), lines(page, "weak")) == ({6}, {7})
    page.execute_script("document.querySelector('[data-item=\"action:2\"]').click()")
    assert "view: only changes how kernels index; decided by torch-to-linalg" in details(page)


def test_hovering_is_for_the_moment_selecting_stays(page: Any) -> None:
    point(page, "site", 0, click=True)
    point(page, "site", 1, click=False)
    assert lit(page, "site") == {1: True}
    page.execute_script("covan.graphs.site.box.dispatchEvent(new PointerEvent('pointerleave'))")
    settle(page)
    assert lit(page, "site") == {0: True}


def test_clicking_a_line_lights_its_actions(page: Any) -> None:
    from selenium.webdriver.common.by import By

    row = next(r for r in page.find_elements(By.CSS_SELECTOR, "#lines .row.used") if r.text.startswith("5"))
    row.click()
    settle(page)
    assert lit(page, "action") == {0: True, 4: True}
    assert lit(page, "site") == {0: True}
    assert "3.00 ms" in details(page)


def test_searching_selects(page: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    press(page, "/", "fate:merged", Keys.ARROW_DOWN)
    assert page.execute_script("return document.querySelectorAll('#found [data-index]').length") == 1
    assert lit(page, "action") == {0: False, 4: True}  # what the mark is at is lit before it is chosen
    press(page, Keys.ENTER)
    assert "the value of matmul" in details(page)
    press(page, Keys.ESCAPE)
    press(page, "/")
    page.execute_script("document.getElementById('query').value = ''")
    press(page, "no such thing")
    assert "nothing is called so" in page.execute_script("return document.getElementById('found').innerText")


def test_keyboard_alone(page: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    order = []
    for _ in range(16):
        press(page, Keys.TAB)
        order.append(
            page.execute_script("const e = document.activeElement; return e.id || e.className || e.textContent")
        )
        if order[-1] == "graph":
            break
    assert order[:4] == ["query", "colours", "theme", "lines"]
    active = "return document.getElementById(document.activeElement.getAttribute('aria-activedescendant')).textContent"
    assert page.execute_script(active).startswith("matmul, aten.matmul")
    press(page, Keys.ARROW_RIGHT)  # to its reader
    assert page.execute_script(active).startswith("softmax,")
    assert lines(page, "lit") == {6}
    press(page, Keys.ENTER)
    status = "return document.getElementById('status').textContent"
    assert page.execute_script(status) == "softmax selected: 2 lines, 1 action, 1 site"
    press(page, Keys.ESCAPE)
    assert page.execute_script(status) == "Nothing is selected"
    assert "1 dead" in details(page)


def test_lines_by_keyboard(page: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    press(page, *[Keys.TAB] * 4)
    assert lit(page, "action") == {0: True, 4: True}
    press(page, Keys.ARROW_DOWN)  # from the first line with actions to the next
    assert lines(page, "active") == {6}
    assert lit(page, "action") == {1: True}
    press(page, Keys.ENTER)
    assert page.execute_script("return location.hash").startswith("#row:")


def test_colours_and_themes(page: Any) -> None:
    choose = """
    const field = document.getElementById(arguments[0]);
    field.value = arguments[1];
    field.dispatchEvent(new Event("change"));
    """
    colour = "return covan.graphs[arguments[0]].colour(arguments[1])"
    hot, none = (page.execute_script(f"return getComputedStyle(document.documentElement).getPropertyValue('--{n}')")
                 for n in ("hot", "none"))  # fmt: skip
    shown = "rgb(" + " ".join(str(int(hot[i : i + 2], 16)) for i in (1, 3, 5)) + ")"
    assert page.execute_script(colour, "site", 0) == shown  # times are given: they are shown first, the longest hot
    assert page.execute_script(colour, "action", 3) == none
    page.execute_script(choose, "colours", "error")
    assert page.execute_script(colour, "action", 1) == shown
    assert page.execute_script(colour, "action", 2) == shown  # nan
    assert "0.00100" in page.execute_script("return document.getElementById('lines').innerText")
    page.execute_script(choose, "colours", "tag")
    assert "audit:pii" in page.execute_script("return document.getElementById('legend').innerText")
    for theme, dark in (("dark", True), ("light", False)):
        page.execute_script(choose, "theme", theme)
        paper = page.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert (int(re.findall(r"\d+", paper)[0]) < 64) == dark
    page.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    )
    page.execute_script(choose, "theme", "")
    assert page.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(15, 19, 24)"
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_errors_that_are_allowed_are_cold(chromium: Any, tmp_path: Path) -> None:
    whole = small("/m.py")
    rows = [
        saved.ComparedAction(whole.actions[i], "agrees", saved.Excess(value))
        for i, value in enumerate((0.001, 0.01, 1.0))
    ]
    report.write(tmp_path / "out.html", whole, comparison=saved.SavedComparison(tuple(rows)))
    show(chromium, tmp_path / "out.html")
    shown = [
        int(re.findall(r"\d+", chromium.execute_script("return covan.graphs.action.colour(arguments[0])", i))[1])
        for i in range(3)
    ]
    cold, hot = (
        chromium.execute_script(f"return getComputedStyle(document.documentElement).getPropertyValue('--{name}')")
        for name in ("cold", "hot")
    )
    green = [int(colour[3:5], 16) for colour in (cold, hot)]  # falls from cold to hot
    assert green[0] > shown[0] > shown[1] > shown[2] == green[1]


def test_certificates_of_fused_kernels(page: Any) -> None:
    point(page, "site", 0, click=True)
    page.execute_script("document.querySelectorAll('details.certificate').forEach((one) => (one.open = true))")
    text = details(page)
    assert "kernel main_dispatch_0" in text
    assert "repair of l: proved" in text
    assert "a = b" in text
    assert "axiom exp(0) = 1" in text


def test_nothing_is_fetched(page: Any, tmp_path: Path) -> None:
    page.get_log("performance")
    show(page, tmp_path / "out.html")
    messages = [json.loads(row["message"])["message"] for row in page.get_log("performance")]
    asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert {url.partition(":")[0] for url in asked} <= {"file", "about"}
    assert len([url for url in asked if url.startswith("file")]) == 1


def test_nodes_are_drawn_and_not_elements_of_the_page(chromium: Any, tmp_path: Path) -> None:
    report.write(tmp_path / "big.html", large(5000))
    show(chromium, tmp_path / "big.html")
    assert chromium.execute_script("return document.querySelectorAll('*').length") < 1000
