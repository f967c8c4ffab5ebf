"""A reduction in single precision beside the same one in double: it is that one, rounded.

torch-mlir computes the mean of a layer norm in f32 and, once more, in f64 for the variance.
"""

from __future__ import annotations

from dataclasses import replace

from covan_mlir.fred.chain import Chain, Map, Reduce, Step
from covan_mlir.fred.expression import Apply, Read
from covan_mlir.lowering.kernels.reductions.hoist import Scope

_WIDER = {("f16", "f32"), ("bf16", "f32"), ("f16", "f64"), ("bf16", "f64"), ("f32", "f64")}


def without_redundant_precision(chain: Chain) -> Chain:
    """The chain with every reduction that a wider one repeats replaced by that one's value, rounded.

    A sum in more bits is no further from the exact one, so nothing is lost.
    """
    scope = Scope(chain, {})
    whole = {step.name: scope.inlined(step.expr) for step in chain.reductions}

    def same(narrow: Reduce, wide: Reduce) -> bool:
        alike = (narrow.axes, narrow.over, narrow.combine) == (wide.axes, wide.over, wide.combine)
        widened = whole[wide.name] == Apply("arith.extf", (whole[narrow.name],), wide.dtype)
        return alike and widened and float(narrow.initial.value) == float(wide.initial.value)

    wider: dict[str, Reduce] = {}
    for narrow in chain.reductions:
        for wide in chain.reductions:
            if (narrow.dtype, wide.dtype) in _WIDER and same(narrow, wide):
                wider[narrow.name] = wide
                break
    steps: list[Step] = []
    defined_early: set[str] = set()
    for step in chain.steps:
        if step.name in defined_early:
            continue
        if step.name not in wider:
            steps.append(step)
            continue
        wide = wider[step.name]
        if all(wide.name != before.name for before in steps):
            # What it reads may be defined later; written out, it reads what the narrow one reads.
            steps.append(replace(wide, expr=Apply("arith.extf", (step.expr,), wide.dtype)))
            defined_early.add(wide.name)
        rounded = Apply("arith.truncf", (Read(wide.name, wide.dtype),), step.dtype)
        steps.append(Map(step.name, step.axes, rounded, step.dtype, step.trace))
    return _live(replace(chain, steps=tuple(steps)))


def _live(chain: Chain) -> Chain:
    needed = {*chain.outputs}.union(*(chain.depends(name) for name in chain.outputs))
    return replace(chain, steps=tuple(step for step in chain.steps if step.name in needed))
