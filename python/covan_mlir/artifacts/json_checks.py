"""Checks of JSON values that come from files: small ones, and how to put them together.

Nothing is taken on trust: a value of the wrong kind, an index out of range or a key too many is a `SchemaError` here
and not a surprise in the code that uses it.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import Any, NoReturn

from covan_mlir.errors import CovanError


class SchemaError(Exception):
    """A JSON value does not have the form that the format demands; the message says where."""


Check = Callable[[Any, str], None]


def dumps(value: Any, *, sort_keys: bool = False) -> bytes:
    """JSON without non-finite numbers.

    Raises:
        SchemaError: the value is no JSON.
    """
    try:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"), sort_keys=sort_keys)
    except (TypeError, ValueError, RecursionError) as error:
        raise SchemaError(str(error)) from error
    return text.encode("ascii")


def read(path: str | os.PathLike[str], what: str, raised: type[CovanError]) -> Any:
    """The JSON value in a file that a user names.

    Args:
        what: the file should hold, for the message: ``profile``.
        raised: if it cannot be read or is no JSON.
    """
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise raised(f"{path}: cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise raised(f"{path} is no {what}: it is not JSON") from error


def loads(data: bytes) -> Any:
    """The value of a JSON text without non-finite numbers.

    Raises:
        SchemaError: the text is no such JSON.
    """
    try:
        return json.loads(data, parse_constant=_not_finite, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"not JSON: {error}") from error


def _not_finite(text: str) -> NoReturn:
    raise ValueError(f"{text} is no finite number")


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _not_finite(text)


def fail(where: str, problem: str) -> NoReturn:
    """Raises `SchemaError`."""
    raise SchemaError(f"{where} {problem}")


def exactly(*kinds: type) -> Check:
    """Of these types and no subclass: ``True`` is no size."""

    def check(value: Any, where: str) -> None:
        if type(value) not in kinds:
            fail(where, f"is {short(value)}, not {' or '.join(kind.__name__ for kind in kinds)}")

    return check


def natural(value: Any, where: str) -> None:
    """A whole number that is not negative."""
    if type(value) is not int or value < 0:
        fail(where, f"is {short(value)}, not a number ≥ 0")


def one_of(*values: str) -> Check:
    """One of these texts."""

    def check(value: Any, where: str) -> None:
        if type(value) is not str or value not in values:
            fail(where, f"is {short(value)}, not one of {', '.join(values)}")

    return check


def below(limit: int) -> Check:
    """An index below ``limit``."""

    def check(value: Any, where: str) -> None:
        if type(value) is not int or not 0 <= value < limit:
            fail(where, f"is {short(value)}, not an index below {limit}")

    return check


def among(known: Set[int], what: str) -> Check:
    """An index of ``what``."""

    def check(value: Any, where: str) -> None:
        if type(value) is not int or value not in known:
            fail(where, f"is {short(value)}, not the index of {what}")

    return check


def optional(inner: Check) -> Check:
    """Null, or what ``inner`` takes."""

    def check(value: Any, where: str) -> None:
        if value is not None:
            inner(value, where)

    return check


def items(inner: Check) -> Check:
    """A list of what ``inner`` takes."""

    def check(value: Any, where: str) -> None:
        if type(value) not in (list, tuple):
            fail(where, f"is {short(value)}, not a list")
        for index, item in enumerate(value):
            inner(item, f"{where}[{index}]" if index < 10 else f"{where}[…]")  # index strings are slow to make

    return check


def row(*columns: Check) -> Check:
    """A list with one item for each of ``columns``."""

    def check(value: Any, where: str) -> None:
        if type(value) not in (list, tuple) or len(value) != len(columns):
            fail(where, f"is {short(value)}, not a list of {len(columns)}")
        for inner, item in zip(columns, value, strict=True):
            inner(item, where)

    return check


def mapping(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    """An object with these keys, and no others."""
    optional = optional or {}

    def check(value: Any, where: str) -> None:
        if not isinstance(value, Mapping):
            fail(where, f"is {short(value)}, not an object")
        if missing := required.keys() - value.keys():
            fail(where, f"has no {', '.join(sorted(missing))}")
        if strange := value.keys() - required.keys() - optional.keys():
            fail(where, f"has the unknown key {short(sorted(map(str, strange))[0])}")
        for key, item in value.items():
            (required.get(key) or optional[key])(item, f"{where}.{key}")

    return check


def map_of(inner: Check) -> Check:
    """An object with any keys."""

    def check(value: Any, where: str) -> None:
        if not isinstance(value, Mapping):
            fail(where, f"is {short(value)}, not an object")
        for key, item in value.items():
            text(key, f"a key of {where}")
            inner(item, f"{where}.{key}")

    return check


def anything(value: Any, where: str) -> None:
    """JSON whose meaning is not the format's."""


def short(value: Any) -> str:
    """A value for a message."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


text = exactly(str)
integer = exactly(int)
boolean = exactly(bool)


def form(value: Mapping[str, Any], number: int, where: str) -> None:
    """Raises `SchemaError` unless a value says that it has the format ``number``."""
    if value["format"] != number:
        fail(where, f"has the format {value['format']}, not {number}")
