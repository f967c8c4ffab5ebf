"""Which version of a program a call runs: by the sizes of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from covan_mlir.artifacts.schema import SizeRange
from covan_mlir.artifacts.signature import Signature
from covan_mlir.runtime.contract import ContractError
from covan_mlir.support.typed_json import short

_REMEMBERED = 4096
"""Sizes whose version is known without looking at ranges."""


class SizeGuard:
    """Tells by the leaves of a call which version it runs: its place, or None for the general one.

    Of several versions that hold the sizes, the one that holds fewest. Sizes that were asked for before are looked up:
    a fraction of a microsecond. Safe to call from several threads.

    Args:
        signature: of the general version.
        versions: the sizes of each other one.

    Raises:
        ContractError: no argument has a size that the versions differ in.
    """

    def __init__(self, signature: Signature, versions: Sequence[Sequence[SizeRange]]) -> None:
        symbols = list(dict.fromkeys(each.symbol for ranges in versions for each in ranges))
        self._places = [_place(signature, symbol) for symbol in symbols]
        bounds = [{each.symbol: (each.low, each.high) for each in ranges} for ranges in versions]
        rows = [tuple(row.get(symbol, (0, None)) for symbol in symbols) for row in bounds]
        self._rows = sorted(enumerate(rows), key=lambda numbered: [_width(*bound) for bound in numbered[1]])
        self._rows.sort(key=lambda numbered: sum(_width(*bound) == _OPEN for bound in numbered[1]))
        self._known: dict[Any, int | None] = {}
        self._sizes: Callable[[Sequence[Any]], Any] = self._one if len(symbols) == 1 else self._several
        self._leaf, self._axis = self._places[0]

    def __call__(self, leaves: Sequence[Any]) -> int | None:
        """The version for a call; the general one, which says what is wrong, for what has no such sizes."""
        try:
            sizes = self._sizes(leaves)
            return self._known[sizes]
        except (KeyError, TypeError):
            pass
        except (AttributeError, IndexError, RuntimeError):  # no tensor, of fewer dimensions, nested
            return None
        return self._looked_up(leaves)

    def _one(self, leaves: Sequence[Any]) -> Any:
        return leaves[self._leaf].shape[self._axis]

    def _several(self, leaves: Sequence[Any]) -> Any:
        return tuple([leaves[leaf].shape[axis] for leaf, axis in self._places])

    def _looked_up(self, leaves: Sequence[Any]) -> int | None:
        try:
            sizes = [leaves[leaf].shape[axis] for leaf, axis in self._places]
            key = sizes[0] if len(sizes) == 1 else tuple(sizes)
            version = next((place for place, row in self._rows if _holds(row, sizes)), None)
        except (AttributeError, IndexError, RuntimeError, TypeError):
            return None
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[key] = version
        return version


_OPEN = 1 << 64


def _width(low: int, high: int | None) -> int:
    return _OPEN if high is None else high - low


def _holds(row: Sequence[tuple[int, int | None]], sizes: Sequence[int]) -> bool:
    return all(low <= size and (high is None or size <= high) for (low, high), size in zip(row, sizes, strict=True))


def _place(signature: Signature, symbol: str) -> tuple[int, int]:
    """Which argument has the size, on which axis."""
    for index, leaf in enumerate(signature.inputs):
        if leaf.kind == "tensor" and symbol in leaf.shape:
            return index, leaf.shape.index(symbol)
    raise ContractError(f"no argument has the size {short(symbol)}, which versions differ in")
