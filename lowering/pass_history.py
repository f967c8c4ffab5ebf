"""The history pass by pass: what `covan_mlir.lowering.history` sees after steps, seen after each pass in them."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from covan_mlir.lowering.history import HistoryObserver, bindings, count
from covan_mlir.lowering.pass_prints import PassPrints, PrintError
from covan_mlir.lowering.pipeline import PipelineState

Counts = dict[int, dict[str, int]]
# Steps that are no pipelines of passes: nothing can be printed there.
SINGLE = frozenset({"iree:import", "iree:externalize", "fred-raise", "fred-kernels", "iree:embed", "iree:team"})
_INITIALISER = "util.initializer "


@dataclass
class PassHistory(HistoryObserver):
    """Adds entries such as ``iree:global-optimization/canonicalize``, one per pass that changed a part.

    Each step still has its own entry, after those of its passes. It holds what is left: what none of the passes that
    were seen did.

    The first entry is ``import``: what the module holds before any pass.

    Attributes:
        unseen: per step, how many parts changed in passes that could not be seen.
    """

    prints: PassPrints = field(kw_only=True)
    unseen: dict[str, int] = field(default_factory=dict)
    _bodies: dict[str, Counts] = field(default_factory=dict)  # of each operation of the module's body

    def before(self, step: str, state: PipelineState) -> None:
        """To be called before each step."""
        state.watch = None
        if self.done:
            self.prints.shut()
            return
        with state.session.context if state.session else state.module.context:
            self._bodies = self._count_bodies(state.module.operation)
            if not self.steps:
                self.record("import", _sum(self._bodies.values()))
            self.prints.open(state.module)
        state.watch = self.prints.enable

    def __call__(self, step: str, state: PipelineState) -> None:
        if self.done:
            return
        if step not in SINGLE:
            with contextlib.suppress(PrintError):  # what is left is counted below
                self._read_passes(step)
        super().__call__(step, state)
        left = len(self.steps[-1][1])
        if left and step not in SINGLE:
            self.unseen[step] = left

    def _read_passes(self, step: str) -> None:
        for printed in self.prints.read():
            if printed.root.name == "builtin.module":
                self._bodies = self._after(printed.root)
            else:
                self._bodies[_key(printed.root)] = count(printed.root, self.read)
            counts = _sum(self._bodies.values())
            if counts != self._now:
                self.record(f"{step}/{printed.name}", counts)

    def _count_bodies(self, module: Any) -> dict[str, Counts]:
        return {_key(op.operation): count(op.operation, self.read) for op in module.regions[0].blocks[0]}

    def _after(self, module: Any) -> dict[str, Counts]:
        """What a pass over the module left. It may have made or removed initialisers; what was done inside those that
        stay may be the work of passes that were not seen, and waits for the step's own entry."""
        return {
            key: self._bodies.get(key, counts) if key.startswith(_INITIALISER) else counts
            for key, counts in self._count_bodies(module).items()
        }


def _key(op: Any) -> str:
    """Tells the operations of a module's body apart: by name, initialisers by the first global they store to."""
    if "sym_name" in op.attributes:
        return f"{op.name} {op.attributes['sym_name']}"
    stores: list[str] = []
    go_on = bindings(op).WalkResult.ADVANCE

    def visit(inner: Any) -> Any:
        if inner.name == "util.global.store":
            stores.append(str(inner.attributes["global"]))
        return go_on

    op.walk(visit)
    return f"{op.name} {next(iter(stores), '')}"


def _sum(counts: Iterable[Mapping[int, Mapping[str, int]]]) -> Counts:
    total: dict[int, Counter[str]] = {}
    for of_body in counts:
        for part, names in of_body.items():
            total.setdefault(part, Counter()).update(names)
    return {part: dict(names) for part, names in total.items()}
