"""Compiled launches as IREE executables.

IREE's CUDA driver passes the bindings as the kernel's parameters, operands first, then results; grid, block and dynamic
shared memory come from the export.
"""

from __future__ import annotations

from collections.abc import Sequence

from covan_mlir.lowering.kernels.cuda.device import CudaDevice
from covan_mlir.lowering.kernels.cuda.kernel import Binary
from covan_mlir.lowering.targets.cuda import attribute


def module_text(binaries: Sequence[Binary], device: CudaDevice) -> str:
    """A module with one ``hal.executable.source`` per launch, each called like its only export."""
    return "module {\n" + "".join(executable(binary, device) for binary in binaries) + "}\n"


def executable(binary: Binary, device: CudaDevice) -> str:
    """One executable, PTX included."""
    launch = binary.launch
    bindings = [*["#hal.pipeline.binding<storage_buffer, ReadOnly>"] * len(launch.inputs)]
    bindings += ["#hal.pipeline.binding<storage_buffer>"] * len(launch.outputs)
    data = binary.ptx.encode()
    target = _target(device)
    return (
        f"  hal.executable.source private @{launch.name} <{{objects = #hal.executable.objects<{{\n"
        f'    {target} = [#hal.executable.object<{{path = "{launch.name}.ptx", '
        f'data = dense<"0x{data.hex().upper()}"> : vector<{len(data)}xi8>}}>]\n  }}>}}> {{\n'
        f"    hal.executable.export public @{launch.name} ordinal(0) "
        f"layout(#hal.pipeline.layout<bindings = [{', '.join(bindings)}]>) "
        "count(%device: !hal.device) -> (index, index, index) {\n"
        f"      %x = arith.constant {launch.grid} : index\n      %one = arith.constant 1 : index\n"
        "      hal.return %x, %one, %one : index, index, index\n"
        f"    }} <{{ workgroup_size = [{binary.threads} : index, 1 : index, 1 : index], subgroup_size = 32 : index, "
        f"workgroup_local_memory = {binary.shared} : index }}>\n  }}\n"
    )


def _target(device: CudaDevice) -> str:
    """The executable target, out of the device's attribute."""
    text = attribute(device.architecture)
    start = text.index("#hal.executable.target<")
    return text[start : text.rindex("]>")]
