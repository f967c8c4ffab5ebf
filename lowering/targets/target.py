"""What a target is to the rest of covan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["cpu", "vulkan", "cuda"]


@dataclass(frozen=True)
class Target:
    """What to compile for.

    Attributes:
        name: as the user writes it, with what was left to covan filled in: ``vulkan:lavapipe``.
        kind: which driver runs the program, and which of our own code generators applies.
        flags: of IREE's compiler.
        devices: the element of the module's ``hal.device.targets``; empty: the flags say it all.
        requires: what a device must offer, in JSON; `covan_mlir.runtime.requirements` checks it before a program is
            loaded. For CPUs the compiler adds the instructions that it was allowed to use.
    """

    name: str
    kind: Kind
    flags: tuple[str, ...]
    devices: str = ""
    requires: Mapping[str, Any] = field(default_factory=dict)
