"""Decompositions of our own, collected by the operation that they replace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._ops import OpOverload

Rule = Callable[..., Any]
"""Takes the operation's arguments and gives its result, or ``NotImplemented`` to leave the operation as it is."""

RULES: dict[OpOverload, Rule] = {}
_foreign: dict[str, Rule] = {}
_plain: set[OpOverload] = set()
_F = TypeVar("_F", bound=Rule)


def rule(*ops: OpOverload, first: bool = False) -> Callable[[_F], _F]:
    """Register a function as the decomposition of ``ops``, for the cases that functions registered before leave.

    Args:
        first: the function is asked before those, as of types that they know nothing of.
    """

    def register(function: _F) -> _F:
        for op in ops:
            ours = _unless_plain(op, function)
            pair = (ours, RULES.get(op)) if first else (RULES.get(op), ours)
            known = [one for one in pair if one is not None]
            RULES[op] = either(*known) if len(known) == 2 else ours
        return function

    return register


def either(first: Rule, second: Rule) -> Rule:
    """``first``, and ``second`` for what it leaves."""

    def decomposition(*args: Any, **kwargs: Any) -> Any:
        result = first(*args, **kwargs)
        return second(*args, **kwargs) if result is NotImplemented else result

    return decomposition


def foreign_rule(name: str) -> Callable[[_F], _F]:
    """Register a function as the decomposition of an operation of another library: ``library::operation``, or
    ``library::operation.overload``."""

    def register(function: _F) -> _F:
        _foreign[name] = function
        return function

    return register


def foreign_rules() -> dict[OpOverload, Rule]:
    """The rules for operations of those libraries that have been imported."""
    rules: dict[OpOverload, Rule] = {}
    for name, function in _foreign.items():
        library, _, rest = name.partition("::")
        operation, _, overload = rest.partition(".")
        packet = getattr(getattr(torch.ops, library), operation, None)
        if packet is not None and (op := getattr(packet, overload or "default", None)) is not None:
            rules[op] = function
    return rules


def _unless_plain(op: OpOverload, function: Rule) -> Rule:
    def decomposition(*args: Any, **kwargs: Any) -> Any:
        return NotImplemented if op in _plain else function(*args, **kwargs)

    return decomposition


def plain(op: OpOverload, *args: Any, **kwargs: Any) -> Any:
    """``op`` itself, not its rule: for rules that only prepare its arguments."""
    _plain.add(op)
    try:
        return op(*args, **kwargs)
    finally:
        _plain.discard(op)


def wide(x: Tensor) -> Tensor:
    """Half precision computes in float32, as in eager; whole numbers compute in the default float type."""
    if x.dtype in (torch.float16, torch.bfloat16):
        return x.to(torch.float32)
    return x if x.dtype.is_floating_point else x.to(torch.get_default_dtype())


def float_type(x: Tensor) -> torch.dtype:
    """Type of the result of a function that gives fractions: that of ``x``, or the default float type."""
    return x.dtype if x.dtype.is_floating_point else torch.get_default_dtype()


def promoted(a: Any, b: Any) -> tuple[Tensor, Tensor]:
    """Two operands, of which one may be a number, as tensors of the type that an operation on both has."""
    dtype = torch.result_type(a, b)
    first, second = (
        side.to(dtype) if isinstance(side, Tensor) else torch.scalar_tensor(side, dtype=dtype) for side in (a, b)
    )
    return first, second
