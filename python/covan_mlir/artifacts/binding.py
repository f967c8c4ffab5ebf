"""The arguments of a call against the signature of the program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from covan_mlir.artifacts.signature import Leaf, Signature, evaluate
from covan_mlir.errors import InputError


def rebind(
    signature: Signature, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments in the form of the example, when the caller chose to pass some by name that the example passed by
    position, or the other way round."""
    positional = len(signature.in_tree.children[0].children)
    if len(args) == positional or not signature.parameters:
        return args, kwargs
    named = dict(zip(signature.parameters, args, strict=False))
    if len(args) > len(signature.parameters) or named.keys() & kwargs.keys():
        return args, kwargs
    given = named | kwargs
    first = signature.parameters[:positional]
    if any(name not in given for name in first):
        return args, kwargs
    return tuple(given.pop(name) for name in first), given


def check_shape(leaf: Leaf, shape: tuple[int, ...], symbols: dict[str, int]) -> None:
    """Compare a tensor's shape with the signature's; sizes by name are found out in ``symbols``.

    Raises:
        InputError: another rank or size; says which argument and axis, and what was expected.
    """
    if len(shape) != len(leaf.shape):
        raise InputError(f"argument {leaf.name} has shape {list(shape)}; expected {leaf.type_string()}")
    for axis, (size, expected) in enumerate(zip(shape, leaf.shape, strict=True)):
        if isinstance(expected, str) and expected.isidentifier():
            value: int | None = symbols.setdefault(expected, size)
        else:
            value = evaluate(expected, symbols) if isinstance(expected, str) else expected
        if value is not None and value != size:
            known = f" with {expected} = {value}" if isinstance(expected, str) else ""
            raise InputError(
                f"argument {leaf.name} has size {size} on axis {axis}; expected {leaf.type_string()}{known}. "
                "Pad it, or compile with dynamic_shapes"
            )


def scalar(leaf: Leaf, value: Any, symbols: dict[str, int]) -> int | float:
    """A number as the program takes it.

    Raises:
        InputError: it is none, or contradicts the size of the same name.
    """
    if leaf.dtype == "float":
        if not isinstance(value, int | float):
            raise InputError(f"argument {leaf.name} is a {type(value).__name__}; expected a float")
        return float(value)
    if not isinstance(value, int | np.integer):
        raise InputError(f"argument {leaf.name} is a {type(value).__name__}; expected an {leaf.dtype}")
    if leaf.symbol.isidentifier() and symbols.setdefault(leaf.symbol, int(value)) != int(value):
        raise InputError(f"argument {leaf.name} is {value}; expected {symbols[leaf.symbol]} ({leaf.symbol})")
    return int(value)


def check_fixed(leaf: Leaf, value: Any) -> None:
    """Raises InputError if an argument has other elements than those that are built into the program."""
    given = tuple(value.reshape(-1).tolist())
    if given != leaf.fixed:
        raise InputError(
            f"argument {leaf.name} is {list(given)}, but was {list(leaf.fixed or ())} when the model was compiled, and "
            "shapes depend on it: compile again for this value"
        )


def check_constant(leaf: Leaf, value: Any) -> None:
    """Raises InputError if an argument is another than the one that is built into the program."""
    if value != leaf.value or type(value) is not type(leaf.value):
        raise InputError(
            f"argument {leaf.name} is {value!r}, but was {leaf.value!r} when the model was exported, and is "
            "built into the program: compile again for this value"
        )


def check_dtype(leaf: Leaf, dtype: str) -> None:
    """Raises InputError if a tensor has another dtype, as torch spells it, than the signature's."""
    if dtype != leaf.dtype:
        raise InputError(f"argument {leaf.name} is {dtype}; expected {leaf.dtype}: convert it with .to() or .astype()")


def check_symbols(signature: Signature, symbols: Mapping[str, int]) -> None:
    """Raises InputError if a size is out of the range for which the model was exported."""
    for name, value in symbols.items():
        low, high = signature.symbols.get(name, (None, None))
        if (low is not None and value < low) or (high is not None and value > high):
            users = [leaf.name for leaf in signature.inputs if name in map(str, leaf.shape) or leaf.symbol == name]
            raise InputError(
                f"dimension {name} (of {', '.join(users)}) is {value}; the model was exported for "
                f"{low if low is not None else '-∞'} ≤ {name} ≤ {high if high is not None else '∞'}"
            )
