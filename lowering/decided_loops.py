"""Loops that carry whether they go on, as loops that decide it at the end of an iteration.

IREE's conversion to its ``stream`` dialect takes the values before a loop's condition for those behind it, and fails
where the condition itself is carried and not passed on::

    %r = scf.while (%go = %first, %x = %a) {              %r = scf.if %first {
      scf.condition(%go) %x                                 %last = scf.while (%x = %a) {
    } do {                                                    %next, %again = ...
    ^bb0(%x):                                          =>     scf.condition(%again) %next
      %next, %again = ...                                   } do { ^bb0(%y): scf.yield %y }
      scf.yield %again, %next                               scf.yield %last
    }                                                     } else { scf.yield %a }

A loop with something in it that does not change from one iteration to the next has that form already: IREE hoists it.
"""

from __future__ import annotations

from typing import Any

import iree.compiler.ir as ir

from covan_mlir.lowering import marks
from covan_mlir.lowering.pipeline import PipelineState


def rotate(state: PipelineState) -> None:
    """The step, after IREE's flow phase, that rewrites such loops of a module."""
    with state.session.context:
        for loop in marks.walk(state.module.operation, "scf.while"):
            before = list(loop.regions[0].blocks[0])
            condition = before[-1].operation
            if len(before) == 1 and condition.operands[0] == loop.regions[0].blocks[0].arguments[0]:
                _rotate(loop, condition)


def _rotate(loop: Any, condition: Any) -> None:
    arguments = list(loop.regions[0].blocks[0].arguments)
    passed = [arguments.index(value) for value in list(condition.operands)[1:]]
    start, types = [loop.operands[place] for place in passed], [result.type for result in loop.results]
    with loop.location:
        with ir.InsertionPoint(loop):
            branch = ir.Operation.create("scf.if", types, [loop.operands[0]], regions=2)
        then, otherwise = (ir.Block.create_at_start(region, []) for region in branch.regions)
        with ir.InsertionPoint(then):
            last = ir.Operation.create("scf.while", types, start, regions=2)
            ir.Operation.create("scf.yield", [], list(last.results))
        with ir.InsertionPoint(otherwise):
            ir.Operation.create("scf.yield", [], start)
        body = loop.regions[1].blocks[0]
        body.append_to(last.regions[0])
        end = list(body)[-1].operation
        with ir.InsertionPoint(end):
            values = [end.operands[place] for place in (0, *passed)]
            ir.Operation.create("scf.condition", [], values)
        end.erase()
        after = ir.Block.create_at_start(last.regions[1], types, [loop.location] * len(types))
        with ir.InsertionPoint(after):
            ir.Operation.create("scf.yield", [], list(after.arguments))
    for old, new in zip(loop.results, branch.results, strict=True):
        old.replace_all_uses_with(new)
    loop.erase()
