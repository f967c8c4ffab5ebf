"""What a ``kir`` operator says of itself, as attributes; and that it is true.

>>> attributes = operator_attributes(operator_of(chain), chain, context)  # doctest: +SKIP
"""

from __future__ import annotations

from torch_mlir import ir

from covan_mlir.dialects.chain_holders import HELD, OUTPUT
from covan_mlir.dialects.fred_chain import read_chain
from covan_mlir.dialects.fred_data import attribute
from covan_mlir.dialects.fred_steps import MalformedChain
from covan_mlir.fred.chain import Chain
from covan_mlir.kir.operators import Operator
from covan_mlir.kir.recognition import operator_of
from covan_mlir.kir.told import TOLD, told

ACTIONS, ATTACHED = "trace", "attached"
"""Attributes of an operator: the actions of the model that it performs, and the attached operators among them."""


def forget_actions(op: ir.Operation) -> None:
    """Takes off an operator what it tells of actions."""
    for name in (ACTIONS, ATTACHED):
        if name in op.attributes:
            del op.attributes[name]


def operator_name(operator: Operator) -> str:
    """The name of the op that an operator is."""
    return f"kir.{operator.kind}"


def operator_attributes(operator: Operator, chain: Chain, context: ir.Context) -> dict[str, ir.Attribute]:
    """What an operator says of itself."""
    return {name: attribute(value, context) for name, value in told(operator, chain).items()}


def verify_operator(op: ir.Operation) -> bool:
    """Checks that an operator is a chain, and the one that it says it is."""
    try:
        chain = read_chain(op)
    except MalformedChain as error:
        return _fails(error.op, str(error).removeprefix(f"'{error.op.name}' "))
    if (fault := _held_fault(op)) is not None:
        return _fails(op, fault)
    operator = operator_of(chain)
    if op.name != operator_name(operator):
        return _fails(op, f"has the region of a {operator_name(operator)}")
    expected = operator_attributes(operator, chain, op.context)
    for name in TOLD:
        said, read = _text(op.attributes.get(name)), _text(expected.get(name))
        if said != read:
            return _fails(op, f"says that {name} is {said}, and its region that it is {read}")
    return True


def _held_fault(op: ir.Operation) -> str | None:
    """What is wrong with the ops that an operator holds: they read its operands, and give its result."""
    blocks = list(op.regions[HELD].blocks)
    if not blocks:
        return None
    kinds = [value.type for value in op.operands], [value.type for value in op.results]
    ops = [view.operation for view in blocks[0]]
    given = [value.type for value in ops[-1].operands] if ops and ops[-1].name == OUTPUT else None
    if len(blocks) > 1 or [value.type for value in blocks[0].arguments] != kinds[0] or given != kinds[1]:
        return "holds ops that do not read its operands, or do not give its results"
    return None


def _text(value: ir.Attribute | None) -> str:
    return "not told" if value is None else str(value)


def _fails(op: ir.Operation, message: str) -> bool:
    # Never str(op) here: printing verifies.
    op.location.emit_error(f"'{op.name}' op {message}")
    return False
