"""Calls of the usual kind: dense torch tensors in, of the sizes that the program was compiled for, and tensors out.

What such a call takes is known when a program is loaded, so it is some comparisons for each tensor and nothing more:
of a small model's call a third of the time is otherwise spent on finding out that nothing is unusual. Whatever is
unusual (arrays, other sizes or dtypes, memory elsewhere or in another order, special tensors) goes the general way
(`CompiledModel.checked`), which converts, refuses and explains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from covan_mlir.artifacts import pytree
from covan_mlir.artifacts.signature import Leaf, Signature
from covan_mlir.runtime import contract, values
from covan_mlir.runtime.checks import ArgumentChecks
from covan_mlir.runtime.program import Program


class PlainCall:
    """How a program is called with plain tensors.

    Args:
        signature: one that `fits`.
        program: of this process, on a device that shares its memory.
        bound: what the program takes behind its arguments.
        expected: what its results must be.
        checks: of indices and divisors among its arguments.
    """

    def __init__(
        self,
        signature: Signature,
        program: Program,
        bound: Sequence[Any],
        expected: contract.Results,
        checks: ArgumentChecks,
    ) -> None:
        self._program, self._bound, self._expected, self._checks = program, bound, expected, checks
        self._readers = [_reader(program.device, leaf) for leaf in signature.inputs]
        self._constants: list[Any] = [leaf.value for leaf in signature.outputs]
        self._results = [
            (index, target, values.torch_writer(program.device, signature.outputs[target].dtype))
            for index, (_, target) in enumerate(signature.results)
        ]
        self._build = pytree.builder(signature.out_tree)

    @staticmethod
    def fits(signature: Signature) -> bool:
        """Whether a program has calls of the usual kind: nothing is mutated or open in it, and it tells no faults."""
        positional, named = signature.in_tree.children
        return (
            values.torch_module() is not None
            and not named.children
            and all(child.kind == "leaf" for child in positional.children)
            and all(_is_plain(leaf) for leaf in signature.inputs)
            and not signature.states
            and all(kind == "output" and _is_plain(signature.outputs[target]) for kind, target in signature.results)
        )

    def __call__(self, args: tuple[Any, ...]) -> Any:
        """The model's results; `NotImplemented`, with nothing done, if an argument is not of the usual kind.

        Raises:
            OutOfRangeError, DivisionError, DeviceError, CovanError: as for a call.
        """
        if len(args) != len(self._readers):
            return NotImplemented
        arguments = []
        for read, value in zip(self._readers, args, strict=True):
            view = read(value)
            if view is None:
                return NotImplemented
            arguments.append(view)
        self._checks(args, {})
        out = self._program.invoke([*arguments, *self._bound], len(self._results))
        self._expected.count(out)
        returned = self._constants.copy()
        for index, target, write in self._results:
            returned[target] = write(self._expected.tensor(out, index))
        return self._build(iter(returned))


def _is_plain(leaf: Leaf) -> bool:
    return (
        leaf.kind == "tensor"
        and not leaf.mutated
        and leaf.fixed is None
        and leaf.dtype != "bool"  # whose bytes are looked at
        and leaf.dtype not in values.PAIRS
        and all(isinstance(size, int) for size in leaf.shape)
    )


def _reader(device: Any, leaf: Leaf) -> Callable[[Any], Any]:
    """A function from an argument to a buffer view over its memory; it gives None for what is not of the usual kind."""
    torch: Any = values.torch_module()
    kinds = (torch.Tensor, torch.nn.Parameter)
    dtype, shape = getattr(torch, leaf.dtype), tuple(leaf.shape)
    to_dlpack, take = torch.utils.dlpack.to_dlpack, device.from_dlpack_capsule

    def read(value: Any) -> Any:
        try:
            if type(value) not in kinds or value.dtype is not dtype or value.shape != shape or not value.is_cpu:
                return None
            address = value.data_ptr()
            if not address or address % values.ALIGNMENT or not value.is_contiguous() or value.is_neg():
                return None
            return take(to_dlpack(value.detach() if value.requires_grad else value))
        except (RuntimeError, BufferError, ValueError):
            return None

    return read
