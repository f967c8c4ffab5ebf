"""Inputs in half precision that are read as scalars: a block of them is widened into scratch before it is used.

A scalar in half precision takes a conversion and a move to a vector register per use; a widened block takes one
conversion per vector and is read as a broadcast from memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from covan_mlir.fred.chain import Chain, Input
from covan_mlir.fred.expression import Expr, reads
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Value
from covan_mlir.lowering.kernels.cpu.elements import computed
from covan_mlir.lowering.kernels.cpu.evaluator import Lanes, Position, Result, Uniform, VectorEvaluator


def staged(chain: Chain, reduction_axis: str, lane: str) -> tuple[Input, ...]:
    """Inputs that are worth it: per position of the loop a contiguous row of halves, the same for all lanes."""
    return tuple(
        value
        for value in chain.inputs
        if computed(value.dtype) != value.dtype and lane not in value.axes and value.axes[-2:-1] == (reduction_axis,)
    )


class Staging:
    """Scratch for the widened inputs of one phase at a time.

    Args:
        block: positions of the loop that a phase reads.
    """

    def __init__(
        self, code: KernelBuilder, chain: Chain, sizes: Mapping[str, int], reduction_axis: str, lane: str, block: int
    ) -> None:
        self.code, self.sizes, self.reduction_axis = code, sizes, reduction_axis
        self.inputs = staged(chain, reduction_axis, lane) if code.stages else ()
        self.memory = code.scratch(block * max(map(self._width, self.inputs)), "f32") if self.inputs else None

    def _width(self, value: Input) -> int:
        return -(-self.sizes[value.axes[-1]] // self.code.lanes) * self.code.lanes

    def fill(
        self,
        evaluator: VectorEvaluator,
        exprs: Iterable[Expr],
        start: Value,
        count: Value | int,
        position: Mapping[str, Value],
    ) -> VectorEvaluator:
        """Widens the input that a phase reads -> the phase's evaluator, which reads it here.

        A phase that reads several has them read in place: its scratch holds one.
        """
        names = {name for expr in exprs for name in reads(expr)}
        wanted = [value for value in self.inputs if value.name in names]
        if len(wanted) != 1:
            return evaluator
        (value,) = wanted
        code, memory, width, axis = self.code, self.memory, self._width(value), value.axes[-1]
        in_place = evaluator.sources[value.name]

        def row(n: Value, _: list[Value]) -> list[Value]:
            def chunk(e: Value, none: list[Value], length: int) -> list[Value]:
                valid = None if length == code.lanes else code.prefix(length)
                result = in_place(Position({**position, self.reduction_axis: code.add(start, n), axis: e}, axis, valid))
                assert isinstance(result, Lanes)
                code.store(result.value, memory, code.add(code.mul(n, width), e))
                return none

            code.spans(0, self.sizes[axis], code.lanes, [], chunk)
            return []

        code.loop(0, count, 1, [], row)

        def widened(position: Position) -> Result:
            at = code.mul(code.op("subi", position.index[self.reduction_axis], start), width)
            return Uniform(code.scalar(memory, code.add(at, position.index[axis])))

        return evaluator.reading({value.name: widened})
