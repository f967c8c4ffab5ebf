"""The verifier of the ``fred`` dialect: a chain is checked as a whole, its parts only for where they stand."""

from torch_mlir import ir

from .fred_chain import MalformedChain, read_chain

_STEPS = ("fred.map", "fred.reduce")


def _fails(op: ir.Operation, message: str) -> bool:
    # Never str(op) here: printing verifies.
    op.location.emit_error(f"'{op.name}' op {message}")
    return False


def verify_chain(op: ir.Operation) -> bool:
    """Checks all of a ``fred.chain``, and reports the first fault at the op that has it."""
    try:
        read_chain(op)
    except MalformedChain as error:
        message = str(error)
        return _fails(error.op, message.removeprefix(f"'{error.op.name}' "))
    return True


def _stands_in(op: ir.Operation, names: tuple[str, ...]) -> bool:
    parent = op.parent
    return parent is not None and parent.operation.name in names


def verify_step(op: ir.Operation) -> bool:
    """Checks that a step stands in a chain, which checks the rest."""
    return _stands_in(op, ("fred.chain",)) or _fails(op, "must stand in a fred.chain")


def verify_inside(op: ir.Operation) -> bool:
    """Checks that a part of an expression stands in a step."""
    return _stands_in(op, _STEPS) or _fails(op, "must stand in a fred.map or a fred.reduce")
