"""What a part's operator is called with, as text: enough to run it again, or to tell two calls apart.

The text is JSON, ``[[argument, ...], [[name, argument], ...]]``. What JSON lacks are objects::

    {"p": 12}                                    value of a part
    {"a": 0, "of": "f32[8]"}                     argument of the program, and its type
    {"w": "fc.weight", "of": "f32[4, 8]"}        a weight, and its type
    {"t": "float32"}                             a constant of torch
    {"f": "inf"}                                 a float that is not finite
    {"d": "cpu"}                                 a device
    {"s": [0, 4, 1]}                             a slice
    {"r": "f32[8]", "like": {"a": 0}}            a value of which only the type is read; if it is no part's, which
    {"r": "..."}                                 anything else, by its repr
    {"n": {"p": 12}}                             what a value that goes round in a loop is in the next iteration

Written by `covan_mlir.frontend.actions`. Nothing here needs torch but `decode`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

Operand = tuple[str, int | str]
"""A value of the source graph: ``("p", 12)``, ``("a", 0)`` or ``("w", "fc.weight")``."""

_VALUES = ("p", "a", "w")


def encode(args: Any, kwargs: Mapping[str, Any], plain: Callable[[Any], Any]) -> str:
    """The text; ``plain`` gives the JSON form of whatever is no list, string, number or None."""

    def value(item: Any) -> Any:
        if item is None or type(item) in (bool, int, str):
            return item
        return [value(inner) for inner in item] if isinstance(item, list | tuple) else plain(item)

    call = [[value(item) for item in args], [[name, value(item)] for name, item in sorted(kwargs.items())]]
    return json.dumps(call, separators=(",", ":"), allow_nan=False)


def extended(text: str, behind: Sequence[Any]) -> str:
    """The text of a call with more arguments behind the others, in their JSON form."""
    positional, named = json.loads(text)
    return json.dumps([[*positional, *behind], named], separators=(",", ":"), allow_nan=False)


def operands(text: str) -> list[Operand]:
    """Values of the graph among the arguments, in order, repetitions included."""
    return list(_read(text))


@lru_cache(maxsize=1 << 16)
def _read(text: str) -> tuple[Operand, ...]:
    return tuple(_operands(json.loads(text)))


def numbers(text: str) -> int:
    """How many arguments are numbers other than 0 and 1."""
    positional, named = json.loads(text)
    given = [*positional, *(item for _, item in named)]
    return sum(isinstance(item, int | float) and item not in (0, 1) for item in given)


def operand_types(text: str, *, asked: bool = False) -> dict[Operand, str]:
    """Types of the arguments and weights among the operands; those of parts are theirs.

    Args:
        asked: also of those of which only the type is read.
    """
    types: dict[Operand, str] = {}
    stack = [json.loads(text)]
    while stack:
        item = stack.pop()
        if isinstance(item, list):
            stack += item
        elif isinstance(item, dict) and "of" in item:
            kind, name = next(iter(item.items()))
            types[kind, name] = item["of"]
        elif isinstance(item, dict) and asked and "like" in item:
            kind, name = next(iter(item["like"].items()))
            types[kind, name] = item["r"]
    return types


def signature(text: str) -> str:
    """The arguments with the graph's values blanked: what two calls on equal values may still differ in."""
    return json.dumps(_blank(json.loads(text)), separators=(",", ":"))


def _blank(item: Any) -> Any:
    if isinstance(item, list):
        return [_blank(inner) for inner in item]
    if isinstance(item, dict):
        return {} if not item.keys().isdisjoint(_VALUES) else {key: item[key] for key in item if key != "like"}
    return item


def decode(
    text: str, values: Mapping[Operand, Any], known_by_text: Callable[[str], Any] | None = None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """``(args, kwargs)`` to call the operator with.

    Args:
        known_by_text: gives an argument of which only the text is known: of a tensor whose elements are not read, its
            type.

    Raises:
        ValueError: of some argument only the text is known.
    """
    args, kwargs = json.loads(text)
    return (
        tuple(_real(item, values, known_by_text) for item in args),
        {name: _real(item, values, known_by_text) for name, item in kwargs},
    )


def _real(item: Any, values: Mapping[Operand, Any], known_by_text: Callable[[str], Any] | None) -> Any:
    """Not within `decode`: a function there that calls itself is a cycle, which keeps the values until collected."""
    import torch

    if isinstance(item, list):
        return [_real(inner, values, known_by_text) for inner in item]
    if not isinstance(item, dict):
        return item
    kind, held = next(iter(item.items()))
    match kind:
        case "p" | "a" | "w":
            return values[kind, held]
        case "f":
            return float(held)
        case "t":
            return getattr(torch, held)
        case "d":
            return torch.device(held)
        case "s":
            return slice(*(_real(inner, values, known_by_text) for inner in held))
        case "r" if known_by_text is not None:
            return known_by_text(held)
    raise ValueError(f"of an argument only the text is known: {held}")


def _operands(item: Any) -> Iterator[Operand]:
    if isinstance(item, list):
        for inner in item:
            yield from _operands(inner)
    elif isinstance(item, dict):
        for kind, held in item.items():
            if kind in _VALUES:
                yield kind, held
