"""Which kernel computes a chain on a target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.cpu.generator import kernel as cpu_kernel
from covan_mlir.lowering.kernels.cpu.target import CpuTarget
from covan_mlir.lowering.kernels.cuda.generator import cuda_generator
from covan_mlir.lowering.kernels.cuda.target import CudaTarget
from covan_mlir.lowering.kernels.kernel import Executable, Kernel, Refusal
from covan_mlir.lowering.kernels.target import KernelTarget
from covan_mlir.lowering.kernels.template import Cost
from covan_mlir.lowering.kernels.vulkan.generator import kernel as vulkan_kernel
from covan_mlir.lowering.kernels.vulkan.target import VulkanTarget
from covan_mlir.lowering.source_lines import Places


@dataclass(frozen=True)
class Selection:
    """The kernel that computes a chain.

    Attributes:
        template: name of the template that wrote it.
        schedule: of that template, as JSON.
        cost: what the template predicts.
    """

    executable: Executable
    template: str
    schedule: Mapping[str, Any]
    cost: Cost


def select(
    chain: Chain, name: str, target: KernelTarget, *, always: bool = False, lines: Places = ()
) -> Selection | Refusal:
    """The kernel of a chain under a name, or why there is none.

    Args:
        always: also where it is not predicted to pay.
        lines: of the user's source, by step of the chain, for the line tables of targets that have them.
    """
    if isinstance(target, CudaTarget):
        compiled = cuda_generator(target.name, always)(chain, name, lines)
        if isinstance(compiled, Refusal):
            return compiled
        executable = Executable(name, compiled.text, compiled.inputs, compiled.outputs, compiled.dispatches)
        return Selection(executable, "tiles", asdict(compiled.schedule), Cost(compiled.seconds))
    kernel: Kernel | Refusal
    if isinstance(target, CpuTarget):
        kernel = cpu_kernel(target.machine, always, chain, name)
    else:
        assert isinstance(target, VulkanTarget)
        kernel = vulkan_kernel(target.device, always, chain, name)
    if isinstance(kernel, Refusal):
        return kernel
    executable = Executable(
        name, kernel.text, kernel.inputs, kernel.outputs, kernel.dispatches, kernel.extents, kernel.team
    )
    cost = Cost(kernel.seconds, kernel.flops, kernel.bytes, kernel.elements)
    return Selection(executable, kernel.schedule.shape, asdict(kernel.schedule), cost)
