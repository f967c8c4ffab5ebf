"""Inputs in half precision that are read as scalars: a block of them is widened into scratch before it is used.

A scalar in half precision takes a conversion and a move to a vector register per use; a widened block takes one
conversion per vector and is read as a broadcast from memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from covan_mlir.fred.chain import Chain, Input
from covan_mlir.fred.expression import Expr, reads
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Value, computed
from covan_mlir.lowering.kernels.cpu.evaluator import Lanes, Position, Result, Source, Uniform, VectorEvaluator
from covan_mlir.lowering.kernels.reductions.hoist import Scope


def staged(chain: Chain, stream: str, lane: str) -> tuple[Input, ...]:
    """Inputs that are worth it: per position of the loop a contiguous row of halves, the same for all lanes."""
    return tuple(
        value
        for value in chain.inputs
        if computed(value.dtype) != value.dtype and lane not in value.axes and value.axes[-2:-1] == (stream,)
    )


class Staging:
    """Scratch for the widened inputs of one phase at a time."""

    def __init__(
        self, code: KernelBuilder, names: Scope, sizes: Mapping[str, int], stream: str, lane: str, block: int
    ) -> None:
        self.code, self.names, self.sizes, self.stream, self.block = code, names, sizes, stream, block
        self.inputs = staged(names.chain, stream, lane) if code.stages else ()
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
    ) -> None:
        """Widens the input that a phase reads, and makes the phase read it here.

        A phase that reads several has them read in place: its scratch holds one.
        """
        read = {name for expr in exprs for name in reads(expr)}
        wanted = [value for value in self.inputs if value.name in read]
        if len(wanted) != 1:
            return
        (value,) = wanted
        code, memory, width, axis = self.code, self.memory, self._width(wanted[0]), wanted[0].axes[-1]
        original = evaluator.sources[value.name]

        def row(n: Value, _: list[Value]) -> list[Value]:
            def chunk(e: Value, none: list[Value], length: int) -> list[Value]:
                valid = None if length == code.lanes else code.prefix(length)
                place = Position({**position, self.stream: code.add(start, n), axis: e}, axis, valid)
                result = original(place)
                assert isinstance(result, Lanes)
                code.store(result.value, memory, code.add(code.mul(n, width), e))
                return none

            code.spans(0, self.sizes[axis], code.lanes, [], chunk)
            return []

        code.loop(0, count, 1, [], row)

        def widened(place: Position) -> Result:
            at = code.mul(code.op("subi", place.index[self.stream], start), width)
            return Uniform(code.scalar(memory, code.add(at, place.index[axis])))

        evaluator.sources[value.name] = widened

    def restore(self, evaluator: VectorEvaluator, sources: Mapping[str, Source]) -> None:
        """Makes the inputs be read where they are, as before."""
        for value in self.inputs:
            evaluator.sources[value.name] = sources[value.name]
