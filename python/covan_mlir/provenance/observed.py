"""What observers saw of one compilation: all that a lineage is made of, besides the source."""

from __future__ import annotations

from dataclasses import dataclass, field

from covan_mlir.provenance.bodies import Bodies
from covan_mlir.provenance.phases import Phase
from covan_mlir.provenance.program_graph import NodePhase, ProgramGraph, SiteKind

Changes = dict[int, dict[str, int] | None]
"""By part, the operations that carry it after a step, by name and count, where the step changed that; None: none do."""


@dataclass(frozen=True)
class SiteCommand:
    """One command of the final program that does work.

    Attributes:
        node: its node in the graph of dispatches, or None for work that the compiler added later.
        kind: ``dispatch`` or ``transfer``.
        kernel: entry point of the executable; of a transfer ``fill`` or ``copy``.
        phase: ``init`` or ``call``.
        ids: parts named by the command's own location.
    """

    node: int | None
    kind: SiteKind
    kernel: str
    phase: NodePhase
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Observed:
    """What was seen of a compilation, from the first step to the last.

    Attributes:
        graph: the program after dispatch creation (`covan_mlir.lowering.dispatch_graph`).
        bodies: what its nodes compute.
        commands: the work of the final program in order, initialisers first.
        buffers: per HAL command buffer, the position of each command in ``commands``; None: it does no such work.
        history: per step, which operations carried each part (`covan_mlir.lowering.history`).
        phases: the graphs of the steps before dispatches were formed (`covan_mlir.lowering.phase_graph`).
    """

    graph: ProgramGraph
    commands: tuple[SiteCommand, ...]
    buffers: tuple[tuple[int | None, ...], ...]
    history: tuple[tuple[str, Changes], ...] = ()
    phases: tuple[Phase, ...] = field(default=(), repr=False)
    bodies: Bodies = field(default_factory=Bodies, repr=False)
