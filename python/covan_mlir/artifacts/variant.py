"""One model, compiled for one target: an artifact may hold several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from covan_mlir.artifacts.attachment import Attached
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
