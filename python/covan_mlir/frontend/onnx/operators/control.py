"""Branches and loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from onnx import numpy_helper
from torch import Tensor
from torch._higher_order_ops.cond import cond_op
from torch._higher_order_ops.while_loop import while_loop_op

from covan_mlir.frontend.onnx.call import Call, NeedsInput
from covan_mlir.frontend.onnx.graphs import reads
from covan_mlir.frontend.onnx.registry import operator
from covan_mlir.frontend.translation.refused import Refused
from covan_mlir.frontend.translation.value import Item, Value, computed, known_number, passed, tensors_of

UNROLLED = 4096
"""Nodes that a loop of known length is written out to, at most; longer ones are loops of the program."""


def _inputs_of(call: Call, *graphs: Any) -> dict[str, Value]:
    """What graphs read from outside, and the program computes or holds."""
    outside: dict[str, Value] = {}
    for graph in graphs:
        outside |= call.captured(graph)
    return outside


@operator("If")
def if_(call: Call) -> Any:
    """One of two graphs; a condition that is known chooses now."""
    condition = call.value(0)
    branches = call.graph("then_branch"), call.graph("else_branch")
    if condition.known is not None:
        return tuple(call.run(branches[0] if condition.only() else branches[1], []))
    outside = _inputs_of(call, *branches)
    given = [value.tensor for value in outside.values()]

    def branch(graph: Any) -> Any:
        def run(*tensors: Tensor) -> tuple[Tensor, ...]:
            return tuple(t.clone() for t in tensors_of(call.rebound(passed(outside, tensors))(graph, [])))

        return run

    predicate = condition.tensor.reshape(())
    try:
        return tuple(cond_op(predicate, branch(branches[0]), branch(branches[1]), tuple(given)))
    except (Refused, RuntimeError):
        _ask_for(condition)
        raise


@operator("Loop")
def loop(call: Call) -> Any:
    """As often as a number says, while a condition holds."""
    body = call.graph("body")
    carried = list(call.items[2:])
    count = call.value(0) if call.has(0) else None
    condition = call.value(1) if call.has(1) else None
    scans = len(body.output) - 1 - len(carried)
    if (count is None or count.known is not None) and (condition is None or condition.known is not None):
        times = None if count is None else count.only()
        written = _written_out(call, body, carried, times, condition, scans)
        if written is not None:
            return written
    try:
        return _while(call, body, carried, count, condition, scans)
    except (Refused, RuntimeError):
        _ask_for(count, condition)
        raise


def _ask_for(*values: Value | None) -> None:
    """Have fixed what decides how a branch or a loop goes on, where that is computed of inputs alone."""
    names = frozenset[str]().union(*(value.inputs for value in values if value is not None and not value.is_known))
    if names and all(value is None or value.is_known or value.inputs for value in values):
        raise NeedsInput(names)


def _written_out(
    call: Call, body: Any, carried: list[Item], times: int | None, condition: Value | None, scans: int
) -> Any:
    """All turns, one after the other; None: their number is not known, or large."""
    going = condition is None or bool(condition.only())
    limit = max(UNROLLED // max(len(body.node), 1), 1)
    if times is not None and times > limit:
        return None
    rows: list[list[Item]] = [[] for _ in range(scans)]
    turn = 0
    while going and (times is None or turn < times):
        if turn >= limit:
            return None
        given = [known_number(turn, torch.int64), known_number(True, torch.bool), *carried]
        following, *results = call.run(body, given)
        if not isinstance(following, Value) or following.known is None:
            return None
        going = bool(following.only())
        carried, scanned = results[: len(carried)], results[len(carried) :]
        for row, item in zip(rows, scanned, strict=True):
            row.append(item)
        turn += 1
    return (*carried, *(_stacked(row, body.output[1 + len(carried) + k]) for k, row in enumerate(rows)))


def _stacked(row: list[Item], output: Any) -> Any:
    if row:
        return torch.stack(tensors_of(row))
    from covan_mlir.frontend.onnx.dtypes import torch_type

    kind = output.type.tensor_type
    shape = [dim.dim_value for dim in kind.shape.dim]
    return torch.empty([0, *shape], dtype=torch_type(kind.elem_type))


def _while(call: Call, body: Any, carried: list[Item], count: Value | None, condition: Value | None, scans: int) -> Any:
    """A loop of the program. What each turn gives is kept in tensors that are as long as there are turns at most.

    Only what changes goes round: a counter if turns are counted or asked for, and whether to go on if that is computed.
    What stays as it is, compilers take out of loops, and then no value of the loop is left for it.
    """
    start = tensors_of(carried)
    kept = len(start)
    times = None if count is None else count.only()
    always = _always(body)
    if scans and (times is None or not always or (condition is not None and condition.known is None)):
        raise Refused("how many results it gives depends on values")
    if always and count is None:
        raise Refused("it does not end, unless it is not begun")
    outside = _inputs_of(call, body)
    given = [value.tensor for value in outside.values()]
    # In a turn the condition holds: it was looked at before.
    begins = None if condition is None or (condition.known is not None and condition.only()) else condition
    flagged = begins is not None or not always
    counted = count is not None or reads(body, body.input[0].name)

    def turned(turn: Tensor | None, tensors: Sequence[Tensor], outer: Sequence[Tensor]) -> list[Tensor]:
        number = computed(turn) if turn is not None else known_number(0, torch.int64)
        items = [number, known_number(True, torch.bool), *map(computed, tensors)]
        return tensors_of(call.rebound(passed(outside, outer))(body, items))

    rows: list[Tensor] = []
    if scans:
        with call.unmarked():  # calls for their shapes alone
            example = turned(torch.zeros((), dtype=torch.int64), start, given)[1 + kept :]
        rows = [torch.zeros((int(times or 0), *item.shape), dtype=item.dtype) for item in example]
    controls: list[Tensor] = [torch.zeros((), dtype=torch.int64)] if counted else []
    # A limit that is known is a number, and no value that goes into the loop.
    limits = [] if count is None or times is not None else [count.tensor.reshape(())]

    def below(turn: Tensor, limit: Sequence[Tensor]) -> Tensor:
        return torch.lt(turn, limit[0] if limit else int(times or 0))

    def both(going: Tensor, turn: Tensor | None, limit: Sequence[Tensor]) -> Tensor:
        """Whether another turn is taken: one value, for compilers carry no others that decide."""
        return going if turn is None or count is None else torch.logical_and(going, below(turn, limit))

    if flagged:
        going = begins.tensor.reshape(()).clone() if begins is not None else torch.ones((), dtype=torch.bool)
        controls.append(both(going, controls[0] if counted else None, limits))

    def unfinished(*rest: Tensor) -> Tensor:
        return rest[counted].clone() if flagged else below(rest[0], rest[-1:] if limits else ())

    def onwards(*rest: Tensor) -> tuple[Tensor, ...]:
        values = rest[len(controls) :]
        inner, outer = values[: kept + scans], values[kept + scans : len(values) - len(limits)]
        turn, limit = rest[0] if counted else None, rest[-1:] if limits else ()
        results = turned(turn, inner[:kept], outer)
        following = [turn + 1] if turn is not None else []
        if flagged:
            going = results[0].reshape(()).clone() if not always else torch.ones((), dtype=torch.bool)
            following.append(both(going, following[0] if following else None, limit))
        new = [item.clone() for item in results[1 : 1 + kept]]
        filled = [
            row.index_copy(0, turn.reshape(1), item.unsqueeze(0))
            for row, item in zip(inner[kept:], results[1 + kept :], strict=True)
            if turn is not None
        ]
        return (*following, *new, *filled)

    first = (*controls, *(t.clone() for t in start), *rows)
    loop_op: Any = while_loop_op
    last = loop_op(unfinished, onwards, first, (*given, *limits))
    return tuple(last[len(controls) :])


def _always(body: Any) -> bool:
    """Whether a body goes on in any case: it gives back the condition that it is given, or a constant that holds."""
    name = body.output[0].name
    given = body.input[1].name
    for node in reversed(body.node):
        if name in node.output:
            if node.op_type == "Identity":
                name = node.input[0]
                continue
            return node.op_type == "Constant" and _holds(node)
    return bool(name == given) or any(numpy_helper.to_array(t).all() for t in body.initializer if t.name == name)


def _holds(node: Any) -> bool:
    return any(attribute.name == "value" and numpy_helper.to_array(attribute.t).all() for attribute in node.attribute)


@operator("Scan", since=8)
def scan(call: Call) -> Any:
    """A graph, along axes of its inputs."""
    body = call.graph("body")
    items = list(call.items)
    if call.opset < 9:
        return _batched_scan(call, body, items)
    inputs = call.integer("num_scan_inputs")
    states = list(items[: len(items) - inputs])
    sequences = tensors_of(items[len(items) - inputs :])
    axes = call.integers("scan_input_axes") or [0] * inputs
    turned = call.integers("scan_input_directions") or [0] * inputs
    outputs = len(body.output) - len(states)
    out_axes = call.integers("scan_output_axes") or [0] * outputs
    out_turned = call.integers("scan_output_directions") or [0] * outputs
    sequences = [s.movedim(axis, 0) for s, axis in zip(sequences, axes, strict=True)]
    final, rows = _scanned(call, body, states, sequences, turned)
    results = []
    for row, axis, back in zip(rows, out_axes, out_turned, strict=True):
        stacked = row.flip(0) if back else row
        results.append(stacked.movedim(0, axis) if axis else stacked)
    return (*final, *results)


def _scanned(
    call: Call, body: Any, states: list[Item], sequences: list[Tensor], turned: list[int]
) -> tuple[list[Item], list[Tensor]]:
    steps = sequences[0].shape[0]
    if not isinstance(steps, int):
        raise Refused("it has an open number of steps: fix the dimension")
    if steps * len(body.node) > 4 * UNROLLED:
        return _scanned_by_loop(call, body, tensors_of(states), sequences, turned)
    rows: list[list[Item]] = [[] for _ in range(len(body.output) - len(states))]
    for step in range(steps):
        elements = [s[steps - 1 - step if back else step] for s, back in zip(sequences, turned, strict=True)]
        results = call.run(body, [*states, *map(computed, elements)])
        states, given = results[: len(states)], results[len(states) :]
        for row, item in zip(rows, given, strict=True):
            row.append(item)
    return states, [torch.stack(tensors_of(row)) for row in rows]


def _scanned_by_loop(
    call: Call, body: Any, states: list[Tensor], sequences: list[Tensor], turned: list[int]
) -> tuple[list[Item], list[Tensor]]:
    """A loop of the program over very many elements."""
    outside = _inputs_of(call, body)
    given = [value.tensor for value in outside.values()]
    length, kept, count = sequences[0].shape[0], len(states), len(sequences)
    end = torch.full((), length, dtype=torch.int64)

    def step(turn: Tensor, inner: Sequence[Tensor], outer: Sequence[Tensor]) -> list[Tensor]:
        places = [(outer[-1] - 1 - turn if back else turn).reshape(1) for back in turned]
        elements = [s.index_select(0, at).squeeze(0) for s, at in zip(outer[:count], places, strict=True)]
        bound = passed(outside, outer[count:-1])
        return tensors_of(call.rebound(bound)(body, [*map(computed, inner), *map(computed, elements)]))

    first = torch.zeros((), dtype=torch.int64)
    with call.unmarked():  # calls for their shapes alone
        example = step(first, states, [*sequences, *given, end])[kept:]
    memory = [torch.zeros((length, *item.shape), dtype=item.dtype) for item in example]

    def onwards(turn: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        inner, rows, outer = rest[:kept], rest[kept : kept + len(memory)], rest[kept + len(memory) :]
        results = step(turn, inner, outer)
        at = turn.reshape(1)
        filled = [row.index_copy(0, at, item.unsqueeze(0)) for row, item in zip(rows, results[kept:], strict=True)]
        return (turn + 1, *(item.clone() for item in results[:kept]), *filled)

    loop_op: Any = while_loop_op
    carried = (first, *(state.clone() for state in states), *memory)
    last = loop_op(lambda turn, *rest: turn < rest[-1], onwards, carried, (*sequences, *given, end))
    return [computed(item) for item in last[1 : 1 + kept]], list(last[1 + kept :])


def _batched_scan(call: Call, body: Any, items: list[Item]) -> Any:
    """Opset 8: each sequence of a batch by itself."""
    if items[0] is not None:
        raise Refused("its sequences have lengths of their own")
    inputs = call.integer("num_scan_inputs")
    turned = call.integers("directions") or [0] * inputs
    given = tensors_of(items[1:])
    states, sequences = given[: len(given) - inputs], given[len(given) - inputs :]
    finals, rows = [], []
    for index in range(sequences[0].shape[0]):
        final, row = _scanned(call, body, [computed(s[index]) for s in states], [s[index] for s in sequences], turned)
        finals.append(tensors_of(final))
        rows.append(row)
    return tuple(torch.stack(parts) for parts in (*zip(*finals, strict=True), *zip(*rows, strict=True)))
