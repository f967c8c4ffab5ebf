"""A StableHLO module as plain data: what the process that reads it hands over, and translations see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec


class Type(msgspec.Struct, frozen=True):
    """Type of a value.

    Attributes:
        dtype: of its elements, as MLIR writes it: ``f32``, ``i1``, ``ui32``, ``complex<f32>``; or ``token``.
        shape: sizes; None where one is open.
    """

    dtype: str
    shape: tuple[int | None, ...] = ()

    def __str__(self) -> str:
        sizes = ", ".join("?" if size is None else str(size) for size in self.shape)
        return f"{self.dtype}[{sizes}]"


class Tensor(msgspec.Struct, frozen=True):
    """Elements that the module holds.

    Attributes:
        blob: place among the blobs of the message, each with elements in order, as numpy holds them. One element stands
            for all where ``splat``.
    """

    type: Type
    blob: int
    splat: bool = False


class Frame(msgspec.Struct, frozen=True):
    """A line of code."""

    file: str
    line: int
    function: str


class Place(msgspec.Struct, frozen=True):
    """Where an operation comes from.

    Attributes:
        path: the name that its location has, such as ``jit(f)/Dense_0/dot_general``; or an empty string.
        frames: innermost first.
    """

    path: str = ""
    frames: tuple[Frame, ...] = ()


class Region(msgspec.Struct, frozen=True):
    """A block of operations.

    Attributes:
        arguments: numbers of the values that it is given.
        returned: of those that its last operation gives back.
    """

    arguments: tuple[int, ...]
    types: tuple[Type, ...]
    operations: tuple[Operation, ...]
    returned: tuple[int, ...]


class Operation(msgspec.Struct, frozen=True):
    """One operation.

    Attributes:
        id: its number, unique in the module.
        name: ``stablehlo.add``, ``chlo.erf``, ``func.call``.
        operands, results: numbers of values, unique in the module.
        attributes: numbers, words, lists and maps; constants by their number in `Module.tensors`.
        place: its number in `Module.places`.
    """

    id: int
    name: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    types: tuple[Type, ...]
    attributes: dict[str, Any]
    regions: tuple[Region, ...]
    place: int


class Function(msgspec.Struct, frozen=True):
    """A function of the module.

    Attributes:
        names: of its arguments, as locations tell them; empty strings where they do not.
        results: of its results, the same.
    """

    body: Region
    names: tuple[str, ...]
    results: tuple[str, ...]


class Module(msgspec.Struct, frozen=True, tag="module"):
    """A module.

    Attributes:
        main: the name of its only public function.
    """

    main: str
    functions: dict[str, Function]
    tensors: tuple[Tensor, ...]
    places: tuple[Place, ...]


class Results(msgspec.Struct, frozen=True, tag="results"):
    """What an interpreter gives."""

    types: tuple[Type, ...]


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """It could not be read, and why."""

    reason: str


def operations(region: Region) -> Iterator[Operation]:
    """All operations of a region, those inside of others before these."""
    for operation in region.operations:
        for inner in operation.regions:
            yield from operations(inner)
        yield operation
