"""How long tests wait, and how much of a sweep they do.

None asserts how long anything takes: what is about speed is in bench/.
"""

from __future__ import annotations

import os
import random
from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeVar

import pytest

T = TypeVar("T")

HANG = 600.0
"""Seconds after which something is taken to hang, on a machine however busy."""

SWEEP = os.environ.get("COVAN_SWEEP") == "1"

sweep = pytest.mark.skipif(not SWEEP, reason="like those that are run (all of them: make sweep)")
"""What shows no more than others do, somewhere else."""


def many(usual: int, swept: int) -> int:
    """How many of what is alike: ``usual`` in every run, ``swept`` in a sweep."""
    return swept if SWEEP else usual


def part(values: Iterable[Any], kept: Collection[Any]) -> list[Any]:
    """Parameters of a test, those of several names as tuples: in every run those that are ``kept``, in a sweep all."""
    rest = ((value, value if isinstance(value, tuple) else (value,)) for value in values)
    return [value if value in kept else pytest.param(*given, marks=sweep) for value, given in rest]


def some(values: Sequence[T], count: int) -> Sequence[T]:
    """In a sweep all, in every run ``count`` of them, the same each time."""
    return values if SWEEP or len(values) <= count else random.Random(0).sample(values, count)
