"""Generated launches on tensors, by Triton itself: on a GPU, or, with ``TRITON_INTERPRET=1`` set, on numpy."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from covan_mlir.lowering.kernels.cuda.kernel import CudaKernel, Launch

if TYPE_CHECKING:
    from torch import Tensor


def function(launch: Launch, folder: Path) -> Any:
    """The jitted function of a launch; its source is kept in a folder, for Triton reads it there."""
    path = folder / f"{launch.name}.py"
    path.write_text(launch.source)
    spec = importlib.util.spec_from_file_location(f"covan_generated_{launch.name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, launch.name)


def run(kernel: CudaKernel, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The outputs of a kernel.

    Args:
        inputs: contiguous, in the order of the kernel's inputs; i1 as torch.bool.
    """
    with tempfile.TemporaryDirectory() as folder:
        return prepared(kernel, inputs, Path(folder))()


def prepared(kernel: CudaKernel, inputs: Sequence[Tensor], folder: Path) -> Callable[[], list[Tensor]]:
    """A function that runs the launches of a kernel, whose results are the same tensors each time; see `run`.

    Args:
        folder: which keeps the sources as long as that is called.
    """
    import torch

    dtypes = {
        "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64,
        "i64": torch.int64, "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "i1": torch.int8,
    }  # fmt: skip
    known: dict[str, Tensor] = {}
    for operand, value in zip(kernel.inputs, inputs, strict=True):
        assert tuple(value.shape) == operand.shape
        known[operand.name] = value.view(torch.int8) if value.dtype == torch.bool else value
    launches = []
    for launch in kernel.launches:
        for operand in launch.outputs:
            known[operand.name] = torch.empty(operand.shape, dtype=dtypes[operand.dtype], device=inputs[0].device)
        arguments = [known[operand.name] for operand in (*launch.inputs, *launch.outputs)]
        launches.append((function(launch, folder), launch, arguments))

    def call() -> list[Tensor]:
        for jit_function, launch, arguments in launches:
            jit_function[(launch.grid,)](*arguments, **options(launch))
        outputs = [known[operand.name] for operand in kernel.outputs]
        return [x.bool() if o.dtype == "i1" else x for x, o in zip(outputs, kernel.outputs, strict=True)]

    return call


def options(launch: Launch) -> Mapping[str, int]:
    """What a launch asks of Triton's compiler."""
    return {"num_warps": launch.num_warps, "num_stages": launch.num_stages}
