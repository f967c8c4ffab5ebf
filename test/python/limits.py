"""How long tests wait, and how much of a sweep they do.

None asserts how long anything takes: what is about speed is in bench/.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from typing import Any

import pytest

HANG = 600.0
"""Seconds after which something is taken to hang, on a machine however busy."""

sweep = pytest.mark.skipif(
    os.environ.get("COVAN_SWEEP") != "1", reason="like those that are run (all of them: make sweep)"
)
"""What shows no more than others do, somewhere else."""


def part(values: Iterable[Any], kept: Collection[Any]) -> list[Any]:
    """Parameters of a test, those of several names as tuples: in every run those that are ``kept``, in a sweep all."""
    rest = ((value, value if isinstance(value, tuple) else (value,)) for value in values)
    return [value if value in kept else pytest.param(*given, marks=sweep) for value, given in rest]
