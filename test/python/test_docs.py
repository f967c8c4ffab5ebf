"""What the documents show is what happens."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

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


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
