"""Action states in the IR: reading ``prov.perform`` with all that belongs to it, and the verifiers."""

from dataclasses import dataclass
from typing import Any

from torch_mlir import ir


@dataclass(frozen=True)
class Execution:
    """One execution of an op: ``x → (op, x) → y``."""

    perform: ir.Operation
    action: ir.Operation
    """The op, in the region of ``perform``."""

    enters: tuple[ir.Operation, ...]
    """A ``prov.enter`` for each argument of the region, in order."""

    leaves: tuple[ir.Operation, ...]
    """A ``prov.leave`` for each result of the action, in order."""


class Malformed(ValueError):
    """What is wrong with an execution."""


def state_trace(perform: ir.Operation) -> tuple[int, ...] | None:
    """The ids in the attribute ``trace`` of a ``prov.perform``, or None if it is malformed."""
    (ids,) = ir.DynamicAttr(perform.attributes["trace"]).params
    numbers: list[Any] = [getattr(element, "value", None) for element in ids.maybe_downcast()]
    if not all(type(number) is int and number >= 0 for number in numbers) or sorted(set(numbers)) != numbers:
        return None
    return tuple(numbers)


def _children(op: ir.Operation) -> list[ir.Operation]:
    children: list[ir.Operation] = []

    # Not by iterating blocks, which makes a Python view of every op.
    def visit(nested: ir.Operation) -> ir.WalkResult:
        if nested == op:
            return ir.WalkResult.ADVANCE
        children.append(nested)
        return ir.WalkResult.SKIP

    op.walk(visit, ir.WalkOrder.PRE_ORDER)
    return children


def read_execution(perform: ir.Operation) -> Execution:
    """What belongs to a ``prov.perform``.

    Raises:
        Malformed: it is no execution of one op; a verified module has no such.
    """
    blocks = list(perform.regions[0].blocks)
    children = _children(perform)
    if len(blocks) != 1 or not children:
        raise Malformed("must hold one block with one op, the action, and a prov.result for each of its results")
    action, *results = children
    if any(op.name != "prov.result" for op in results) or [op.operands[0] for op in results] != list(action.results):
        raise Malformed(f"must hold '{action.name}' and then a prov.result for each of its results, in order")
    arguments = list(blocks[0].arguments)
    operands = list(action.operands)
    if operands != arguments[: len(operands)]:
        raise Malformed(f"'{action.name}' must read the block's first arguments, each once and in order")

    state = perform.results[0]
    enters: list[ir.Operation] = []
    for number, argument in enumerate(arguments):
        users = [use.owner.operation for use in state.uses]
        if [user.name for user in users] != ["prov.enter"] or len(users[0].operands) != 2:
            raise Malformed(f"its input {number} must be entered, once, by a prov.enter")
        (enter,) = users
        if enter.operands[1].type != argument.type:
            raise Malformed(f"its input {number} is a {argument.type}, and a {enter.operands[1].type} is entered")
        enters.append(enter)
        state = enter.results[0]
    leaves: dict[int, ir.Operation] = {}
    for use in state.uses:
        leave = use.owner.operation
        index = leave.attributes["index"].value if "index" in leave.attributes else None
        if leave.name != "prov.leave" or index is None or index in leaves:
            raise Malformed("its action state must be left by one prov.leave for each result, and used by nothing else")
        leaves[index] = leave
    if leaves.keys() != set(range(len(results))):
        raise Malformed(f"has {len(results)} results, and is left with the results {sorted(leaves)}")
    for index, leave in leaves.items():
        if leave.results[0].type != action.results[index].type:
            kind = action.results[index].type
            raise Malformed(f"its result {index} is a {kind}, and is left as a {leave.results[0].type}")
    return Execution(perform, action, tuple(enters), tuple(leaves[i] for i in range(len(results))))


def _fails(op: ir.Operation, message: str) -> bool:
    # Never str(op) here: printing verifies.
    op.location.emit_error(f"'{op.name}' op {message}")
    return False


def verify_perform(op: ir.Operation) -> bool:
    """Checks a whole execution."""
    if state_trace(op) is None:
        return _fails(op, f"trace must hold ids in ascending order, got {op.attributes['trace']}")
    try:
        action = read_execution(op).action
    except Malformed as error:
        return _fails(op, str(error))
    if action.name != op.attributes["op"].value:
        return _fails(op, f"is the execution of {op.attributes['op']} and holds '{action.name}'")
    return True


def verify_step(op: ir.Operation) -> bool:
    """Checks that a state to go on from, or to leave, is one of a ``prov.perform``, which checks the rest."""
    owner = op.operands[0].owner
    if isinstance(owner, ir.Block) or owner.operation.name not in ("prov.perform", "prov.enter"):
        return _fails(op, "must go on from a prov.perform or a prov.enter")
    return True


def verify_result(op: ir.Operation) -> bool:
    """Checks that a ``prov.result`` stands where it says something."""
    parent = op.parent
    if parent is None or parent.operation.name != "prov.perform":
        return _fails(op, "must stand in a prov.perform")
    return True
