"""A function of the torch dialect, rewritten to what steps of a search make of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch_mlir import ir

from covan_mlir.dialects.identity import address
from covan_mlir.passes.framework.rewriter import Rewriter
from covan_mlir.passes.substitution.reading import Call, Reading
from covan_mlir.passes.substitution.replay import Replay
from covan_mlir.passes.substitution.writing import Writer, Written
from covan_mlir.subst.program import behind


@dataclass
class Rewritten:
    """What was changed.

    Attributes:
        changed: positions of the calls that stayed and read something else now.
        gone: positions of those that went.
        written: operations that are new.
        values: by node, what gives it now.
    """

    changed: list[int]
    gone: list[int]
    written: list[Written]
    values: dict[int, ir.Value]


def rewrite(function: ir.Operation, reading: Reading, replayed: Replay, reason: str) -> Rewritten:
    """Rewrite a function.

    Calls stay that still are what they were, perhaps on other operands. What they no longer are is written anew; what
    nobody needs any more goes.

    Args:
        reason: why the ids of operations end here that no new one carries.
    """
    after, store = replayed.after, reading.store
    rewriter = Rewriter(function)
    needed = set(behind(store, [after[reading.nodes[value]] for value in reading.roots]))
    stays: list[bool] = []
    values: dict[int, ir.Value] = {}
    for value, number in reading.nodes.items():
        if isinstance(value.owner, ir.Block):
            values.setdefault(after[number], value)
    kept = set(values.values())
    changed, replacing = [], []
    for position, (call, results) in enumerate(zip(reading.calls, reading.results, strict=True)):
        operands = [after[reading.nodes[value]] for value in call.tensors]
        now = reading.results_on(call, operands)
        same = now == tuple(after[number] for number in results)
        stays.append(same)
        if same:
            kept.update(call.op.results)
            for value, number in zip(call.op.results, now, strict=True):
                values.setdefault(number, value)
        elif needed & {after[number] for number in results}:
            replacing.append(position)
    readers: dict[int, list[int]] = {}
    for number in sorted(needed):
        for arg in store[number].args:
            readers.setdefault(arg, []).append(number)
    (block,) = function.regions[0].blocks
    positions = {address(call.op): position for position, call in enumerate(reading.calls)}
    used = {address(view.operation) for view in block if _is_used(view.operation)}
    ops = [reading.calls[position].op for position in replacing]
    doing = {position for owners in replayed.owners.values() for position in owners} - set(replacing)
    copies = [reading.calls[position].op for position in sorted(doing)]
    end = ir.InsertionPoint(list(block)[-1])
    with rewriter.replacing(*ops, copies=copies, at=end, reason=reason) as new:

        def location(number: int) -> ir.Location:
            own = replayed.owners.get(number) or frozenset(replacing)
            return rewriter.location_of(*(reading.calls[position].op for position in sorted(own)))

        writer = Writer(store, dict(values), readers, location, function.context)
        for position, call in enumerate(reading.calls):
            live = not needed.isdisjoint(after[number] for number in reading.results[position])
            if stays[position] and live and _read_instead(call, reading, kept, after, writer):
                changed.append(position)
        for position in replacing:
            call, results = reading.calls[position], reading.results[position]
            given = [writer.value(after[number]) if after[number] in needed else None for number in results]
            new.results(*given, of=call.op)
    _order(block)
    gone = _erase(block, positions, rewriter, used, reason)
    return Rewritten(changed, sorted({*replacing, *gone}), writer.written, writer.values)


def _read_instead(call: Call, reading: Reading, kept: set[ir.Value], after: dict[int, int], writer: Writer) -> bool:
    """Has a call read what its operands have become; whether that is anything else."""
    different = False

    def now(value: ir.Value) -> ir.Value:
        nonlocal different
        if value in kept:
            return value
        given = writer.value(after[reading.nodes[value]])
        different = different or given != value
        return given

    for place, value in enumerate(list(call.op.operands)):
        if value in reading.lists:
            items = reading.lists[value]
            instead = [now(item) for item in items]
            if instead != list(items):
                with call.op.location, ir.InsertionPoint(call.op):
                    other = ir.Operation.create("torch.prim.ListConstruct", results=[value.type], operands=instead)
                call.op.operands[place] = other.result
        elif value in reading.nodes:
            call.op.operands[place] = now(value)
    if len(call.op.regions):
        for value in call.tensors:
            instead_of = now(value)
            if instead_of != value:
                _inside(call.op, value, instead_of)
    return different


def _inside(op: ir.Operation, value: ir.Value, instead: ir.Value) -> None:
    """Has operations in an operation's regions read another value."""
    for region in op.regions:
        for block in region:
            for view in block:
                for place, operand in enumerate(view.operation.operands):
                    if operand == value:
                        view.operation.operands[place] = instead
                _inside(view.operation, value, instead)


def _is_used(op: ir.Operation) -> bool:
    return not len(op.results) or any(True for result in op.results for _ in result.uses)


def _erase(block: ir.Block, calls: Mapping[int, int], rewriter: Rewriter, used: set[int], reason: str) -> list[int]:
    """Erases what somebody needed before and nobody does now; positions of the calls among it."""
    gone = []
    for view in reversed(list(block)):
        op = view.operation
        number = address(op)
        if number in used and not _is_used(op):
            if number in calls:
                gone.append(calls[number])
            rewriter.erase(op, reason)
    return gone


def _order(block: ir.Block) -> None:
    """Brings operations behind what they read, and otherwise leaves them in their order."""
    ops = [view.operation for view in block]
    *inner, end = ops
    place = {address(op): op for op in inner}
    done: set[int] = set()
    ordered: list[ir.Operation] = []
    stack = [(op, False) for op in reversed(inner)]
    while stack:
        op, ready = stack.pop()
        number = address(op)
        if ready:
            if number not in done:
                done.add(number)
                ordered.append(op)
            continue
        if number in done:
            continue
        stack.append((op, True))
        for source in reversed(_sources(op)):
            if address(source) in place and address(source) not in done:
                stack.append((source, False))
    for op in ordered:
        op.move_before(end)


def _sources(op: ir.Operation) -> list[ir.Operation]:
    """The operations whose values an operation, or what is in it, reads."""
    sources = []
    for value in op.operands:
        if not isinstance(value.owner, ir.Block):
            sources.append(value.owner.operation)
    for region in op.regions:
        for block in region:
            for view in block:
                sources += _sources(view.operation)
    return sources
