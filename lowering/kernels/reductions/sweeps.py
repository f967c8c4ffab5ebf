"""What a chain looks like to the generator: which sweeps it takes, and what they share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from covan_mlir.fred.chain import Chain, Input, Map, Reduce
from covan_mlir.fred.expression import Apply, Const, Expr, Index, reads, walk
from covan_mlir.lowering.kernels.reductions.hoist import Scope

_COST = {"exp": 12, "tanh": 26, "log": 22, "divf": 8, "sqrt": 10, "erf": 30, "powf": 60, "sin": 40, "cos": 40}


def cost(expr: Expr) -> int:
    """Vector instructions of an expression, roughly."""
    return sum(_instructions(node) for node in walk(expr))


def cost_together(exprs: Iterable[Expr]) -> int:
    """Those of several expressions, of which what they have in common is computed once."""
    return sum(map(_instructions, {node for expr in exprs for node in walk(expr)}))


def _instructions(node: Expr) -> int:
    return _COST.get(node.op.partition(".")[2], 1) if isinstance(node, Apply) else 0


@dataclass(frozen=True)
class Pick:
    """A sum with one term that is not 0: ``value`` where the position on the reduced axis is ``at``."""

    at: Expr
    value: Expr


def pick(chain: Chain, step: Reduce) -> Pick | None:
    """A reduction as the element that it picks: a sum over j of ``select(j == t, value, 0)``, as of a loss."""
    scope = Scope(chain, {})
    expr = scope.inlined(step.expr)
    if step.combine != "add" or len(step.over) != 1 or not isinstance(expr, Apply) or expr.op != "arith.select":
        return None
    asked, value, other = expr.args
    if not isinstance(asked, Apply) or asked.op != "arith.cmpi:eq" or not isinstance(other, Const) or other.value != 0:
        return None
    position = Apply("arith.index_cast", (Index(step.over[0]),), "i64")
    for here, at in (asked.args, asked.args[::-1]):
        if here == position and step.over[0] not in scope.axes(at):
            return Pick(at, value)
    return None


SEVERAL_ROWS = "rows of its reductions have nothing to do with each other"


@dataclass(frozen=True)
class Sweeps:
    """A chain whose reductions all run over the same axes, as sweeps over them, one after the other.

    A value of level n can be computed once n sweeps are done; a reduction is known one level after what it reads.

    Attributes:
        picks: reductions that pick one element read just that one, and take no sweep.
    """

    chain: Chain
    picks: bool = False

    @cached_property
    def picked(self) -> dict[str, Pick]:
        """Reductions that take no sweep."""
        if not self.picks:
            return {}
        picks = {step.name: pick(self.chain, step) for step in self.chain.reductions}
        picked = {name: element for name, element in picks.items() if element is not None}
        return picked if len(picked) < len(picks) else {}  # something has to be swept

    @cached_property
    def over(self) -> frozenset[str]:
        """The reduced axes."""
        return self.chain.swept

    @cached_property
    def level(self) -> dict[str, int]:
        """Level of every value."""
        levels: dict[str, int] = {}
        for value in (*self.chain.inputs, *self.chain.steps):
            if isinstance(value, Input):
                levels[value.name] = 0
            else:
                after = max((levels[name] for name in reads(value.expr)), default=0)
                levels[value.name] = after + (isinstance(value, Reduce) and value.name not in self.picked)
        return levels

    @cached_property
    def rows_have_a_value(self) -> bool:
        """Whether some step has all axes that are not reduced: where rows of reductions have nothing to do with each
        other, a nest over all of them computes each as often as there are others."""
        axes = [{*step.axes} - self.over for step in self.chain.steps]
        return {axis for own in axes for axis in own} in axes

    def element(self, name: str) -> bool:
        """Whether a value has a position on a reduced axis."""
        return not self.over.isdisjoint(self.chain.values[name].axes)

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """Outputs with a position on a reduced axis."""
        return tuple(name for name in dict.fromkeys(self.chain.outputs) if self.element(name))

    @cached_property
    def count(self) -> int:
        """Number of sweeps."""
        return max(
            [self.level[step.name] for step in self.chain.reductions] + [self.level[n] + 1 for n in self.outputs]
        )

    def reductions(self, sweep: int) -> tuple[Reduce, ...]:
        """Reductions that end with a sweep."""
        swept = (step for step in self.chain.reductions if step.name not in self.picked)
        return tuple(step for step in swept if self.level[step.name] == sweep + 1)

    def needed(self, sweep: int) -> frozenset[str]:
        """Element values that a sweep computes, directly or not."""
        needed: set[str] = {name for name in self.outputs if self.level[name] == sweep}
        stack: list[str] = [*needed]
        for step in self.reductions(sweep):
            stack += reads(step.expr)
        while stack:
            name = stack.pop()
            value = self.chain.values[name]
            if self.element(name) and isinstance(value, Map):
                needed.add(name)
                stack += reads(value.expr)
        return frozenset(needed)

    @cached_property
    def shared(self) -> tuple[str, ...]:
        """Costly element values that more than one sweep needs."""
        costly = []
        for step in self.chain.steps:
            if isinstance(step, Map) and self.element(step.name) and cost(step.expr) >= 8:
                sweeps = [s for s in range(self.count) if step.name in self.needed(s)]
                if len(sweeps) > 1 and step.name not in self.outputs:
                    costly.append(step.name)
        return tuple(costly)
