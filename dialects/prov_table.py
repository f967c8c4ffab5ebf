"""The rows of a module's provenance table as plain data, without MLIR."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True, slots=True)
class FrameRow:
    """One stack frame, ``internal`` when it lies in a library rather than in the user's code."""

    file: str
    line: int
    function: str
    internal: bool = False


@dataclass(frozen=True, slots=True)
class ActionRow:
    """One call node of the exported graph before decompositions.

    ``frames`` go from the innermost outwards, ``types`` are the result types
    such as ``f32[2,3]``, ``module`` is the path of the nn.Module (may be empty).
    """

    id: int
    name: str
    op: str
    module: str = ""
    frames: tuple[FrameRow, ...] = ()
    types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PartRow:
    """One node that decompositions made of ``action``, reading the values of the parts ``inputs``.

    Of what substitutions made, ``also`` are the other actions whose work it does.
    ``args`` is what its operator is called with (`covan_mlir.provenance.arguments`), empty when not known; ``view``
    whether its result is its input's memory.
    """

    id: int
    action: int
    name: str
    op: str
    inputs: tuple[int, ...] = ()
    types: tuple[str, ...] = ()
    args: str = ""
    view: bool = False
    also: tuple[int, ...] = ()

    @property
    def owners(self) -> tuple[int, ...]:
        """All actions whose work it does."""
        return (self.action, *self.also)


@dataclass(frozen=True)
class Table:
    """A module's ledger. Ids of actions and of parts share one space, so an id alone names a row."""

    actions: tuple[ActionRow, ...] = ()
    parts: tuple[PartRow, ...] = ()

    @cached_property
    def rows(self) -> Mapping[int, ActionRow | PartRow]:
        """Every row by its id."""
        rows: dict[int, ActionRow | PartRow] = {row.id: row for row in self.actions}
        rows.update((row.id, row) for row in self.parts)
        return rows

    def action_of(self, id_: int) -> int:
        """The id of the action that ``id_`` is, or is a part of.

        Raises:
            KeyError: the table has no such row.
        """
        row = self.rows[id_]
        return row.action if isinstance(row, PartRow) else row.id
