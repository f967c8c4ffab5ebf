"""Traces against a ground truth: change an operation, and see which machine code changed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# In a process of its own: the oracle compiles where it runs, and the compiler does not give its memory back.
PROGRAM = """
import sys
import torch
from mutation import Verdict, settle, verdicts
from zoo import build

module, args, kwargs = build(sys.argv[1])
program = torch.export.export(settle(module), args, kwargs, strict=False)
found = [v for v in verdicts(program, int(sys.argv[2])) if isinstance(v, Verdict)]
right = sum(len(v.truth & v.claimed) for v in found)
print(len(found), right, sum(len(v.claimed) for v in found), sum(len(v.truth) for v in found))
"""


@pytest.mark.parametrize(("name", "limit"), [("two_blocks", 7), ("cnn", 7)])
def test_sites_that_change_are_the_sites_of_the_trace(name: str, limit: int) -> None:
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, name, str(limit)],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=True,
    )
    count, right, claimed, true = map(int, result.stdout.split()[-4:])
    assert count >= limit // 2
    assert right >= 0.95 * claimed
    assert right >= 0.95 * true
