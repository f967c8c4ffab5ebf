"""What range an expression's value has, on the reals: signs and bounds that rewrites depend on."""

from __future__ import annotations

import math
from dataclasses import dataclass

from covan_mlir.fred.chain import Chain, Map, Reduce
from covan_mlir.fred.expression import Apply, Const, Expr, Read, walk

INF = math.inf


@dataclass(frozen=True)
class Range:
    """A closed interval; ``positive`` excludes zero from one that begins there."""

    low: float = -INF
    high: float = INF
    positive: bool = False

    @property
    def is_positive(self) -> bool:
        """Whether all of it is above zero."""
        return self.low > 0 or (self.low == 0 and self.positive)

    @property
    def is_bounded(self) -> bool:
        """Whether it lies between -1 and 1."""
        return self.low >= -1 and self.high <= 1


def _times(a: float, b: float) -> float:
    return 0.0 if a == 0 or b == 0 else a * b


def _product(a: Range, b: Range) -> Range:
    corners = [_times(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return Range(min(corners), max(corners), a.is_positive and b.is_positive)


def _exp(x: float) -> float:
    return INF if x > 700 else math.exp(x)


class Bounds:
    """Ranges of a chain's values, computed when asked for."""

    def __init__(self, chain: Chain) -> None:
        self.chain = chain
        self._named: dict[str, Range] = {}

    def of_name(self, name: str) -> Range:
        """Range of a named value; the moment that a suffix says is ignored: a prefix of a row is a row."""
        name = name.partition(".")[0]
        if name not in self._named:
            self._named[name] = Range()
            value = self.chain.values.get(name)
            if isinstance(value, Map):
                self._named[name] = self.of(value.expr)
            elif isinstance(value, Reduce):
                self._named[name] = self._of_reduction(value)
            elif name == "count":
                self._named[name] = Range(1)
        return self._named[name]

    def _of_reduction(self, step: Reduce) -> Range:
        inner = self.of(step.expr)
        if step.combine in ("max", "min", "maxnum", "minnum"):
            return inner
        if step.combine == "add" and inner.low >= 0:
            # The element with the largest argument contributes exp(0); the others are not negative.
            at_most = self._distance_below_maximum(step)
            return Range(1.0 if at_most else 0.0, INF, inner.is_positive)
        return Range()

    def _distance_below_maximum(self, step: Reduce) -> bool:
        expr = step.expr
        return (
            isinstance(expr, Apply)
            and expr.op == "math.exp"
            and (maximum := self._below_maximum(expr.args[0])) is not None
            and maximum.over == step.over
        )

    def _below_maximum(self, expr: Expr) -> Reduce | None:
        """The reduction ``r = max(e)`` if the expression is ``e - r``."""
        if isinstance(expr, Apply) and expr.op == "arith.subf" and isinstance(expr.args[1], Read):
            value = self.chain.values.get(expr.args[1].name)
            if isinstance(value, Reduce) and value.combine in ("max", "maxnum") and value.expr == expr.args[0]:
                return value
        return None

    def of(self, expr: Expr) -> Range:
        """Range of an expression over the chain's names."""
        ranges: dict[int, Range] = {}
        for node in walk(expr):
            ranges[id(node)] = self._of_node(
                node, [ranges[id(a)] for a in node.args] if isinstance(node, Apply) else []
            )
        return ranges[id(expr)]

    def _of_node(self, node: Expr, args: list[Range]) -> Range:
        if isinstance(node, Const):
            value = float(node.value)
            return Range() if math.isnan(value) else Range(value, value)
        if isinstance(node, Read):
            return self.of_name(node.name)
        if not isinstance(node, Apply):
            return Range(0)
        name = node.op.partition(".")[2]
        if name in ("extf", "truncf"):
            return args[0]
        if name == "negf":
            return Range(-args[0].high, -args[0].low)
        if name == "addf":
            return Range(args[0].low + args[1].low, args[0].high + args[1].high, any(a.is_positive for a in args))
        if name == "subf":
            if self._below_maximum(node) is not None:
                return Range(-INF, 0)
            low, high = args[0].low - args[1].high, args[0].high - args[1].low
            return Range(-INF if math.isnan(low) else low, INF if math.isnan(high) else high)
        if name == "mulf":
            if node.args[0] == node.args[1]:
                return Range(0, INF, args[0].is_positive)
            return _product(args[0], args[1])
        if name == "divf":
            if args[1].is_positive:
                inverse = Range(
                    0 if args[1].high == INF else 1 / args[1].high, INF if args[1].low <= 0 else 1 / args[1].low, True
                )
                return _product(args[0], inverse)
            return Range()
        if name in ("exp", "exp2"):
            return Range(_exp(args[0].low), _exp(args[0].high) if args[0].high != 0 else 1.0, True)
        if name in ("sqrt", "absf", "rsqrt"):
            return Range(0, INF, args[0].is_positive or name == "rsqrt")
        if name == "log":
            return Range(math.log(args[0].low) if args[0].low > 0 else -INF, INF)
        if name in ("tanh", "sin", "cos", "erf"):
            return Range(-1, 1)
        if name in ("maximumf", "maxnumf"):
            return Range(max(a.low for a in args), max(a.high for a in args), any(a.is_positive for a in args))
        if name in ("minimumf", "minnumf"):
            return Range(min(a.low for a in args), min(a.high for a in args), all(a.is_positive for a in args))
        if name == "select":
            return Range(
                min(a.low for a in args[1:]), max(a.high for a in args[1:]), all(a.is_positive for a in args[1:])
            )
        if name in ("sitofp", "uitofp", "index_cast", "index_castui"):
            return args[0]
        return Range()
