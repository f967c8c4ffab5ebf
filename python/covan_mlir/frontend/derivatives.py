"""Models that take derivatives themselves: `torch.func.grad`, `vjp`, `jvp`, `jacrev`, `jacfwd`, `hessian`.

torch.export records operators before they reach what differentiates them, and there takes the tensors that `torch.func`
wraps for constants: the program is another one, or export fails. Recorded behind that, a program consists of the
operators that compute the derivatives, and composite operators are taken apart.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import torch
from torch._functorch import eager_transforms, predispatch
from torch.export import ExportedProgram
from torch.export._trace import _export

_WRAPPED = (predispatch._unwrap_for_grad, predispatch._make_dual)
_DIFFERENTIATING = Path(eager_transforms.__file__)


def takes_derivatives(program: ExportedProgram) -> bool:
    """Whether a program was recorded before its derivatives were taken."""
    return any(node.target in _WRAPPED for node in program.graph.nodes)


def stands_in_derivatives(error: BaseException) -> bool:
    """Whether export failed while it took derivatives."""
    return any(Path(frame.filename) == _DIFFERENTIATING for frame in traceback.extract_tb(error.__traceback__))


def recorded_behind(
    module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any
) -> ExportedProgram:
    """Export by the operators that compute the derivatives."""
    program: ExportedProgram = _export(module, args, kwargs, dynamic_shapes, strict=False, pre_dispatch=False)
    return program
