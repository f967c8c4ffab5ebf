"""What each part is after each step: which operations carry its location. Feeds fates and chains of passes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from covan_mlir.dialects.prov_locations import TraceReader
from covan_mlir.lowering.pipeline import State

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
_SILENT_DIALECTS = ("torch.constant", "torch.prim", "iree_tensor_ext.", "hal.", "flow.return", "builtin.", "cf.")
# One operation to the reader, whatever is in its regions.
_WHOLE = ("linalg.", "tensor.generate", "tensor.pad")


@dataclass
class HistoryObserver:
    """Counts, after each step, the operations that carry each part.

    Attributes:
        steps: per step, by part id, operation names and their counts; a part is left out while it does not change.
    """

    read: TraceReader
    steps: list[tuple[str, dict[int, dict[str, int] | None]]] = field(default_factory=list)
    _now: dict[int, dict[str, int]] = field(default_factory=dict)
    _done: bool = False

    def __call__(self, step: str, state: State) -> None:
        if self._done:
            return
        self._done = step == LAST
        with state.session.context if state.session else state.module.context:
            found = self._count(state.module.operation, state.session is not None)
        changed: dict[int, dict[str, int] | None] = {
            i: names for i, names in found.items() if self._now.get(i) != names
        }
        changed.update({i: None for i in self._now if i not in found})
        self._now = found
        self.steps.append((step, changed))

    def _count(self, module: Any, in_iree: bool) -> dict[int, dict[str, int]]:
        if in_iree:
            from iree.compiler import ir
        else:
            from torch_mlir import ir
        found: dict[int, Counter[str]] = {}
        read = self.read.ids

        def visit(op: Any) -> Any:
            name = op.name
            if name not in _SILENT and not name.startswith(_SILENT_DIALECTS):
                for i in read(op.location):
                    found.setdefault(i, Counter())[name] += 1
            return ir.WalkResult.SKIP if name.startswith(_WHOLE) else ir.WalkResult.ADVANCE

        module.walk(visit, ir.WalkOrder.PRE_ORDER)
        return {i: dict(names) for i, names in found.items()}
