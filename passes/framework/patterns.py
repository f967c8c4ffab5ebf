"""Patterns, and the driver that applies them until nothing changes."""

from collections import deque
from collections.abc import Sequence
from typing import ClassVar, Protocol

from torch_mlir import ir

from covan_mlir.dialects.identity import address
from covan_mlir.passes.framework.rewriter import Op, RewriteError, Rewriter


class Pattern(Protocol):
    """Rewrites one kind of op. A small frozen dataclass, whose fields are its parameters."""

    op_names: ClassVar[tuple[str, ...]]
    """The ops that it looks at; all of them if there is none."""

    def match_and_rewrite(self, op: ir.Operation, rewriter: Rewriter) -> None:
        """Rewrites ``op`` through ``rewriter``, or returns where it does not match."""


class _WorkList:
    """The ops still to be looked at, each once. Holds no op that is gone: its wrapper must not be touched."""

    def __init__(self) -> None:
        self._order: deque[int] = deque()
        self._waiting: dict[int, ir.Operation] = {}
        self._looked_at = 0

    def created(self, op: ir.Operation) -> None:
        number = address(op)
        if number not in self._waiting:
            self._order.append(number)
            self._waiting[number] = op

    def erasing(self, op: ir.Operation) -> None:
        number = address(op)
        self._waiting.pop(number, None)
        if number == self._looked_at:
            self._looked_at = 0

    def next(self) -> ir.Operation | None:
        while self._order:
            number = self._order.popleft()
            op = self._waiting.pop(number, None)
            if op is not None:
                self._looked_at = number
                return op
        return None

    def again(self, op: ir.Operation) -> None:
        """Puts the op that ``next`` gave back, unless it was erased."""
        if self._looked_at:
            self.created(op)


def apply_patterns(root: Op, patterns: Sequence[Pattern], most_changes: int | None = None) -> int:
    """Applies ``patterns`` to the ops in ``root``, not to ``root``, until none of them changes anything.

    In the order of the IR, an op before those in it; then new ops and those whose operands changed. Of several
    patterns for an op the first comes first. Returns the number of rewrites.

    Args:
        most_changes: by default 1,000 and ten for each op.

    Raises:
        RewriteError: there is no end to it, or a rewrite went wrong.
    """
    work = _WorkList()
    rewriter = Rewriter(root, work)
    start = rewriter.root
    by_name: dict[str, list[Pattern]] = {}
    names = {name for pattern in patterns for name in pattern.op_names}
    for name in names:
        by_name[name] = [p for p in patterns if not p.op_names or name in p.op_names]
    rest = [p for p in patterns if not p.op_names]
    count = 0

    def visit(op: ir.Operation) -> ir.WalkResult:
        nonlocal count
        count += 1
        if op != start and (rest or op.name in names):
            work.created(op)
        return ir.WalkResult.ADVANCE

    start.walk(visit, ir.WalkOrder.PRE_ORDER)
    limit = 1000 + 10 * count if most_changes is None else most_changes
    while (op := work.next()) is not None:
        for pattern in by_name.get(op.name, rest):
            before = rewriter.changes
            pattern.match_and_rewrite(op, rewriter)
            if rewriter.changes == before:
                continue
            if rewriter.changes > limit:
                name = type(pattern).__name__
                raise RewriteError(f"no end after {limit} rewrites, the last one by {name}", start.location)
            work.again(op)
            break
    return rewriter.changes
