"""What a ``kir`` operator says of itself, as attributes; and that it is true.

>>> attributes = operator_attributes(operator_of(chain), context)  # doctest: +SKIP
"""

from __future__ import annotations

from torch_mlir import ir

from covan_mlir.dialects.fred_chain import read_chain
from covan_mlir.dialects.fred_data import attribute
from covan_mlir.dialects.fred_steps import MalformedChain
from covan_mlir.kir.operators import Operator
from covan_mlir.kir.recognition import operator_of
from covan_mlir.kir.told import told

_TOLD = ("first", "second", "accumulator", "scales", "results")


def operator_name(operator: Operator) -> str:
    """The name of the op that an operator is."""
    return f"kir.{operator.kind}"


def operator_attributes(operator: Operator, context: ir.Context) -> dict[str, ir.Attribute]:
    """What an operator says of itself."""
    return {name: attribute(value, context) for name, value in told(operator).items()}


def verify_operator(op: ir.Operation) -> bool:
    """Checks that an operator is a chain, and the one that it says it is."""
    try:
        chain = read_chain(op)
    except MalformedChain as error:
        return _fails(error.op, str(error).removeprefix(f"'{error.op.name}' "))
    operator = operator_of(chain)
    if op.name != operator_name(operator):
        return _fails(op, f"has the region of a {operator_name(operator)}")
    expected = operator_attributes(operator, op.context)
    for name in _TOLD:
        said, read = _text(op.attributes.get(name)), _text(expected.get(name))
        if said != read:
            return _fails(op, f"says that {name} is {said}, and its region that it is {read}")
    return True


def _text(value: ir.Attribute | None) -> str:
    return "not told" if value is None else str(value)


def _fails(op: ir.Operation, message: str) -> bool:
    # Never str(op) here: printing verifies.
    op.location.emit_error(f"'{op.name}' op {message}")
    return False
