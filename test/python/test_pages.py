"""Pages of docs whose snippets are one program: each runs, and prints what stands below it."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from covan_mlir.tools import cli

DOCS = Path(__file__).resolve().parents[2] / "docs"
BLOCK = re.compile(r"^```([\w ]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FIGURE = re.compile(r"(?<![\w.:\[])\d[\d,]*(\\\.\d+)?(e(\\\+|\\-)\d+)?(?![\w\]])|(?<=md:)\d+")
"""In an escaped pattern: a number that stands by itself, not in a name, a type or a line's number; a line of a page."""
MEASURED = re.compile(r"(?<=md:)\d+|(?<=py:)\d+|\b(True|False)\b")
"""What else may be another where times decide: which line is the longest, and whether it is longer."""
KERNEL = re.compile(r"\b(main_dispatch|fred)_\w+")
FILE = re.compile(r"# (\w+\.py)\n")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.mark.parametrize("page", ["attaching.md", "tutorial.md"])
def test_snippets_print_what_the_page_shows(page: str, folder: Path) -> None:
    """A block that starts with ``# name.py`` is that file. ``...`` in what is printed is anything; so are
    numbers, names of kernels and widths of columns where a block is called ``text figures``, and numbers, lines and
    truth values where it is ``text measured``."""
    text = (DOCS / page).read_text()
    scope: dict[str, Any] = {"__name__": "__main__"}
    printed = ""
    shown = 0
    for match in BLOCK.finditer(text):
        kind, body = match.groups()
        if kind == "python" and (named := FILE.match(body)):
            (folder / named[1]).write_text(body)
            sys.modules.pop(Path(named[1]).stem, None)
        elif kind in ("python", "sh"):
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                if kind == "python":
                    line = text.count("\n", 0, match.start()) + 1  # so that frames name lines of the page
                    exec(compile("\n" * line + body, str(DOCS / page), "exec"), scope)
                else:
                    for command in body.splitlines():
                        assert cli.main(shlex.split(command)[1:]) == 0, command
            printed = out.getvalue()
        elif kind.startswith("text"):
            shown += 1
            pattern = ".*".join(re.escape(piece) for piece in body.strip().split("..."))
            if kind == "text figures":
                pattern = KERNEL.sub(r"\\w+", FIGURE.sub(r"[-+\\d.,e]+", pattern))
                pattern = re.sub(r"(\\ )+", r"\\s+", pattern)
            if kind == "text measured":
                pattern = MEASURED.sub(r"\\w+", FIGURE.sub(r"[-+\\d.,e]+", pattern))
            assert re.fullmatch(pattern, printed.strip(), re.DOTALL), f"{page} shows\n{body}\nbut it is\n{printed}"
    assert shown >= 5
