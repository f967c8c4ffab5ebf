"""What a conversion gives beside the ONNX model, as it crosses from one process to another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class Failure:
    """A node that tf2onnx does not convert, and why."""

    op: str
    name: str
    why: str


@dataclass(frozen=True)
class Structure:
    """How results are put together.

    Attributes:
        kind: ``leaf`` is one tensor.
        keys: of a ``dict``, as many as ``items``.
    """

    kind: Literal["leaf", "none", "list", "tuple", "dict"]
    items: tuple[Structure, ...] = ()
    keys: tuple[str, ...] = ()

    def pack(self, results: Sequence[Any]) -> Any:
        """Results, in the order of the leaves, put together."""
        return self._packed(iter(results))

    def _packed(self, results: Iterator[Any]) -> Any:
        if self.kind == "leaf":
            return next(results)
        if self.kind == "none":
            return None
        items = [item._packed(results) for item in self.items]
        if self.kind == "dict":
            return dict(zip(self.keys, items, strict=True))
        return items if self.kind == "list" else tuple(items)


@dataclass(frozen=True)
class Converted:
    """What is told of a conversion.

    Attributes:
        failures: nodes that were not converted: with any, the ONNX model is not the model.
        results: how its results are put together.
    """

    failures: tuple[Failure, ...]
    results: Structure


@dataclass(frozen=True)
class Array:
    """A tensor whose bytes are in a file of their own."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Question:
    """What a process is to do with a file.

    Attributes:
        arguments: of a call whose results are asked for; None: the file is to be converted.
    """

    path: str
    kind: str
    arguments: tuple[Array, ...] | None = None


@dataclass(frozen=True)
class Answer:
    """What came of it: one line of an error, or one of the two others."""

    error: str = ""
    converted: Converted | None = None
    results: tuple[Array, ...] = ()
