"""Loops that hand on other values than they begin with, as branches.

IREE's conversion to its ``stream`` dialect takes the values before a loop's condition for those behind it, and crashes
where these are not as many or of other types: where the condition is carried itself, or a value is overwritten before
anybody reads it::

    %r:2 = scf.while (%go = %first, %x = %a) {
      scf.condition(%go) %x                      // one value behind the condition, two before it
    } do {
    ^bb0(%x):
      ...
      scf.yield %again, %next
    }

Functions with such loops become blocks and branches (``convert-scf-to-cf``), which it converts as they are.
"""

from __future__ import annotations

from typing import Any

from iree.compiler.passmanager import PassManager

from covan_mlir.lowering import marks
from covan_mlir.lowering.pipeline import PipelineState

_BRANCHES = "builtin.module(util.func(convert-scf-to-cf))"


def branch(state: PipelineState) -> None:
    """The step, after IREE's flow phase, that takes apart the control flow of a module with such loops."""
    with state.session.context:
        if any(map(_is_uneven, marks.walk(state.module.operation, "scf.while"))):
            PassManager.parse(_BRANCHES).run(state.module.operation)


def _is_uneven(loop: Any) -> bool:
    before, after = ([value.type for value in region.blocks[0].arguments] for region in loop.regions)
    return before != after
