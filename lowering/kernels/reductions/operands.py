"""What kernels of a chain read and write, whatever writes them, and chains that none can hold."""

from __future__ import annotations

from math import prod

from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.kernel import Operand
from covan_mlir.machine.elements import bits


def operands(chain: Chain) -> tuple[tuple[Operand, ...], tuple[Operand, ...]]:
    """-> (inputs, outputs) of a kernel, in the order of the chain's."""

    def operand(name: str) -> Operand:
        value = chain.values[name]
        sizes = {axis: chain.sizes[axis] for axis in value.axes}
        shape = tuple(-1 if size is None else size for size in sizes.values())
        return Operand(name, shape, value.dtype, tuple(axis for axis, size in sizes.items() if size is None))

    return tuple(operand(value.name) for value in chain.inputs), tuple(operand(name) for name in chain.outputs)


def traffic(chain: Chain) -> int:
    """Bytes of inputs and outputs, with nominal sizes where they are known at run time only."""
    sizes = chain.nominal.known_sizes
    values = [*chain.inputs, *(chain.values[name] for name in chain.outputs)]
    return sum(prod(sizes[axis] for axis in value.axes) * bits(value.dtype) // 8 for value in values)


def elements(chain: Chain) -> int:
    """Elements that the steps compute, with nominal sizes where they are known at run time only."""
    sizes = chain.nominal.known_sizes
    return sum(prod(sizes[axis] for axis in step.axes) for step in chain.steps)


def refused(chain: Chain) -> str | None:
    """Why no kernel can hold a chain, or None."""
    if any(axis.size == 0 for axis in chain.axes):
        return "an axis is empty"
    if not chain.reductions:
        return "nothing is reduced"
    if len(set(chain.outputs)) != len(chain.outputs):
        return "a value is returned twice"
    given = {value.name for value in chain.inputs}
    if given.intersection(chain.outputs):
        return "an input is returned"
    return None
