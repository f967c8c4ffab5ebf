"""The page about tuning, in a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from browser import browser

from covan_mlir.tuning import page
from covan_mlir.tuning.report import Row, Tuning

PEAK, BANDWIDTH = 1e11, 1e10


def row(name: str, seconds: float, flops: float, best: float) -> Row:
    curve = ((0.5, 12, (1 + best) / 2), (1.5, 24, best))
    return Row(name, f"<b>{name}</b>", 2, "product", seconds, 24, 0, 300, best, "product {}", flops, 1e6, curve)


def tuning() -> Tuning:
    rows = (row("small", 1e-3, 0.0, 0.5), row("large", 4e-3, 1e8, 0.8))
    return Tuning(rows, {"odd": "it has sizes"}, 9e-3, 0.75, 0.75, False, "records", PEAK, BANDWIDTH)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path: Path = tmp_path_factory.mktemp("page") / "tuning.html"
    page.write(path, {"</script><i>model": tuning()})
    with browser() as driver:
        driver.get(path.as_uri())
        yield driver
        assert [row for row in driver.get_log("browser") if row["level"] == "SEVERE"] == []


def texts(driver: Any, selector: str) -> list[str]:
    script = "return [...document.querySelectorAll(arguments[0])].map(node => node.textContent)"
    answer: list[str] = driver.execute_script(script, selector)
    return answer


def test_kernels_stand_by_what_a_call_spends_in_them(shown: Any) -> None:
    assert texts(shown, "h1") == ["</script><i>model"]
    assert "1.333 times as fast" in texts(shown, "section > p")[0]
    assert texts(shown, "tbody td:first-child") == ["<b>large</b>", "<b>small</b>"], "names are text"
    # The best is 0.8 of 4 ms; the roofline has 1e8 operations at 1e11 a second, and else 1e6 bytes at 1e10 a second.
    assert texts(shown, "tbody td.number")[:3] == ["4.000", "3.200", "1.000"]
    assert texts(shown, "tbody td.number")[5:8] == ["1.000", "0.5000", "0.1000"]
    assert "odd was not tuned: it has sizes" in texts(shown, "section > p")


def test_a_curve_falls_to_the_best(shown: Any) -> None:
    box = "const b = document.querySelectorAll('.curve')[arguments[0]].getBBox(); return [b.width, b.height]"
    (wide, high), (_, higher) = (shown.execute_script(box, number) for number in (0, 1))
    assert wide == pytest.approx(212)
    assert (high, higher) == (pytest.approx(0.2 * 52), pytest.approx(0.5 * 52))


def test_the_roofline_has_a_point_before_and_after(shown: Any) -> None:
    place = "const dot = document.querySelector(arguments[0]); return [dot.cx.baseVal.value, dot.cy.baseVal.value]"
    places = [shown.execute_script(place, f"circle.{name}") for name in ("default", "best")]
    assert places[0][0] == places[1][0]
    assert places[0][1] > places[1][1], "what is faster is higher"
    assert len(texts(shown, "circle")) == 2, "what has no operations has no place there"
    roof = shown.execute_script("return document.querySelector('.roofline .roof').getAttribute('d')")
    # 100 operations a byte are beyond the ridge: the points are right of it.
    assert float(roof.split("L")[1].split()[0]) < places[0][0]


def test_a_kernel_is_lit_where_it_stands(shown: Any) -> None:
    shown.execute_script("document.querySelector('tbody tr').focus()")
    lit = "return [...document.querySelectorAll('[data-lit]')].map(node => node.localName).sort()"
    assert shown.execute_script(lit) == ["circle", "circle", "tr"]
