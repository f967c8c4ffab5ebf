"""What a covan pass is. ``registry`` finds passes, ``trace_check`` runs them."""

import typing
from typing import ClassVar, Protocol, runtime_checkable

from torch_mlir import ir


@runtime_checkable
class Pass(Protocol):
    """What a covan pass has besides being a frozen dataclass."""

    name: ClassVar[str]

    def run(self, op: ir.Operation) -> None:
        """Rewrites ``op`` in place, leaving valid IR; raises ``PassFailure`` where it cannot."""


class PassFailure(Exception):
    """Raised by a pass that cannot do its work; reported at ``location``, or at the op it runs on."""

    def __init__(self, message: str, location: ir.Location | None = None) -> None:
        super().__init__(message)
        self.location = location


def op_name_of(pass_class: type[Pass]) -> str | None:
    """The op that the pass runs on, or None for any."""
    return typing.cast("str | None", getattr(pass_class, "op_name", "builtin.module"))


def drops_traces(pass_class: type[Pass]) -> bool:
    """Whether the pass declares that removing traces is its work."""
    return bool(getattr(pass_class, "drops_traces", False))
