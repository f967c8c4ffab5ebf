"""Which operations are translated, and by whom: each is declared once, beside its translation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from covan_mlir.frontend.stablehlo.program import Operation

if TYPE_CHECKING:
    from covan_mlir.frontend.stablehlo.call import Call

Translation: TypeAlias = Callable[["Call"], Any]
"""Gives the operation's results: a tensor, a `Value`, or a tuple of these for several results."""

CUSTOM = "stablehlo.custom_call"
_OPERATIONS: dict[str, Translation] = {}


def operation(*names: str) -> Callable[[Translation], Translation]:
    """Declare what translates operations of these names: ``stablehlo.add``, ``stablehlo.custom_call @Sharding``."""

    def declare(translation: Translation) -> Translation:
        for name in names:
            assert name not in _OPERATIONS, name
            _OPERATIONS[name] = translation
        return translation

    return declare


def table(translations: Sequence[tuple[str, Translation]]) -> None:
    """Declare several."""
    for name, translation in translations:
        operation(name)(translation)


def key(operation: Operation) -> str:
    """The name under which an operation is declared: custom calls by their target, composites by what they are."""
    if operation.name == CUSTOM:
        return f"stablehlo.custom_call @{operation.attributes.get('call_target_name', '')}"
    if operation.name == "stablehlo.composite":
        return str(operation.attributes.get("name", ""))
    return operation.name


def lookup(name: str) -> Translation | None:
    """What translates operations of a name."""
    return _OPERATIONS.get(name)


def callee(operation: Operation) -> str | None:
    """The function that stands for an operation, if one does."""
    if operation.name == "func.call":
        return str(operation.attributes.get("callee", ""))
    return str(operation.attributes.get("decomposition", "")) if operation.name == "stablehlo.composite" else None
