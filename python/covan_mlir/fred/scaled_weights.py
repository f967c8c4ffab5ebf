"""Factors of sums of products that are multiplied with the weights ahead of time: those of a batch norm.

::

    s[k, h, w] = reduce(add, (c, r, s), x[...] * f[k, c, r, s])
    y[k, h, w] = s[k, h, w] * scale[k] + shift[k]

is computed as::

    f_scaled[k, c, r, s] = f[k, c, r, s] * scale[k]                 once
    s[k, h, w] = reduce(add, (c, r, s), x[...] * f_scaled[k, c, r, s])
    y[k, h, w] = s[k, h, w] + shift[k]

Each product is rounded once more, and each sum once less.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache

from covan_mlir.fred.chain import Chain, Input, Map, Reduce, Step
from covan_mlir.fred.expression import Apply, Expr, Read, Window, rebuild, substitute, walk
from covan_mlir.fred.scalars import is_float


@dataclass(frozen=True)
class ScaledWeight:
    """A weight and the vector that multiplies it, both as inputs of the chain that has them apart."""

    weight: Input
    factor: Input

    @property
    def name(self) -> str:
        """Of their product."""
        return f"{self.weight.name}_scaled"

    @property
    def step(self) -> Map:
        """What multiplies them."""
        dtype = self.weight.dtype
        product = Apply("arith.mulf", (Read(self.weight.name, dtype), Read(self.factor.name, dtype)), dtype)
        return Map(self.name, self.weight.axes, product, dtype)


@dataclass(frozen=True)
class Scaled:
    """A chain whose weights are scaled.

    Attributes:
        chain: what is computed at each call.
        weights: what is computed once.
    """

    chain: Chain
    weights: tuple[ScaledWeight, ...] = ()

    @property
    def steps(self) -> tuple[Step, ...]:
        """What is computed once, and what at each call."""
        return (*(weight.step for weight in self.weights), *self.chain.steps)


@lru_cache(1024)
def scaled(chain: Chain) -> Scaled:
    """A chain with the factors of its sums in their weights, where each is read there and nowhere else."""
    result = Scaled(chain)
    for step in chain.reductions:
        pair = _pair(result.chain, result.chain.values[step.name])
        if pair is not None:
            result = Scaled(_with(result.chain, step, pair), (*result.weights, pair))
    return result


def _pair(chain: Chain, step: Input | Step) -> ScaledWeight | None:
    """The weight of a sum of products, and the factor of the sum."""
    if not isinstance(step, Reduce) or step.combine != "add" or not is_float(step.dtype) or step.name in chain.outputs:
        return None
    counts = _uses(chain)
    product = step.expr
    if not isinstance(product, Apply) or product.op != "arith.mulf" or counts[step.name] != 1:
        return None
    weights = [value for arg in product.args if (value := _weight(chain, arg, counts)) is not None]
    factor = next((_weight(chain, _other(node, step), counts) for node in _multiplied(chain, step)), None)
    if len(weights) != 1 or factor is None:
        return None
    weight = weights[0]
    pair = ScaledWeight(weight, factor)
    if pair.name in chain.values:
        return None
    known = None not in [chain.sizes[axis] for axis in weight.axes]
    same = weight.dtype == factor.dtype == step.dtype
    return pair if known and same and {*factor.axes} <= {*weight.axes} & {*step.axes} else None


def _uses(chain: Chain) -> Counter[str]:
    """How often steps read each value. A read is one node where it is an operand twice."""
    uses: Counter[str] = Counter()
    for step in chain.steps:
        operands = [step.expr, *(arg for node in walk(step.expr) if isinstance(node, Apply) for arg in node.args)]
        uses.update(node.name for node in operands if isinstance(node, Read | Window))
    return uses


def _weight(chain: Chain, expr: Expr, counts: Counter[str]) -> Input | None:
    """The weight that an expression reads, which nothing else does."""
    value = chain.values[expr.name] if isinstance(expr, Read) and counts[expr.name] == 1 else None
    return value if isinstance(value, Input) and value.weight else None


def _multiplied(chain: Chain, step: Reduce) -> list[Apply]:
    """The products of which one factor is a sum."""
    return [
        node
        for other in chain.steps
        for node in walk(other.expr)
        if isinstance(node, Apply) and node.op == "arith.mulf" and Read(step.name, step.dtype) in node.args
    ]


def _other(product: Apply, step: Reduce) -> Expr:
    left, right = product.args
    return right if left == Read(step.name, step.dtype) else left


def _with(chain: Chain, step: Reduce, pair: ScaledWeight) -> Chain:
    """A chain with one factor in its weight."""
    (product,) = _multiplied(chain, step)
    read = Read(pair.name, pair.weight.dtype)

    def change(node: Expr) -> Expr:
        return Read(step.name, step.dtype) if node == product else node

    steps: list[Step] = []
    renamed: dict[str, Expr] = {}
    for before in chain.steps:
        after: Step = replace(
            before, expr=substitute(rebuild(before.expr, change), {pair.weight.name: read, **renamed})
        )
        if isinstance(after, Map) and after.expr == Read(step.name, step.dtype) and after.axes == step.axes:
            # What is left is the sum, under a name that may be a result's.
            position = next(n for n, value in enumerate(steps) if value.name == step.name)
            steps[position] = replace(steps[position], name=after.name, trace=steps[position].trace | after.trace)
            renamed[step.name] = Read(after.name, after.dtype)
        else:
            steps.append(after)
    weight = replace(pair.weight, name=pair.name)
    inputs = tuple(weight if value == pair.weight else value for value in chain.inputs if value != pair.factor)
    return replace(chain, inputs=inputs, steps=tuple(steps))
