"""The example notebooks run, and what they show is there in a browser; what objects show is text, whatever it holds."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import nbformat
import pytest
from browser import SCREENSHOTS, browser
from hypothesis import given
from hypothesis import strategies as st
from limits import HANG
from nbclient import NotebookClient
from nbconvert import HTMLExporter
from small_report import small

from covan_mlir.checking.verdict import Check, Counterexample, Verification
from covan_mlir.support import fragments

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


class _Elements(HTMLParser):
    """Elements, attributes and text of a fragment."""

    def __init__(self, fragment: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(fragment)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.text(max_size=40) | st.sampled_from(["<script>alert(1)</script>", '"><img src=x onerror=y>', "\ud800"]))
def test_nothing_that_a_model_is_called_becomes_an_element(name: str) -> None:
    cell = fragments.Cell(name, bar=0.5, title=name)
    pieces = [fragments.paragraph(name), fragments.table((name,), [[cell]], name), fragments.folded(name, "x")]
    page = _Elements(fragments.whole("test", pieces))
    assert page.tags <= {"div", "b", "table", "caption", "thead", "tbody", "tr", "th", "td", "details", "summary"}
    assert page.attributes <= {"class", "style", "scope", "title", "open"}
    page.text.encode()  # no lone surrogates: a notebook's file is UTF-8


def test_long_tables_say_what_they_leave_out() -> None:
    shown = _Elements(fragments.table(("n",), [[str(i)] for i in range(fragments.SHOWN + 5)])).text
    assert f"{fragments.SHOWN - 1}and 5 more rows" in shown


def test_a_verdict_shows_where_it_does_not_hold() -> None:
    example = Counterexample("program", "x < y", 3, ("softmax",), "main_dispatch_3")
    verdict = Verification((Check("program", "no", 1, 2, (example,)), Check("fates", "incomplete", missing=("why",))))
    shown = _Elements(verdict._repr_html_()).text
    assert "no: the lineage does not hold" in shown
    assert str(example) in shown
    assert "fateswhy" in shown


def test_a_lineage_shows_sites_and_what_none_performs() -> None:
    shown = _Elements(small("model.py")._repr_html_()).text
    assert "softmax model.py:6" in shown
    assert "performed by no site" in shown


@pytest.fixture(scope="module", params=["speed_up", "audit", "debug"])
def executed(request: pytest.FixtureRequest) -> Any:
    """A notebook that has run, in a kernel of its own."""
    notebook = nbformat.read(EXAMPLES / f"{request.param}.ipynb", as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "notebooks are kept without what they print"
    resources = {"metadata": {"path": str(EXAMPLES)}}
    NotebookClient(notebook, timeout=HANG, kernel_name="python3", resources=resources).execute()
    return request.param, notebook


SHOWS = {
    "speed_up": {"executable": "Executable for cpu", "profile": "tokenizer.py:"},
    "audit": {"lineage": "audit:attention", "verification": "yes: the lineage holds"},
    "debug": {"comparison": "is the first that is beyond tolerance"},
}


def test_notebooks_run_and_show_what_they_tell(executed: Any, tmp_path: Path) -> None:
    name, notebook = executed
    exporter = HTMLExporter(mathjax_url="", require_js_url="", jquery_url="", mermaid_js_url="")
    page, _ = exporter.from_notebook_node(notebook)
    (tmp_path / f"{name}.html").write_text(page, encoding="utf-8")
    with browser() as driver:
        driver.get((tmp_path / f"{name}.html").as_uri())
        for kind, told in SHOWS[name].items():
            element = driver.find_element("css selector", f".covan-{kind}")
            assert element.is_displayed()
            assert told in element.text
            for row in element.find_elements("css selector", "table tbody tr")[:3]:
                assert row.size["height"] > 0 or element.find_elements("tag name", "details")
        for details in driver.find_elements("css selector", ".covan details"):
            content = details.find_element("xpath", "./*[2]")
            assert not content.is_displayed() or details.get_attribute("open") is not None
            if details.is_displayed():
                details.find_element("tag name", "summary").click()
                assert content.is_displayed()
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        driver.save_screenshot(str(SCREENSHOTS / f"notebook-{name}.png"))
    printed = "".join(output.get("text", "") for cell in notebook.cells for output in cell.get("outputs", ()))
    if name == "debug":  # the subtraction that was planted wrong is the first of the model
        line = next(i for i, t in enumerate(_source().splitlines(), 1) if "features[:, None] - self.codebook" in t)
        assert f"sub tokenizer.py:{line}" in printed
        assert re.search(r"aten.embedding.*12.*is no index", printed)


def _source() -> str:
    return (EXAMPLES / "models" / "tokenizer.py").read_text()
