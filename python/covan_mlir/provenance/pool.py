"""Values that repeat, stored once."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

V = TypeVar("V", bound=Hashable)


class Pool(Generic[V]):
    """Interns values: equal ones are stored once and named by position."""

    def __init__(self) -> None:
        self.values: list[V] = []
        self._index: dict[V, int] = {}

    def __call__(self, value: V) -> int:
        if value not in self._index:
            self._index[value] = len(self.values)
            self.values.append(value)
        return self._index[value]
