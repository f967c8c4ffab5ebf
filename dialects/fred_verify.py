"""The verifier of the ``fred`` dialect: a chain is checked as a whole, its parts only for where they stand."""

from torch_mlir import ir

from covan_mlir.dialects.chain_holders import CHAINS
from covan_mlir.dialects.fred_chain import read_chain
from covan_mlir.dialects.fred_fused import read_fusion
from covan_mlir.dialects.fred_steps import MalformedChain

_EXPRESSIONS = ("fred.map", "fred.reduce", "fred.repair")


def _fails(op: ir.Operation, message: str) -> bool:
    # Never str(op) here: printing verifies.
    op.location.emit_error(f"'{op.name}' op {message}")
    return False


def _reported(error: MalformedChain) -> bool:
    message = str(error)
    return _fails(error.op, message.removeprefix(f"'{error.op.name}' "))


def verify_chain(op: ir.Operation) -> bool:
    """Checks all of a ``fred.chain``, and reports the first fault at the op that has it."""
    try:
        read_chain(op)
    except MalformedChain as error:
        return _reported(error)
    return True


def verify_fused(op: ir.Operation) -> bool:
    """Checks all of a ``fred.fused`` but its claims, and reports the first fault at the op that has it."""
    try:
        read_fusion(op)
    except MalformedChain as error:
        return _reported(error)
    return True


def _stands_in(op: ir.Operation, names: tuple[str, ...]) -> bool:
    parent = op.parent
    return parent is not None and parent.operation.name in names


def _must_stand_in(op: ir.Operation, names: tuple[str, ...]) -> bool:
    return _stands_in(op, names) or _fails(op, f"must stand in a {' or a '.join(names)}")


def verify_step(op: ir.Operation) -> bool:
    """Checks that a step stands in a chain, or its fused form, which checks the rest."""
    return _must_stand_in(op, (*CHAINS, "fred.fused", "fred.rolling"))


def verify_output(op: ir.Operation) -> bool:
    """Checks that an output stands in a chain or its fused form."""
    return _must_stand_in(op, (*CHAINS, "fred.fused"))


def verify_sweep(op: ir.Operation) -> bool:
    """Checks that a part of a sweep stands in a fused form, which checks the rest."""
    return _must_stand_in(op, ("fred.fused",))


def verify_line(op: ir.Operation) -> bool:
    """Checks that a part of a loop stands in one."""
    return _must_stand_in(op, ("fred.rolling",))


def verify_inside(op: ir.Operation) -> bool:
    """Checks that a part of an expression stands in a step."""
    return _must_stand_in(op, _EXPRESSIONS)
