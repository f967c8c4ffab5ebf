"""Indices and divisors of a call: those among its arguments are checked before it, of others it tells itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from covan_mlir.artifacts.schema import Check
from covan_mlir.artifacts.signature import Signature, evaluate
from covan_mlir.errors import CovanError, DivisionError, OutOfRangeError
from covan_mlir.runtime import values


class ArgumentChecks:
    """Checks of arguments, as a signature lists them.

    Called with the leaves of a call and the sizes that open dimensions have in it, raises `OutOfRangeError` or
    `DivisionError`.
    """

    def __init__(self, signature: Signature) -> None:
        self._inputs = signature.inputs
        self._by_argument: dict[int, list[Check]] = {}
        for check in signature.checks:
            if check.argument is not None:
                self._by_argument.setdefault(check.argument, []).append(check)
        self._known = {
            position: _joint(checks, {})
            for position, checks in self._by_argument.items()
            if all(isinstance(limit, int) for check in checks for limit in (check.low, check.high))
        }

    def __call__(self, leaves: Sequence[Any], symbols: Mapping[str, int]) -> None:
        for position, checks in self._by_argument.items():
            leaf = self._inputs[position]
            array = values.host_array(leaves[position], leaf.dtype)
            # What lies within the limits of all indices needs no look at each of the checks.
            limits = self._known[position] if position in self._known else _joint(checks, symbols)
            if limits is not None and _inside(array, *limits):
                continue
            for check in checks:
                _check(check, leaf.name, array, _limit(check.low, symbols), _limit(check.high, symbols))


def _joint(checks: Sequence[Check], symbols: Mapping[str, int]) -> tuple[int, int] | None:
    """The limits that the indices of several checks have in common; None if one is of a divisor."""
    if any(check.kind != "index" for check in checks):
        return None
    lows, highs = ([_limit(limit, symbols) for limit in limits] for limits in zip(*map(_limits, checks), strict=True))
    return max(lows), min(highs)


def _limits(check: Check) -> tuple[int | str, int | str]:
    return check.low, check.high


def _limit(limit: int | str, symbols: Mapping[str, int]) -> int:
    value = limit if isinstance(limit, int) else evaluate(limit, symbols)
    if value is None:
        raise CovanError("a limit of an index does not follow from the sizes of the arguments: compile the model again")
    return value


def _inside(array: np.ndarray[Any, Any], low: int, high: int) -> bool:
    """Whether all elements are at least ``low`` and less than ``high``."""
    if not array.size:
        return True
    if low == 0 and array.dtype.kind == "i" and 0 < high <= 1 << (8 * array.itemsize - 1):
        # Read without a sign, negative numbers are greater than all others: one pass instead of two.
        return int(array.view(f"u{array.itemsize}").max()) < high
    return low <= int(array.min()) and int(array.max()) < high


def _check(check: Check, name: str, array: np.ndarray[Any, Any], low: int, high: int) -> None:
    part = array[tuple(slice(*bounds) for bounds in check.bounds)]
    if check.kind == "divisor":
        if (part == low).any():
            raise DivisionError(f"{_place(check)}: a division by zero: argument {name} holds {low}")
        return
    if _inside(part, low, high):
        return
    wrong = (part < low) | (part >= high)
    if check.ignored is not None:
        wrong &= part != check.ignored
    if wrong.any():
        value = int(part[wrong][0]) if part.ndim else int(part)
        raise OutOfRangeError(f"{_place(check)}: {value}, of argument {name}, is no index: {low} to {high - 1} are")


def failed(check: Check) -> CovanError:
    """The error for a check that failed in a program."""
    if check.kind == "divisor":
        return DivisionError(f"{_place(check)}: a division by zero")
    return OutOfRangeError(
        f"{_place(check)}: an index is out of range: {check.low} is the least, {check.high} too large"
    )


def _place(check: Check) -> str:
    where = f"{check.file}:{check.line}: " if check.file else ""
    return f"{where}{check.op}{f' in {check.module}' if check.module else ''}"
