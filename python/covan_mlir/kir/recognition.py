"""The operator that a chain is.

No name of an operation of the model is looked at, and none of a step: what a chain computes says what it is.
"""

from __future__ import annotations

from dataclasses import replace
from math import isclose, prod

from covan_mlir.fred.chain import Chain, Reduce
from covan_mlir.fred.expression import Apply, Const, Expr, Index, Read, walk
from covan_mlir.kir.operators import Contraction, Dequantization, Kind, Operator, Requantization
from covan_mlir.kir.products import contraction_of
from covan_mlir.kir.quantisation import operands_of, requantization_of, resolved
from covan_mlir.kir.summaries import CONCAT, Summaries
from covan_mlir.kir.tables import table_of

_JOINS: dict[frozenset[str], Kind] = {
    frozenset(["arith.addf"]): "add",
    frozenset(["arith.mulf"]): "mul",
    frozenset([CONCAT]): "concat",
}
_LARGEST = frozenset({"max", "maxnum"})
_MODES = {"add": "sum", "mul": "product", "maxnum": "max", "minnum": "min", "and": "all", "or": "any"}


def operator_of(chain: Chain) -> Operator:
    """What a chain is: each is an operator, if but a ``kernel``."""
    operands = operands_of(chain)
    results = tuple(requantization_of(chain, name) for name in chain.outputs)
    read = tuple(sorted(dict.fromkeys(operands.values()), key=lambda one: [*chain.values].index(one.name)))
    contraction = contraction_of(chain)
    if contraction is not None:
        return Operator(_product_kind(contraction), contraction, results, read, accumulator="i32")
    operator = Operator("kernel", None, results, read)
    return _Reader(chain, operator, operands).read()


def _product_kind(contraction: Contraction) -> Kind:
    factors = (contraction.first, contraction.second)
    if any(factor.outside is not None or any(at.axis is None for at in factor.at) for factor in factors):
        return "convolution"
    shared = factors[0].axes & factors[1].axes
    return "linear" if shared <= {*contraction.over} else "matmul"


class _Reader:
    """Reads what a chain is that multiplies no steps."""

    def __init__(self, chain: Chain, plain: Operator, operands: dict[Expr, Dequantization]) -> None:
        self._chain = chain
        self._plain = plain
        self._operands = operands
        self._summaries = Summaries(chain, operands)
        self._roots = [self._root(*pair) for pair in zip(chain.outputs, plain.results, strict=True)]

    def _root(self, name: str, steps: Requantization | None) -> Expr:
        """What a result is before it is quantised."""
        return Read(name, self._chain.values[name].dtype) if steps is None else steps.real

    def read(self) -> Operator:
        if not self._chain.reductions:
            return self._elementwise()
        accumulators = {step.dtype for step in self._chain.reductions}
        plain = replace(self._plain, accumulator=accumulators.pop() if len(accumulators) == 1 else "")
        if (kind := self._products()) is not None:
            return replace(plain, kind=kind)
        if (softmax := self._softmax()) is not None:
            return replace(plain, kind=softmax[0], over=softmax[1], mode=softmax[2])
        if (over := self._norm()) is not None:
            return replace(plain, kind="norm", over=over)
        if len(self._chain.reductions) == 1:
            return self._reduction(plain, self._chain.reductions[0])
        return plain

    # Without reductions.

    def _elementwise(self) -> Operator:
        kinds = {self._map_kind(*pair) for pair in zip(self._roots, self._plain.results, strict=True)}
        operator = replace(self._plain, kind=kinds.pop() if len(kinds) == 1 else "kernel")
        if operator.kind == "activation":
            return replace(operator, table=table_of(self._chain, operator))
        return replace(operator, over=self._along()) if operator.kind == "concat" else operator

    def _along(self) -> tuple[str, ...]:
        """The axes whose positions are asked for."""
        nodes = (node for step in self._chain.steps for node in walk(step.expr))
        return tuple(dict.fromkeys(node.axis for node in nodes if isinstance(node, Index)))

    def _map_kind(self, root: Expr, result: Requantization | None) -> Kind:
        known = self._summaries.of(root)
        if known.leaves and known.joins:
            return _JOINS.get(known.joins, "kernel")
        if len(known.leaves) != 1:
            return "kernel"
        whole = resolved(self._chain, root)
        if root in self._operands or whole in self._operands:
            return "dequantize" if result is None else "requantize"
        if isinstance(whole, Read):
            return "kernel" if result is None else "quantize"
        return "activation"

    # With reductions.

    def _products(self) -> Kind | None:
        """What products of numbers are, all of one kind, and none of another's results."""
        kinds: set[Kind | None] = {self._product(step) for step in self._chain.reductions}
        names = {step.name for step in self._chain.reductions}
        if len(kinds) != 1 or any(self._chain.depends(name) & names for name in names):
            return None
        return kinds.pop()

    def _product(self, step: Reduce) -> Kind | None:
        factors = resolved(self._chain, step.expr)
        if step.combine != "add" or not isinstance(factors, Apply) or factors.op not in ("arith.mulf", "arith.muli"):
            return None
        first, second = (self._summaries.of(factor) for factor in factors.args)
        if not (first.leaves and second.leaves) or first.axes == second.axes:
            return None
        if not {*step.over} <= first.axes & second.axes:
            return None
        if first.windowed or second.windowed:
            return "convolution"
        return "matmul" if first.axes & second.axes - {*step.over} else "linear"

    def _softmax(self) -> tuple[Kind, tuple[str, ...], str] | None:
        """-> (what it is, the axes, the mode) of a chain that is about one softmax."""
        reductions = self._chain.reductions
        totals = [step for step in reductions if self._exponential(step)]
        largest = [step for step in reductions if step.combine in _LARGEST]
        if len(totals) != 1 or len(largest) != 1 or {*totals[0].over} != {*largest[0].over}:
            return None
        (total,), (top,) = totals, largest
        if top.name not in self._chain.depends(total.name):
            return None
        others = [step for step in reductions if step not in (total, top) and step.combine not in ("and", "or")]
        behind = [step for step in others if total.name in self._chain.depends(step.name)]
        if not others:
            root = self._summaries.of(self._roots[0])
            if total.name not in root.leaves or not {*total.over} <= root.axes:
                return None
            return "softmax", total.over, "log" if "math.log" in root.ops else ""
        ahead = self._chain.depends(top.name)
        scores = [step for step in others if step.name in ahead]
        if len(scores) != 1 or len(behind) != 1 or len(others) != 2 or not all(map(self._product, others)):
            return None
        return "attention", total.over, ""

    def _exponential(self, step: Reduce) -> bool:
        expr = resolved(self._chain, step.expr)
        return step.combine == "add" and isinstance(expr, Apply) and expr.op in ("math.exp", "math.exp2")

    def _norm(self) -> tuple[str, ...] | None:
        """The axes of a norm: results less their mean, or as they are, over the root of their squares' mean."""
        reductions = self._chain.reductions
        over = {frozenset(step.over) for step in reductions}
        if len(over) != 1 or {step.combine for step in reductions} != {"add"}:
            return None
        # What is added before a norm may be a result, too.
        roots = [root for root in map(self._summaries.of, self._roots) if root.ops & {"math.rsqrt", "math.sqrt"}]
        squares = any(self._square(step) for step in reductions)
        if not squares or not roots or any(not {*reductions[0].over} <= root.axes for root in roots):
            return None
        return reductions[0].over

    def _square(self, step: Reduce) -> bool:
        expr = resolved(self._chain, step.expr)
        if not isinstance(expr, Apply) or expr.op != "arith.mulf":
            return False
        first, second = (resolved(self._chain, arg) for arg in expr.args)
        return first == second

    def _reduction(self, plain: Operator, step: Reduce) -> Operator:
        inside, root = self._summaries.of(step.expr), self._summaries.of(self._roots[0])
        if len(inside.leaves) != 1 or root.leaves != {step.name} or len(self._roots) != 1:
            return plain
        mode = "average" if self._averaged(step) else _MODES.get(step.combine, step.combine)
        kind: Kind = "pooling" if inside.windowed or mode == "average" else "reduction"
        return replace(plain, kind=kind, over=step.over, mode=mode)

    def _averaged(self, step: Reduce) -> bool:
        """Whether its sums are divided by how many there are."""
        if step.combine != "add":
            return False
        sizes = [self._chain.sizes[axis] for axis in step.over]
        count = None if None in sizes else prod(size for size in sizes if size is not None)
        for node in (node for one in self._behind(step) for node in walk(one)):
            if not isinstance(node, Apply) or node.op not in ("arith.divf", "arith.mulf"):
                continue
            total, factor = node.args[0], resolved(self._chain, node.args[1])
            if resolved(self._chain, total) != Read(step.name, step.dtype) or self._summaries.of(factor).leaves:
                continue
            if node.op == "arith.divf":
                return not isinstance(factor, Const) or self._summaries.of(step.expr).windowed or factor.value == count
            if count is not None and isinstance(factor, Const) and isclose(factor.value, 1 / count, rel_tol=1e-3):
                return True
        return False

    def _behind(self, step: Reduce) -> list[Expr]:
        return [self._roots[0], *(one.expr for one in self._chain.steps if step.name in self._chain.depends(one.name))]
