"""Numbers that branches hand on, as 64 bits each.

A branch of IREE's virtual machine copies what it hands on from register to register, one after the other, so that none
is overwritten before it is read. It has numbers of 64 bits in two registers of 32 and looks at the first alone::

    vm.br ^bb27(%i70->%i2, %i71->%i3, %i3->%i1)      // %i1 becomes what %i71 was

A loop was not entered because of that. Where all numbers have 64 bits, their pairs of registers are disjoint or equal.
Before::

    cf.br ^bb27(%go, %offset : i1, i64)
  ^bb27(%again: i1, %at: i64):

After::

    %wide = arith.extui %go : i1 to i64
    cf.br ^bb27(%wide, %offset : i64, i64)
  ^bb27(%again: i64, %at: i64):
    %narrow = arith.trunci %again : i64 to i1
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import iree.compiler.ir as ir
from iree.compiler.dialects import arith
from iree.compiler.passmanager import PassManager

from covan_mlir.lowering import marks
from covan_mlir.lowering.pipeline import PipelineState

_BRANCHES = "builtin.module(util.func(convert-scf-to-cf),util.initializer(convert-scf-to-cf))"
"""What loops hand on becomes what branches do: IREE would make it so behind this step."""
_WIDE = 64


def widen(state: PipelineState) -> None:
    """The step, before IREE makes code of its virtual machine."""
    with state.session.context:
        PassManager.parse(_BRANCHES).run(state.module.operation)
        narrowed: set[tuple[ir.Block, int]] = set()
        for branch in marks.walk(state.module.operation, "cf.br", "cf.cond_br", "cf.switch"):
            for operand, block, position in _handed(branch):
                if _is_narrow(kind := branch.operands[operand].type):
                    branch.operands[operand] = _wide(branch, branch.operands[operand])
                    if (block, position) not in narrowed:
                        narrowed.add((block, position))
                        _narrow(block, position, kind)


def _handed(branch: Any) -> Iterator[tuple[int, ir.Block, int]]:
    """-> (operand, block, its argument) of all that a branch hands on."""
    blocks = list(branch.successors)
    operand = len(branch.operands) - sum(len(block.arguments) for block in blocks)
    for block in blocks:
        for position in range(len(block.arguments)):
            yield operand, block, position
            operand += 1


def _is_narrow(kind: Any) -> bool:
    return isinstance(kind, ir.IntegerType | ir.FloatType) and int(kind.width) < _WIDE


def _wide(branch: Any, value: Any) -> Any:
    with branch.location, ir.InsertionPoint(branch):
        if isinstance(value.type, ir.FloatType):
            value = arith.BitcastOp(ir.IntegerType.get_signless(value.type.width), value).result
        return arith.ExtUIOp(ir.IntegerType.get_signless(_WIDE), value).result


def _narrow(block: ir.Block, position: int, kind: Any) -> None:
    argument = block.arguments[position]
    argument.set_type(ir.IntegerType.get_signless(_WIDE))
    with ir.Location.unknown(), ir.InsertionPoint.at_block_begin(block):
        low = arith.TruncIOp(ir.IntegerType.get_signless(kind.width), argument)
        narrow = arith.BitcastOp(kind, low.result).result if isinstance(kind, ir.FloatType) else low.result
    argument.replace_all_uses_except(narrow, low.operation)
