"""Chains of sums of products taken apart: several products, what is done to a factor before, transpositions behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from covan_mlir.fred.chain import Chain, Input, Map, Step
from covan_mlir.fred.expression import Apply, Read, reads
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.reductions.tile_roles import tile_roles


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
    the last of them, which reads the others' sums; what is done to a factor, but for holding it in more bits, is done
    before. A product that is nothing else is one part."""
    others = chain.reductions[:-1]
    parts: list[Chain] = []
    left = set(chain.outputs)
    for step in others:
        own = [name for name in chain.outputs if _sums(chain, name) == {step.name}]
        left -= {*own}
        shared = any(step.name in _sums(chain, name) for name in left) and step.name not in own
        parts += _after_factors(restricted(chain, (*own, *((step.name,) if shared else ()))))
    last = tuple(name for name in chain.outputs if name in left)
    return (*parts, *_after_factors(restricted(_given(chain, others), last)))


def rows_before(chain: Chain) -> tuple[Chain, ...]:
    """What computes the same as a chain that ends in a product of matrices, of which one factor is rows that other
    reductions normalise (``softmax(x) @ v``): those and all that is made of them alone, and the product. A chain that
    is something else is one part."""
    *others, last = chain.reductions
    factors = [step for step in chain.steps if step.name in reads(last.expr)]
    if not others or len(factors) != 1:
        return (chain,)
    behind = {step.name for step in chain.steps if step is last or last.name in chain.depends(step.name)}
    wanted = frozenset().union(*(reads(step.expr) for step in chain.steps if step.name in behind)) - behind
    given = [step for step in chain.steps if step.name in wanted]
    early = [name for name in chain.outputs if name not in behind]
    before = restricted(chain, tuple(dict.fromkeys((*early, *(step.name for step in given)))))
    after = restricted(_given(chain, given), tuple(name for name in chain.outputs if name in behind))
    if len(before.reductions) < len(others) or not before.single_domain or before.windowed or not after.product:
        return (chain,)
    return before, after


def tiles_between(chain: Chain) -> tuple[Chain, ...]:
    """What computes the same as a chain of products that meet in tiles of an intermediate value, where that is in
    memory: each product that gives it, what is made of its elements, each product of these. A chain that is something
    else is one part."""
    try:
        roles = tile_roles(chain)
    except UnsupportedError:
        return (chain,)
    inner = [one.step for one in roles.inner]
    parts = [restricted(chain, (step.name,)) for step in inner]
    tile = {*roles.batch, roles.rows, roles.columns}
    wanted = frozenset().union(*(reads(one.step.expr) for one in roles.sums))
    elements = [step for step in chain.steps if step.name in wanted and {*step.axes} == tile]
    computed = tuple(step.name for step in elements if step not in inner)
    if computed:
        parts.append(restricted(_given(chain, inner), computed))
    rest = _given(chain, elements)
    return (*parts, *(restricted(rest, one.results) for one in roles.sums))


def transposed_after(chain: Chain) -> tuple[Chain, ...]:
    """What computes the same as a chain of one reduction that gives results in another order of axes than that: the
    chain with its order, and the transpositions. One that transposes nothing is one part."""
    if len(chain.reductions) != 1:
        return (chain,)
    (order,) = (step.axes for step in chain.reductions)
    turned = [step for step in chain.steps if step.axes != order and {*step.axes} == {*order}]
    given = [step for step in turned if step.name in chain.outputs]
    if not given:
        return (chain,)
    steps = tuple(replace(step, axes=order) if step in turned else step for step in chain.steps)
    moves = tuple(Map(f"{step.name}.t", step.axes, Read(step.name, step.dtype), step.dtype) for step in given)
    inputs = tuple(Input(step.name, order, step.dtype) for step in given)
    axes = tuple(axis for axis in chain.axes if axis.name in order)
    return replace(chain, steps=steps), Chain(axes, inputs, moves, tuple(step.name for step in moves))


def _after_factors(chain: Chain) -> list[Chain]:
    """A chain of one product, after one of what is done to its factors, if there is something."""
    (product,) = chain.reductions
    factors = [step for step in chain.steps if step.name in reads(product.expr) and not _widens(step)]
    if not factors:
        return [chain]
    before = restricted(chain, tuple(step.name for step in factors))
    return [before, restricted(_given(chain, factors), chain.outputs)]


def _widens(step: Step) -> bool:
    return isinstance(step.expr, Apply) and step.expr.op == "arith.extf" and isinstance(step.expr.args[0], Read)


def _sums(chain: Chain, name: str) -> frozenset[str]:
    """The reductions that a value is made of."""
    return (chain.depends(name) | {name}) & {step.name for step in chain.reductions}


def _given(chain: Chain, given: Sequence[Step]) -> Chain:
    """The chain with some values as inputs."""
    inputs = tuple(Input(step.name, step.axes, step.dtype) for step in given)
    return Chain(
        chain.axes, (*chain.inputs, *inputs), tuple(step for step in chain.steps if step not in given), chain.outputs
    )


def restricted(chain: Chain, outputs: tuple[str, ...]) -> Chain:
    """What it takes to compute some of a chain's values."""
    needed = frozenset(outputs).union(*(chain.depends(name) for name in outputs))
    inputs = tuple(value for value in chain.inputs if value.name in needed)
    steps = tuple(step for step in chain.steps if step.name in needed)
    used = {axis for value in (*inputs, *steps) for axis in (*value.axes, *getattr(value, "over", ()))}
    return Chain(tuple(axis for axis in chain.axes if axis.name in used), inputs, steps, outputs)
