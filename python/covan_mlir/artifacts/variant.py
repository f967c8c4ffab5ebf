"""One model, compiled for one target, or for some sizes: an artifact may hold several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from covan_mlir.artifacts.attachment import Attached
from covan_mlir.artifacts.schema import SizeRange
from covan_mlir.artifacts.signature import Signature
from covan_mlir.errors import TargetError
from covan_mlir.provenance.model import LineageData


@dataclass(frozen=True, eq=False)
class Variant:
    """A program and its history.

    Attributes:
        target: what it was compiled for.
        program: the vmfb.
        lineage: which source action became which of its sites.
        info: facts about the compilation, as JSON: ``frontend`` (``linalg`` or ``torch``), ``seconds`` per step,
            ``flags``, ``flops`` and ``elements`` of one call, and what is ``shared`` of them with teams of threads.
        requires: what a device must offer to run it; see `covan_mlir.runtime.requirements`.
        attachments: operators of the user's own in it.
    """

    target: str
    program: bytes | memoryview
    lineage: LineageData
    info: Mapping[str, Any]
    requires: Mapping[str, Any] = field(default_factory=dict)
    attachments: tuple[Attached, ...] = ()


@dataclass(frozen=True, eq=False)
class Version:
    """A model, compiled for some of the sizes that its open dimensions may have.

    Attributes:
        ranges: these sizes; of dimensions that are not among them, all.
        signature: of its programs.
        variants: the program for each target, of those that the model is compiled for.
    """

    ranges: tuple[SizeRange, ...]
    signature: Signature
    variants: tuple[Variant, ...]

    @property
    def name(self) -> str:
        """Its sizes, for people: ``batch=8, length=2..64``."""
        return ", ".join(map(str, self.ranges))


def choose(variants: Sequence[Variant], target: str | None) -> Variant:
    """The program for a target; the one that is preferred, if none is named.

    Raises:
        TargetError: there is none.
    """
    for variant in variants:
        if target in (None, variant.target):
            return variant
    raise TargetError(
        f"there is no program for {target!r}; there is one for " + ", ".join(each.target for each in variants)
    )
