"""A browser for tests: Debian's chromium without a window, driven by selenium."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from limits import HANG

SCREENSHOTS = Path(__file__).resolve().parents[2] / "build" / "screenshots"


def need_chromium() -> tuple[str, str]:
    """Paths of chromium and its driver; skips the test where there is none."""
    pytest.importorskip("selenium", reason="selenium is not installed")
    paths = shutil.which("chromium"), shutil.which("chromedriver")
    if None in paths:
        pytest.skip("no chromium (Debian: apt-get install chromium chromium-driver)")
    return str(paths[0]), str(paths[1])


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """A selenium driver that reaches nothing but files."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    binary, driver = need_chromium()
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1400,950"):
        options.add_argument(argument)
    options.add_argument("--no-sandbox")  # tests may run as root, where the sandbox does not; the pages are our own
    options.timeouts = {"pageLoad": int(1000 * HANG), "script": int(1000 * HANG)}
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    chrome = _started(lambda: webdriver.Chrome(options=options, service=Service(driver)))
    try:
        yield chrome
    finally:
        chrome.quit()


def _started(start: Callable[[], Any]) -> Any:
    """Selenium gives the driver half a minute to start, and that the browser a minute: each of three times."""
    from selenium.common.exceptions import WebDriverException

    for _ in range(2):
        with contextlib.suppress(WebDriverException):
            return start()
    return start()
