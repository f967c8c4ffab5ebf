"""Runs kernels by Triton's interpreter: ``TRITON_INTERPRET=1 python triton_interpret.py IN OUT``.

IN holds a list of (kernel, inputs), OUT gets a list of outputs; both are written by torch.save. Triton decides at
import whether functions are compiled or interpreted, so this takes a process of its own.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.language.extra import libdevice
from triton.runtime import interpreter

from covan_mlir.lowering.kernels.cuda.run import run


def _by_slices(self: Any, values: Any) -> Any:
    """The interpreter's reduction by a user's function, slice by slice instead of element by element."""
    (value,), axis = self.unravel(values, self.axis)
    slices = np.moveaxis(value.handle.data, axis, 0)
    total = self.to_tensor(slices[0], value.dtype)
    for piece in slices[1:]:
        total = self.combine_fn.fn(total, self.to_tensor(piece, value.dtype))
    return total


def _library(function: Any) -> Any:
    """A function of libdevice, which the interpreter does not have, by torch's of the same meaning."""

    def run(*arguments: Any) -> Any:
        shape = np.broadcast_shapes(*(np.shape(_data(a)) for a in arguments))
        values = [torch.from_numpy(np.broadcast_to(_data(a), shape).astype(np.float32)) for a in arguments]
        given = next(a for a in arguments if hasattr(a, "handle"))
        return given.__class__(
            interpreter.TensorHandle(function(*values).numpy(), given.handle.dtype.scalar), given.type
        )

    return run


def _data(value: Any) -> Any:
    return value.handle.data if hasattr(value, "handle") else np.float32(value)


def _widened(handle: Any) -> Any:
    """A value whose bf16, which numpy does not have, are f32."""
    if handle.dtype.scalar != tl.bfloat16:
        return handle
    data = (handle.data.astype(np.uint32) << 16).view(np.float32)
    return interpreter.TensorHandle(data, tl.float32)


_dot = interpreter.InterpreterBuilder.create_dot


def _exact_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
    """The interpreter's product of matrices, which takes the bits of bf16 for numbers."""
    return _dot(self, _widened(a), _widened(b), *rest)


LIBRARY = {
    "log1p": torch.log1p,
    "expm1": torch.expm1,
    "tan": torch.tan,
    "atan": torch.atan,
    "pow": torch.pow,
    "erfc": torch.special.erfc,
    "rint": torch.round,
}


def main() -> None:
    """Runs all kernels of a file."""
    for name, function in LIBRARY.items():
        setattr(libdevice, name, _library(function))
    interpreter.ReduceOps.generic_reduce = _by_slices
    interpreter.InterpreterBuilder.create_dot = _exact_dot
    cases = torch.load(sys.argv[1], weights_only=False)
    with np.errstate(all="ignore"):
        torch.save([run(kernel, inputs) for kernel, inputs in cases], sys.argv[2])


if __name__ == "__main__":
    main()
