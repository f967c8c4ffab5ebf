"""Options of passes as text, ``key=value key=value``, and back."""

import dataclasses
import re
import typing
from collections.abc import Callable
from typing import Any

from covan_mlir.passes.framework.interface import Pass
from covan_mlir.passes.framework.near import nearest


def option_name(field: str) -> str:
    """The option of a dataclass field: ``drop_table`` is written ``drop-table``."""
    return field.replace("_", "-")


def option_types(pass_class: type[Pass]) -> dict[str, Any]:
    """The options of a pass, by their names on the command line, and their types."""
    hints = typing.get_type_hints(pass_class)
    return {option_name(f.name): hints[f.name] for f in dataclasses.fields(typing.cast(Any, pass_class))}


def type_name(kind: Any) -> str:
    """How an option's type is called in messages: ``int``, ``bool``, ``str`` or ``tuple of int``."""
    arguments = typing.get_args(kind)
    return f"tuple of {arguments[0].__name__}" if arguments else str(kind.__name__)


def parse_value(kind: Any, text: str) -> Any:
    """``text`` as an ``int``, ``bool``, ``str`` or a tuple of these; tuples are ``1,2`` or ``{1,2}``.

    Raises:
        ValueError: it is none; the message says what was expected.
    """
    if typing.get_origin(kind) is tuple:
        inner = text[1:-1] if text[:1] + text[-1:] == "{}" else text
        return tuple(parse_value(typing.get_args(kind)[0], item.strip()) for item in inner.split(",") if item)
    if kind is bool:
        if text.lower() not in ("true", "false", "1", "0"):
            raise ValueError(f"'{text}' is not a bool: true or false")
        return text.lower() in ("true", "1")
    if kind is int:
        try:
            return int(text)
        except ValueError:
            raise ValueError(f"'{text}' is not an int") from None
    if kind is str:
        return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text
    raise ValueError(f"its type {kind} cannot be written on a command line")


def print_value(value: Any) -> str:
    """The reverse of ``parse_value``."""
    if isinstance(value, tuple):
        return "{" + ",".join(print_value(item) for item in value) + "}"
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    return f'"{text}"' if not text or re.search(r"[\s{},()=]", text) else text


def describe(pass_: Pass) -> str:
    """A pass as a pipeline element, with the options that differ from their defaults."""
    changed = []
    for field in dataclasses.fields(typing.cast(Any, pass_)):
        value = getattr(pass_, field.name)
        if value != field.default:
            changed.append(f"{option_name(field.name)}={print_value(value)}")
    return f"{pass_.name}{{{' '.join(changed)}}}" if changed else pass_.name


_OPTION = re.compile(r"""\s*(?P<key>[^\s={}]+)(?:=(?P<value>\{[^{}]*\}|"[^"]*"|'[^']*'|[^\s{}"']*))?(?=\s|$)""")


def parse_options(pass_class: type[Pass], text: str, fail: Callable[[str, int], typing.NoReturn]) -> dict[str, Any]:
    """The fields of a pass that its options set.

    Args:
        fail: is told what is wrong with the text, and at which offset in it.
    """
    known = option_types(pass_class)
    values: dict[str, Any] = {}
    position = 0
    while text[position:].strip():
        match = _OPTION.match(text, position)
        if match is None:
            fail("expected an option, key=value", position)
        key, value = match["key"], match["value"]
        at = match.start("key")
        # mlir spells options in kebab case; the field's own spelling is understood as well.
        key = option_name(key)
        if key not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            fail(f"pass '{pass_class.name}' has no option '{key}'{nearest(key, known)}; {has}", at)
        if value is None and known[key] is not bool:
            fail(f"option '{key}' of pass '{pass_class.name}' needs a value: {type_name(known[key])}", at)
        try:
            # As in mlir, a bool named alone is true.
            values[key.replace("-", "_")] = True if value is None else parse_value(known[key], value)
        except ValueError as error:
            fail(f"option '{key}' of pass '{pass_class.name}': {error}", at)
        position = match.end()
    return values
