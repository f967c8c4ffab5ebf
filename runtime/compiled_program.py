"""What a compilation gives, or an artifact holds: all that a model is called with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from covan_mlir.artifacts.signature import Signature
from covan_mlir.artifacts.variant import Variant, Version
from covan_mlir.runtime.isolation.program import Place


class StateStore(Protocol):
    """Where the buffers that a call mutates are held."""

    def read(self, name: str) -> Any:
        """The buffer's value now: a torch tensor or a numpy array."""

    def write(self, name: str, value: Any) -> None:
        """Make ``value`` (of the same library as what `read` gave) the buffer's value."""


@dataclass(frozen=True, eq=False)
class CompiledProgram:
    """What a compilation gives, or an artifact holds: all that a model is called with.

    Attributes:
        variants: the program for each target, in the order in which they are preferred.
        signature: structure, dtypes and shapes of arguments and results.
        device: of the runtime for programs on CPUs: ``auto``, ``local-task``, ``local-sync`` or ``openmp``.
        weights: tensors that the program reads from outside, by parameter name.
        states: where the buffers that a call mutates are held.
        versions: of the tools that made it.
        place: of an artifact whose program runs in a process of its own.
        specialised: versions for some sizes of open dimensions.
    """

    variants: tuple[Variant, ...]
    signature: Signature
    device: str
    weights: Mapping[str, Any]
    states: StateStore
    versions: Mapping[str, str]
    place: Place | None = None
    specialised: tuple[Version, ...] = ()

    def version(self, number: int) -> CompiledProgram:
        """One of the versions, as a program of its own."""
        version = self.specialised[number]
        place = None if self.place is None else replace(self.place, version=number)
        return replace(self, variants=version.variants, signature=version.signature, place=place, specialised=())


class Arguments(NamedTuple):
    """Of one call, checked.

    Attributes:
        leaves: as the caller gave them, flat, in the order of the signature.
        passed: what the program takes for them, without states and weights.
        symbols: the sizes that open dimensions have in it.
        as_numpy: whether results are numpy arrays.
    """

    leaves: Sequence[Any]
    passed: list[Any]
    symbols: dict[str, int]
    as_numpy: bool
