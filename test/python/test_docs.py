"""What the documents show is what happens."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from covan_mlir.tools import opt

ROOT = Path(__file__).resolve().parents[2]


def test_readme_example_prints_what_readme_says() -> None:
    readme = (ROOT / "README.md").read_text()
    program = re.search(r"```python\n(import torch.*?)```", readme, re.DOTALL)
    printed = re.search(r"```text\n(.*?)```", readme, re.DOTALL)
    assert program is not None
    assert printed is not None
    quickstart = ROOT / "examples" / "quickstart.py"
    assert quickstart.read_text() == program[1]
    result = subprocess.run([sys.executable, str(quickstart)], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == printed[1].strip()


def test_quick_names_tests_that_exist() -> None:
    """A name that is none ends ``make quick`` before its first test."""
    lines = [line.partition("#")[0].strip() for line in (ROOT / "test" / "quick.txt").read_text().splitlines()]
    for file, *names in (line.split("::") for line in lines if line):
        nodes = ast.walk(ast.parse((ROOT / file).read_text()))
        defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        assert {name.partition("[")[0] for name in names} <= defined, file


EXAMPLE = re.compile(r"```sh\n(covan-opt [^\n]*)\n```\n\n```(?:mlir|text)\n(.*?)```", re.DOTALL)
EXAMPLES = [
    (page.name, *example)
    for page in sorted((ROOT / "docs").glob("*.md"))
    for example in EXAMPLE.findall(page.read_text())
]


def test_pages_have_examples() -> None:
    assert {page for page, *_ in EXAMPLES} >= {"fused-reductions.md", "fred-dialect.md"}


@pytest.mark.parametrize(("command", "shown"), [example[1:] for example in EXAMPLES])
def test_examples_print_what_the_page_says(command: str, shown: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Line by line in this order; ``...`` in place of a line or of a part of one is anything."""
    arguments = shlex.split(command)[1:]
    assert opt.answer([str(ROOT / a) if a.startswith("examples/") else a for a in arguments]) == 0
    printed = "\n".join(line.strip() for text in capfd.readouterr() for line in text.splitlines())
    at = 0
    for line in shown.splitlines():
        pattern = ".*".join(re.escape(piece.strip()) for piece in line.strip().split("..."))
        occurrence = re.compile(pattern.replace("\\ ", r"\s+")).search(printed, at)
        assert occurrence is not None, line
        at = occurrence.end()


def test_the_template_that_is_shown_is_the_one_that_is_tested() -> None:
    page = (ROOT / "docs" / "extending.md").read_text()
    assert f"```python\n{(ROOT / 'test' / 'python' / 'example_template.py').read_text()}```" in page


def test_files_that_are_named_exist() -> None:
    """Whole paths in tables of what to touch; what stands for a name of one's own is in angle brackets or called so."""
    page = (ROOT / "docs" / "extending.md").read_text()
    paths = re.findall(r"`((?:lowering|passes|dialects|runtime|python|test)/[\w./-]+\.(?:py|mlir))`", page)
    assert len(paths) > 20
    assert [path for path in paths if "my_pass" not in path and not (ROOT / path).exists()] == []


def test_links_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
