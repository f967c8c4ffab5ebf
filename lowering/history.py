"""What each part is after each step: which operations carry its location. Feeds fates and chains of passes."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from covan_mlir.dialects.chain_holders import CHAINS
from covan_mlir.dialects.prov_graph import is_shape
from covan_mlir.dialects.prov_locations import TraceReader
from covan_mlir.lowering.pipeline import PipelineState
from covan_mlir.provenance.observed import Changes

# After this step operations stand in executables; sites take over.
LAST = "iree:dispatch-creation"
_SILENT = frozenset(
    {
        "arith.constant",
        "tensor.empty",
        "tensor.dim",
        "func.return",
        "util.return",
        "func.func",
        "util.func",
        "linalg.fill",
    }
)
_SILENT_DIALECTS = (
    *("torch.constant", "torch.prim.", "iree_tensor_ext.dispatch.", "iree_tensor_ext.compute_barrier.", "hal."),
    *("flow.return", "builtin.", "cf."),
)
_AT_LOAD = "util.initializer"
# One operation to the reader, whatever is in its regions.
_WHOLE = ("linalg.", "tensor.generate", "tensor.pad", *CHAINS)


@dataclass
class HistoryObserver:
    """Counts, after each step, the operations that carry each part.

    Attributes:
        steps: per step, by part id, operation names and their counts; a part is left out while it does not change.
        done: the last step that is of interest is over.
    """

    read: TraceReader
    steps: list[tuple[str, Changes]] = field(default_factory=list)
    _now: dict[int, dict[str, int]] = field(default_factory=dict)
    done: bool = False

    def __call__(self, step: str, state: PipelineState) -> None:
        if self.done:
            return
        self.done = step == LAST
        with state.session.context if state.session else state.module.context:
            self.record(step, count(state.module.operation, self.read))

    def record(self, step: str, now: dict[int, dict[str, int]]) -> None:
        """Note what ``step`` changed, given what there is after it."""
        changed: Changes = {i: names for i, names in now.items() if self._now.get(i) != names}
        changed.update({i: None for i in self._now if i not in now})
        self._now = now
        self.steps.append((step, changed))


def bindings(op: Any) -> Any:
    """The ``ir`` module of the binding that an operation belongs to."""
    return sys.modules[type(op.location).__module__]


def count(root: Any, read: TraceReader) -> dict[int, dict[str, int]]:
    """By part id, the operations in ``root`` that carry it, by name. What is computed when the program is loaded counts
    for parts that nothing else carries: others read indices and masks there that are theirs."""
    walk = bindings(root).WalkResult
    order = bindings(root).WalkOrder.PRE_ORDER
    counts: dict[int, Counter[str]] = {}
    at_load: dict[int, Counter[str]] = {}
    initializers: list[Any] = []
    work = read.work

    def visit(op: Any, into: dict[int, Counter[str]]) -> Any:
        name = op.name
        if name == _AT_LOAD and into is counts:
            initializers.append(op)
            return walk.SKIP
        if name not in _SILENT and not name.startswith(_SILENT_DIALECTS) and not is_shape(op):
            for i in work(op):
                into.setdefault(i, Counter())[name] += 1
        return walk.SKIP if name.startswith(_WHOLE) else walk.ADVANCE

    root.walk(lambda op: visit(op, counts), order)
    for initializer in initializers:
        initializer.walk(lambda op: visit(op, at_load), order)
    return {i: dict(names) for i, names in {**at_load, **counts}.items()}
