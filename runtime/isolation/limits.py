"""What a program in a process of its own may take."""

from __future__ import annotations

from dataclasses import dataclass

from covan_mlir.errors import InputError


@dataclass(frozen=True)
class Isolation:
    """Limits of a program that runs in a process of its own.

    Attributes:
        timeout: seconds that loading it, and each call, may take; None: any time.
        memory: bytes that its process may take beside the artifact's file, which is mapped, and the runtime's own;
            None: as many as there are. Arguments and results of a call count.
    """

    timeout: float | None = 60.0
    memory: int | None = 4 << 30

    def __post_init__(self) -> None:
        for name in ("timeout", "memory"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
                raise InputError(f"Isolation({name}={value!r}): give a number above 0, or None for no limit")
