"""Chains of several sums of products, as chains of one each."""

from __future__ import annotations

from covan_mlir.fred.chain import Chain, Input, Reduce
from covan_mlir.lowering.kernels.errors import UnsupportedError


def siblings_of(chain: Chain) -> tuple[Chain, ...]:
    """A chain for each reduction and what is made of it; names are those of the whole.

    Raises:
        UnsupportedError: it is one reduction, or something is made of several, or of none.
    """
    if len(chain.reductions) < 2:
        raise UnsupportedError("it is one reduction")
    outputs: dict[str, list[str]] = {step.name: [] for step in chain.reductions}
    for name in chain.outputs:
        sums = [own for own in outputs if own == name or own in chain.depends(name)]
        if len(sums) != 1:
            raise UnsupportedError(f"{name} is made of {len(sums)} reductions")
        outputs[sums[0]].append(name)
    return tuple(restricted(chain, tuple(names)) for names in outputs.values())


def apart(chain: Chain) -> tuple[Chain, ...]:
    """What computes the same as a chain of products in kernels of one product each: what is made of several is made by
    the last of them, which reads the others' sums."""
    others = chain.reductions[:-1]
    parts: list[Chain] = []
    left = set(chain.outputs)
    for step in others:
        own = [name for name in chain.outputs if _sums(chain, name) == {step.name}]
        left -= {*own}
        shared = any(step.name in _sums(chain, name) for name in left) and step.name not in own
        parts.append(restricted(chain, (*own, *((step.name,) if shared else ()))))
    last = tuple(name for name in chain.outputs if name in left)
    return (*parts, restricted(_given(chain, others), last))


def _sums(chain: Chain, name: str) -> frozenset[str]:
    """The reductions that a value is made of."""
    return (chain.depends(name) | {name}) & {step.name for step in chain.reductions}


def _given(chain: Chain, sums: tuple[Reduce, ...]) -> Chain:
    """The chain with some sums as inputs."""
    inputs = tuple(Input(step.name, step.axes, step.dtype) for step in sums)
    return Chain(
        chain.axes, (*chain.inputs, *inputs), tuple(step for step in chain.steps if step not in sums), chain.outputs
    )


def restricted(chain: Chain, outputs: tuple[str, ...]) -> Chain:
    """What it takes to compute some of a chain's values."""
    needed = frozenset(outputs).union(*(chain.depends(name) for name in outputs))
    inputs = tuple(value for value in chain.inputs if value.name in needed)
    steps = tuple(step for step in chain.steps if step.name in needed)
    used = {axis for value in (*inputs, *steps) for axis in (*value.axes, *getattr(value, "over", ()))}
    return Chain(tuple(axis for axis in chain.axes if axis.name in used), inputs, steps, outputs)
