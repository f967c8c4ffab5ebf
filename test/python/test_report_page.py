"""What a reader does with a report, in a browser."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import SCREENSHOTS, browser
from lineages import large
from small_report import SOURCE, small

from covan_mlir.reporting import report, saved


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
