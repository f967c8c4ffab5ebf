"""Searches with few questions: each is a compilation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

Answer = Literal["wrong", "right", "hidden"]
"""What observing one value says: it is wrong; it is right, and the result is still wrong; or it is right, and so is the
result, for observing it changed the program."""


@dataclass(frozen=True)
class Found:
    """Where a fault begins.

    Attributes:
        before: the last value that is right; None: none is known to be.
        first: the first that is wrong.
        hidden: values between the two that cannot be observed without hiding the fault.
        complete: whether the questions sufficed.
    """

    before: str | None
    first: str
    hidden: tuple[str, ...] = ()
    complete: bool = True


def first_wrong(values: Sequence[str], ask: Callable[[str], Answer | None], before: str | None = None) -> Found:
    """Find the first wrong one of values of which each is computed from those before it; the last is known to be wrong.

    Args:
        ask: about one value; None: no more questions.
        before: a value before all of these that is right.
    """
    low, high, hidden = -1, len(values) - 1, set[int]()
    while True:
        open_ = [index for index in range(low + 1, high) if index not in hidden]
        if not open_:
            break
        middle = open_[len(open_) // 2]
        answer = ask(values[middle])
        if answer is None:
            break
        if answer == "wrong":
            high = middle
        elif answer == "right":
            low = middle
        else:
            hidden.add(middle)
    left = range(low + 1, high)
    return Found(
        values[low] if low >= 0 else before,
        values[high],
        tuple(values[index] for index in left if index in hidden),
        all(index in hidden for index in left),
    )


def shortest_failing(count: int, fails: Callable[[int], bool]) -> int | None:
    """The least n for which ``fails(n)``, if what fails for n fails up to ``count``; None if that does not fail."""
    if not fails(count):
        return None
    low, high = 0, count
    while high - low > 1:
        middle = (low + high) // 2
        if fails(middle):
            high = middle
        else:
            low = middle
    return high
