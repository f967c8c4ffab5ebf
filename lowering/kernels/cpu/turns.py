"""Operations on several vectors in turns, one of each after the other.

What is made of a sum may be a chain of operations of which each waits for the one before. Written vector by vector, a
core would have to look hundreds of instructions ahead to find others to do meanwhile::

    a1 = f(a0); a2 = g(a1); b1 = f(b0); b2 = g(b1)        becomes        a1 = f(a0); b1 = f(b0); a2 = g(a1); b2 = g(b1)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import iree.compiler.ir as ir

from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value

TOGETHER = 4
"""Vectors in turns: with more, registers do not hold what is under way, and code gets longer for 1 % of a kernel."""


def in_turns(bodies: Sequence[Callable[[], None]]) -> None:
    """Writes what each of ``bodies`` does, an operation of each after the other; no body depends on what another one
    stores."""
    if len(bodies) == 1:
        bodies[0]()
        return
    aside = ir.Operation.create("scf.execute_region", regions=1)
    waiting: set[Value] = set()
    queues: list[deque[Any]] = []
    for body in bodies:
        block = aside.regions[0].blocks.append()
        with ir.InsertionPoint(block):
            body()
        queues.append(deque(block.operations))
        waiting.update(value for op in queues[-1] for value in op.operation.results)
    while any(queues):
        for queue in queues:
            # A body may read index values that one before it wrote.
            if queue and waiting.isdisjoint(_operands(queue[0])):
                op = queue.popleft()
                op.operation.move_before(aside)
                waiting.difference_update(op.operation.results)
    aside.erase()


def _operands(op: Any) -> Iterator[Value]:
    """What an operation and those inside of it read."""
    yield from op.operation.operands
    for region in op.operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield from _operands(inner)


def rows_in_turns(code: KernelBuilder, rows: Size, vectors: int, row: Callable[[Value], Callable[[int], None]]) -> None:
    """Writes all vectors of some rows, those of several rows in turns; perhaps those of the last one more than once.

    Args:
        row: writes what is the same for a row. -> who writes a vector of it, by number.
    """
    together = max(1, TOGETHER // vectors)
    if isinstance(rows, int):
        together = -(-rows // -(-rows // together))
    last = None if isinstance(rows, int) and rows % together == 0 else code.add(code.size(rows), -1)

    def some(first: Value, none: list[Value]) -> list[Value]:
        places = [code.add(first, n) for n in range(together)]
        if last is not None:
            places = [code.min(at, last) for at in places]
        writers = [row(at) for at in places]
        in_turns([partial(write, u) for write in writers for u in range(vectors)])
        return none

    code.loop(0, rows, together, [], some)
