"""Which parts of an expression depend on what, and taking such parts out of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from covan_mlir.fred.chain import Chain, Map
from covan_mlir.fred.expression import Apply, Const, Expr, Index, Read, Window, reads, substitute, walk


@dataclass(frozen=True)
class Scope:
    """Axes of everything that an expression can read.

    Attributes:
        extra: names that the chain does not define, with their axes: statistics of a moment, parts taken out.
    """

    chain: Chain
    extra: Mapping[str, tuple[str, ...]]

    def axes(self, expr: Expr) -> frozenset[str]:
        """Axes that an expression's value depends on."""
        axes: set[str] = set()
        for node in walk(expr):
            if isinstance(node, Read):
                axes |= set(self.extra[node.name] if node.name in self.extra else self.chain.values[node.name].axes)
            elif isinstance(node, Window):
                axes |= node.axes
            elif isinstance(node, Index):
                axes.add(node.axis)
        return frozenset(axes)

    def inlined(self, expr: Expr, stop: frozenset[str] = frozenset()) -> Expr:
        """The expression with the maps that it reads written out, except those to stop at."""
        while True:
            maps = {
                name: step.expr
                for name in reads(expr)
                if name not in stop and name not in self.extra and isinstance(step := self.chain.values[name], Map)
            }
            if not maps:
                return expr
            expr = substitute(expr, dict(maps))


@dataclass
class Parts:
    """Parts taken out of expressions, equal ones once."""

    prefix: str
    named: dict[Expr, str] = field(default_factory=dict)

    def take(self, expr: Expr, wanted: Callable[[Expr], bool]) -> Expr:
        """The expression with its largest wanted parts replaced by reads of names."""
        if isinstance(expr, Const):
            return expr
        if wanted(expr):
            return Read(self.named.setdefault(expr, f"{self.prefix}{len(self.named)}"), expr.dtype)
        if isinstance(expr, Apply):
            return Apply(expr.op, tuple(self.take(arg, wanted) for arg in expr.args), expr.dtype)
        return expr
