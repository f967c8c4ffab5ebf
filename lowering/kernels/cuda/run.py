"""Generated launches on tensors, by Triton itself: on a GPU, or, with ``TRITON_INTERPRET=1`` set, on numpy."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Prepared:
    """A kernel on tensors.

    Attributes:
        launches: jitted functions, what they are launched with, and their arguments.
        outputs: element types, and where the results are: in the same tensors each time.
    """

    launches: tuple[tuple[Any, Launch, tuple[Tensor, ...]], ...]
    outputs: tuple[tuple[str, Tensor], ...]

    def build(self) -> None:
        """Compiles what is not in Triton's cache; runs nothing."""
        for jit_function, launch, arguments in self.launches:
            jit_function.warmup(*arguments, grid=(launch.grid,), **options(launch))

    def __call__(self) -> list[Tensor]:
        """Run all launches; the kernel's outputs, i1 as torch.bool."""
        for jit_function, launch, arguments in self.launches:
            jit_function[(launch.grid,)](*arguments, **options(launch))
        return [x.bool() if dtype == "i1" else x for dtype, x in self.outputs]


def prepared(kernel: CudaKernel, inputs: Sequence[Tensor], folder: Path) -> Prepared:
    """A kernel on its inputs, to be run often; see `run`.

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
        arguments = tuple(known[operand.name] for operand in (*launch.inputs, *launch.outputs))
        launches.append((function(launch, folder), launch, arguments))
    return Prepared(tuple(launches), tuple((operand.dtype, known[operand.name]) for operand in kernel.outputs))


def options(launch: Launch) -> Mapping[str, int]:
    """What a launch asks of Triton's compiler."""
    return {"num_warps": launch.num_warps, "num_stages": launch.num_stages}
