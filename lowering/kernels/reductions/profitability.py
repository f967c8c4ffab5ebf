"""Whether a kernel pays: its prediction, against what the compiler would make of the same ops.

IREE makes one dispatch of each reduction, with the element-wise ops before it and, of the last one, those after it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod

from covan_mlir.fred.chain import Chain, Input, Map, Reduce
from covan_mlir.fred.expression import Apply, Read, reads, walk, windows
from covan_mlir.lowering.kernels.reductions.hoist import Scope
from covan_mlir.lowering.kernels.reductions.sweeps import cost
from covan_mlir.machine.elements import bits

LEAST = 0.5e-6
"""Seconds that a kernel must save in a call to be worth the time that it takes to compile."""


EXPOSED = 0.25
"""Of the lesser of computing and moving data, what the greater one does not hide."""
USES = 64
"""Multiply-adds per element that is laid out at each call, from which on the compiler packs the operands of a product
(docs/notes/products.md)."""


@dataclass(frozen=True)
class Rates:
    """What the compiler's own code reaches on a device.

    Attributes:
        bandwidth: bytes per second, reading and writing.
        instructions: per second, on one element each, of element-wise ops and contractions under other reductions.
        reducing: the same in other reductions.
        dense: the same in products of matrices and convolutions; 0: as in element-wise ops.
        combining: the same in contractions of other terms than products (distances, extrema of sums); 0: as in
            element-wise ops.
        dispatch: seconds that a dispatch takes besides its work.
        units: rows that it takes to use all of the device: of a reduction, each runs in a workgroup.
    """

    bandwidth: float
    instructions: float
    reducing: float
    dispatch: float
    units: int = 1
    dense: float = 0.0
    combining: float = 0.0


def does_not_pay(chain: Chain, rates: Rates, seconds: float) -> str | None:
    """Why a kernel is not worth it, or None: with nominal sizes, where they are known at run time only.

    Args:
        seconds: that the kernel is predicted to take, besides what a dispatch takes.
    """
    chain = chain.nominal
    own = rates.dispatch + seconds
    theirs = compiled(chain, rates)
    if theirs - own >= LEAST:
        return None
    count = len(chain.reductions)
    said = "a dispatch" if count == 1 else f"{count} dispatches"
    return (
        f"it does not pay: predicted to take {own * 1e6:.2f} us, and {said} of the compiler's own {theirs * 1e6:.2f} us"
    )


def compiled(chain: Chain, rates: Rates) -> float:
    """Seconds that the compiler's dispatches take."""
    sizes = chain.known_sizes
    swept = chain.swept
    total = 0.0
    for name in dict.fromkeys((*(step.name for step in chain.reductions), *chain.outputs)):
        step = chain.values[name]
        if isinstance(step, Map) and not swept & set(step.axes):
            continue  # done by the dispatch of what it reads
        if not isinstance(step, Map | Reduce):
            continue
        work, read = _alone(chain, step)
        axes = {*step.axes, *getattr(step, "over", ())}
        moved = sum(
            prod(sizes[a] for a in chain.values[n].axes) * bits(chain.values[n].dtype) // 8 for n in (name, *read)
        )
        contracts = sum(bool(swept & set(chain.values[n].axes)) and set(chain.values[n].axes) != axes for n in read) > 1
        rate = rates.instructions if isinstance(step, Map) or contracts else rates.reducing
        rows = prod(sizes[a] for a in step.axes)
        if contracts and rates.combining and isinstance(step, Reduce) and not _of_products(chain, step):
            rate = rates.combining
        used = 1.0 if isinstance(step, Map) or contracts else min(1.0, rows / rates.units)
        if isinstance(step, Reduce) and rates.dense and (chain.product or chain.windowed):
            # What it packs, pads and transposes comes on top.
            rate = rates.reducing if _element_by_element(chain, step) else rates.dense
            total += moved / rates.bandwidth + prod(sizes[a] for a in axes) * work / rate
        else:
            spent = moved / rates.bandwidth, prod(sizes[a] for a in axes) * work / rate
            total += max(spent) / used
            if rates.dense and isinstance(step, Reduce):
                packs = _packs(chain, step, read)
                # One element after the other, memory waits for the sums: means of images take 1.2 to 2 times ours.
                total += EXPOSED * min(spent) if packs or not contracts else 0.0
                total += rates.dispatch if packs else 0.0
        total += rates.dispatch if isinstance(step, Reduce) else 0.0
    return total


def _packs(chain: Chain, step: Reduce, read: Iterable[str]) -> bool:
    """Whether a reduction is a product, of a matrix and a vector, too, and the compiler packs what it reads."""
    term, sizes = Scope(chain, {}).inlined(step.expr), chain.known_sizes
    if chain.windowed or step.combine != "add" or not isinstance(term, Apply) or term.op != "arith.mulf":
        return False
    values = [chain.values[name] for name in (step.name, *read)]
    laid_out = [value for value in values if not (isinstance(value, Input) and value.weight)]
    uses = prod(sizes[axis] for axis in (*step.axes, *step.over))
    return uses >= USES * sum(prod(sizes[axis] for axis in value.axes) for value in laid_out)


def _of_products(chain: Chain, step: Reduce) -> bool:
    """Whether a reduction is a sum of products, which the compiler knows what to do with."""
    scope, axes = Scope(chain, {}), {*step.axes, *step.over}
    term = scope.inlined(step.expr)
    if step.combine != "add" or not isinstance(term, Apply) or term.op != "arith.mulf":
        return False
    return all(axes - scope.axes(factor) for factor in term.args)


def _element_by_element(chain: Chain, step: Reduce) -> bool:
    """Whether the compiler vectorises nothing of a reduction that reads through a window: of pooling, and of a
    convolution in groups, whose filter has axes of what slides."""
    slides = frozenset().union(*(window.axes for window in windows(step.expr)))
    others = [{*chain.values[node.name].axes} for node in walk(step.expr) if isinstance(node, Read)]
    return bool(slides) and (not others or any(axes & slides & {*step.axes} for axes in others))


def _alone(chain: Chain, step: Map | Reduce) -> tuple[int, set[str]]:
    """-> (instructions per element, values that are read), with the element-wise steps before it computed along."""
    work, values_read, stack, seen = cost(step.expr) + 1, set[str](), list(reads(step.expr)), set[str]()
    while stack:
        name = stack.pop()
        value = chain.values[name]
        if name in seen:
            continue
        seen.add(name)
        if isinstance(value, Map):
            work += cost(value.expr)
            stack += reads(value.expr)
        else:
            values_read.add(name)
    return work, values_read
