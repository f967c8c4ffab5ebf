"""Runs kernels by Triton's interpreter: ``TRITON_INTERPRET=1 python triton_interpret.py IN OUT``.

IN holds a list of (kernel, inputs), OUT gets a list of outputs; both are written by torch.save. Triton decides at
import whether functions are compiled or interpreted, so this takes a process of its own.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from triton.runtime import interpreter

from covan_mlir.lowering.cuda.alone import run


def _by_slices(self: Any, values: Any) -> Any:
    """The interpreter's reduction by a user's function, slice by slice instead of element by element."""
    (value,), axis = self.unravel(values, self.axis)
    slices = np.moveaxis(value.handle.data, axis, 0)
    total = self.to_tensor(slices[0], value.dtype)
    for piece in slices[1:]:
        total = self.combine_fn.fn(total, self.to_tensor(piece, value.dtype))
    return total


def main() -> None:
    """Runs all kernels of a file."""
    interpreter.ReduceOps.generic_reduce = _by_slices
    cases = torch.load(sys.argv[1], weights_only=False)
    with np.errstate(all="ignore"):
        torch.save([run(kernel, inputs) for kernel, inputs in cases], sys.argv[2])


if __name__ == "__main__":
    main()
