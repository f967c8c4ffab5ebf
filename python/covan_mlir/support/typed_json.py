"""JSON that crosses files and processes, as types: what is read is decoded into them, strictly, or refused.

Objects are classes over `JsonObject`, lists with columns are ``NamedTuple``; types (`Natural`, ``Literal``, unions) say
what a value may be. What a type cannot say, such as an index that points at nothing, its reader checks and refuses
with `fail`.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, NoReturn, Self, TypeVar

import msgspec

from covan_mlir.errors import CovanError

T = TypeVar("T")


class SchemaError(Exception):
    """A JSON value does not have the form that the format demands; the message says where."""


class JsonObject(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A JSON object with the keys that a subclass names, and no others. Keys with a default may be missing."""

    def to_json(self) -> dict[str, Any]:
        """As JSON values, keys in order."""
        value: dict[str, Any] = msgspec.to_builtins(self)
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`.

        Raises:
            SchemaError: the value is of another form.
        """
        return convert(value, cls, cls.__name__)


class NonFinite(JsonObject, frozen=True):
    """A float that JSON has no number for."""

    float: str

    def __post_init__(self) -> None:
        if self.float not in ("inf", "-inf", "nan"):
            raise ValueError(f"{short(self.float)} is none of inf, -inf and nan")


Natural = Annotated[int, msgspec.Meta(ge=0)]
Number = int | float
Amount = Annotated[int, msgspec.Meta(ge=0)] | Annotated[float, msgspec.Meta(ge=0)]
"""A number ≥ 0: as an int where it was written as one, so that it is written again as it was."""
Sha256 = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
Scalar = str | int | float | bool | None
Constant = str | int | float | bool | NonFinite | None


def constant(value: Any) -> Any:
    """A Python scalar as a `Constant`: JSON has no infinity, models take -inf."""
    return NonFinite(str(value)) if isinstance(value, float) and not math.isfinite(value) else value


def scalar(value: Any) -> Any:
    """The inverse of `constant`."""
    return float(value.float) if isinstance(value, NonFinite) else value


def decode(data: bytes | str, kind: type[T], where: str = "") -> T:
    """The value of a JSON text, of type ``kind``.

    Args:
        where: the text comes from, for messages: ``signature.json``; empty where the caller says so.

    Raises:
        SchemaError: the text is no JSON, holds a number that is not finite, or a value of another type.
    """
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise _refusal(error, where) from error
    except (msgspec.DecodeError, UnicodeError):
        # It may still be JSON: msgspec takes no lone surrogates, which paths have that are no UTF-8.
        return convert(_loads(data, where), kind, where)
    except RecursionError as error:
        raise _refusal("it is nested too deeply", where) from error


def convert(value: Any, kind: type[T], where: str = "") -> T:
    """The same of JSON values that Python has already; tuples stand for lists, too.

    Raises:
        SchemaError: a value is of another type.
    """
    try:
        return msgspec.convert(value, kind)
    except (msgspec.ValidationError, UnicodeError) as error:  # lone surrogates, where a pattern is asked
        raise _refusal(error, where) from error
    except RecursionError as error:
        raise _refusal("it is nested too deeply", where) from error


def checked(value: T, where: str) -> T:
    """An object that this process put together, as its reader would see it: classes do not check what they are given.

    Raises:
        SchemaError: something in it is no JSON, or not of its type.
    """
    try:
        return convert(msgspec.to_builtins(value), type(value), where)
    except (TypeError, RecursionError) as error:
        raise _refusal(error, where) from error


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


def read(path: str | os.PathLike[str], raised: type[CovanError]) -> bytes:
    """The text in a file that a user names; ``raised`` if it cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise raised(f"{path}: cannot be read: {error.strerror or error}") from error


def fail(problem: str, where: str, path: str) -> NoReturn:
    """Raises `SchemaError`: the value at ``path`` (``$.sites[3].trace``) of ``where`` has a problem."""
    raise _refusal(f"{problem} - at `{path}`", where)


def _refusal(problem: object, where: str) -> SchemaError:
    return SchemaError(f"{where}: {problem}" if where else str(problem))


def repeated(names: Iterable[Any]) -> Any:
    """The first name that was there before; None: no name is there twice."""
    seen = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def short(value: Any) -> str:
    """A value for a message."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _loads(data: bytes | str, where: str) -> Any:
    try:
        return json.loads(data, parse_constant=_not_finite, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise _refusal(f"it is not JSON: {error}", where) from error


def _not_finite(text: str) -> NoReturn:
    raise ValueError(f"{text} is no finite number")


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _not_finite(text)
