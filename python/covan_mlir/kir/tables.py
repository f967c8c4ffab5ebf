"""Functions from steps to steps, of which there are few enough to write all of their values down."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from covan_mlir.fred.chain import Axis, Chain, Map, Reduce
from covan_mlir.fred.expression import Apply, Extent, Index, Read, walk
from covan_mlir.fred.scalars import is_known
from covan_mlir.kir.evaluation import run
from covan_mlir.kir.operators import Operator

_AXIS = "step"
_STEPS = 256


def table_of(chain: Chain, operator: Operator) -> tuple[int, ...]:
    """What becomes of each step that may be read, from the least one on; empty where that is not all that is read."""
    results = [one for one in operator.results if one is not None]
    if len(results) != len(operator.results) or len(operator.operands) != len(chain.inputs) or len(chain.inputs) != 1:
        return ()
    (one,), result = operator.operands, results[0]
    nodes = [node for step in chain.steps for node in walk(step.expr)]
    if not isinstance(one.steps, Read) or any(isinstance(node, Index | Extent) for node in nodes):
        return ()
    if not all(is_known(node.op) for node in nodes if isinstance(node, Apply)):
        return ()
    held = np.arange(-_STEPS // 2, _STEPS // 2) if one.signed else np.arange(_STEPS)
    flat = replace(operator, results=(replace(result, again=None),))
    given = run(_along(chain), {one.name: held.astype(np.uint8)}, flat)
    bits = next(iter(given.values()))
    return tuple(map(int, bits if result.least < 0 else bits.view(np.uint8)))


def _along(chain: Chain) -> Chain:
    """The chain on one axis, which has as many positions as there are steps."""
    steps: list[Map | Reduce] = [replace(step, axes=(_AXIS,)) for step in chain.steps]
    inputs = tuple(replace(value, axes=(_AXIS,)) for value in chain.inputs)
    return Chain((Axis(_AXIS, _STEPS),), inputs, tuple(steps), chain.outputs[:1])
