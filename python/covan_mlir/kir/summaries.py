"""What expressions of a chain are computed from: as far as the next inputs and reductions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from covan_mlir.fred.chain import Chain, Map, Reduce
from covan_mlir.fred.expression import Apply, Expr, Index, Read, Window, walk
from covan_mlir.kir.operators import Dequantization

CONCAT = "concat"
"""What joins values of which the position says which is read."""


@dataclass(frozen=True)
class Summary:
    """What an expression is computed from.

    Attributes:
        leaves: inputs and reductions, by name.
        axes: that it depends on.
        joins: operations that join values with different leaves.
        ops: all operations.
        positions: it depends on where it is computed.
        windowed: something is read through a window.
    """

    leaves: frozenset[str] = frozenset()
    axes: frozenset[str] = frozenset()
    joins: frozenset[str] = frozenset()
    ops: frozenset[str] = frozenset()
    positions: bool = False
    windowed: bool = False


class Summaries:
    """Those of the expressions of a chain; steps that are read as numbers are leaves, with what they stand for."""

    def __init__(self, chain: Chain, operands: Mapping[Expr, Dequantization]) -> None:
        self._chain = chain
        self._operands = operands
        self._steps: dict[str, Summary] = {}
        for step in chain.steps:
            whole = self.of(step.expr)
            self._steps[step.name] = (
                whole if isinstance(step, Map) else Summary(frozenset([step.name]), frozenset(step.axes))
            )

    def of(self, expr: Expr) -> Summary:
        """That of an expression over steps that stand before it, or all."""
        known: dict[int, Summary] = {}
        for node in walk(expr):
            known[id(node)] = self._node(node, known)
        return known[id(expr)]

    def _node(self, node: Expr, known: Mapping[int, Summary]) -> Summary:
        if (one := self._operands.get(node)) is not None:
            return self._leaf(one.steps)
        if isinstance(node, Read | Window):
            return self._leaf(node)
        if isinstance(node, Index):
            return Summary(axes=frozenset([node.axis]), positions=True)
        if not isinstance(node, Apply):
            return Summary()
        args = [known[id(arg)] for arg in node.args]
        sets = {one.leaves for one in args if one.leaves}
        name = node.op
        if name == "arith.select" and args[0].positions and not args[0].leaves:
            name = CONCAT
        return Summary(
            frozenset().union(*(one.leaves for one in args)),
            frozenset().union(*(one.axes for one in args)),
            frozenset().union(*(one.joins for one in args), [name] if len(sets) > 1 else []),
            frozenset([name]).union(*(one.ops for one in args)),
            any(one.positions for one in args),
            any(one.windowed for one in args),
        )

    def _leaf(self, node: Read | Window) -> Summary:
        if isinstance(node, Window):
            return Summary(frozenset([node.name]), node.axes, windowed=True)
        if node.name in self._steps:
            return self._steps[node.name]
        value = self._chain.values[node.name]
        assert not isinstance(value, Map | Reduce)
        return Summary(frozenset([node.name]), frozenset(value.axes))
