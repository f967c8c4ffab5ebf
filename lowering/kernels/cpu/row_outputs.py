"""What a chain makes of the sums of a row, into its results: what depends on the row alone is computed once for it.

::

    shift[i] = mean[i];  scale[i] = 1 / sqrt(variance[i] + epsilon)       # once for a row
    y[i, j] = max((sums[i, j] - shift[i]) * scale[i], 0)                  # for each of its vectors
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from covan_mlir.fred.chain import Chain, Input, Reduce
from covan_mlir.fred.expression import Expr, Read, reads
from covan_mlir.lowering.kernels.cpu.builder import KernelBuilder, Size, Value
from covan_mlir.lowering.kernels.cpu.evaluator import Lanes, Position, Result, VectorEvaluator, address, narrow
from covan_mlir.lowering.kernels.reductions.hoist import Parts, Scope

Known = Mapping[str, Result]
"""What is known of a row, by name."""


@dataclass(frozen=True)
class RowOutputs:
    """Writes the results of a chain.

    Attributes:
        step: the reduction whose sums are given.
        fixed: the axes that a row has one position of.
    """

    code: KernelBuilder
    chain: Chain
    step: Reduce
    evaluator: VectorEvaluator
    sizes: Mapping[str, Size]
    fixed: frozenset[str]

    @cached_property
    def _taken(self) -> tuple[Parts, dict[str, Expr]]:
        scope, parts = Scope(self.chain, {}), Parts("row")

        def of_the_row(expr: Expr) -> bool:
            return scope.axes(expr) <= self.fixed

        results = {name: Read(name, self.chain.values[name].dtype) for name in self.chain.outputs}
        return parts, {name: parts.take(scope.inlined(read), of_the_row) for name, read in results.items()}

    @cached_property
    def _streamed(self) -> tuple[Input, ...]:
        """Inputs that have elements of their own for each row."""
        names = dict.fromkeys(name for expr in self._taken[1].values() for name in reads(expr))
        values = [self.chain.values[name] for name in names if name in self.chain.values]
        return tuple(value for value in values if isinstance(value, Input) and self.fixed & {*value.axes})

    def ask(self, index: Mapping[str, Value], lane: str) -> None:
        """Asks for what is read of a row for a vector of results, to be made soon."""
        for value in self._streamed:
            at, distance = address(self.code, value.axes, self.sizes, Position(index, lane))
            if isinstance(distance, int) and distance == 1:
                self.code.prefetch(self.code.memory[value.name], at)

    def known(self, index: Mapping[str, Value]) -> Known:
        """What depends on a row alone.

        Args:
            index: position on the fixed axes.
        """
        position = Position(index, None)
        return {name: self.evaluator.run(part, position) for part, name in self._taken[0].named.items()}

    def write(self, sums: Value, index: Mapping[str, Value], lane: str, valid: Value | None, known: Known) -> None:
        """The results of a vector of sums.

        Args:
            index: position; on the lane axis that of the first one.
            valid: mask of those that exist.
            known: of the row.
        """
        code = self.code
        position = Position(index, lane, valid, {**known, self.step.name: Lanes(sums)})
        for name, expr in self._taken[1].items():
            step = self.chain.values[name]
            at, distance = address(code, step.axes, self.sizes, position)
            value = self.evaluator.vector(expr, position)
            code.scatter(narrow(code, value, step.dtype), code.memory[name], at, distance, valid)
