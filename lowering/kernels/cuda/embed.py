"""Compiled launches as IREE executables, and a call of a kernel as the dispatches of its launches.

IREE's CUDA driver passes the bindings as the kernel's parameters, operands first, then results; grid, block and dynamic
shared memory come from the export.
"""

from __future__ import annotations

from collections.abc import Sequence

from covan_mlir.lowering.kernels.cuda.compile import Binary
from covan_mlir.lowering.kernels.cuda.device import Device
from covan_mlir.lowering.kernels.cuda.kernel import CudaKernel
from covan_mlir.lowering.targets.cuda import attribute


def module_text(binaries: Sequence[Binary], device: Device) -> str:
    """A module with one ``hal.executable.source`` per launch, each called like its only export."""
    return "module {\n" + "".join(executable(binary, device) for binary in binaries) + "}\n"


def executable(binary: Binary, device: Device) -> str:
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


def _target(device: Device) -> str:
    """The executable target, out of the device's attribute."""
    text = attribute(device.architecture)
    start = text.index("#hal.executable.target<")
    return text[start : text.rindex("]>")]


def program(kernel: CudaKernel, binaries: Sequence[Binary]) -> str:
    """A whole program that only runs a kernel: for tests and benchmarks.

    Its function is called ``main`` and takes and gives what the kernel does.
    """
    arguments = ", ".join(f"%a{n}: {operand.tensor}" for n, operand in enumerate(kernel.inputs))
    known = {operand.name: f"%a{n}" for n, operand in enumerate(kernel.inputs)}
    lines = []
    for n, binary in enumerate(binaries):
        launch = binary.launch
        results = [operand.tensor for operand in launch.outputs]
        count = len(results)
        lines.append(
            f"    %r{n}{f':{count}' if count > 1 else ''} = flow.dispatch @{launch.name}::@{launch.name}"
            f"({', '.join(known[o.name] for o in launch.inputs)}) : ({', '.join(o.tensor for o in launch.inputs)}) -> "
            f"{results[0] if count == 1 else '(' + ', '.join(results) + ')'}\n"
        )
        known |= {o.name: f"%r{n}#{k}" if count > 1 else f"%r{n}" for k, o in enumerate(launch.outputs)}
    returned = ", ".join(known[operand.name] for operand in kernel.outputs)
    kinds = ", ".join(operand.tensor for operand in kernel.outputs)
    body = "".join(executable(binary, kernel.device) for binary in binaries)
    return (
        f"module @alone attributes {{hal.device.targets = [{attribute(kernel.device.architecture)}]}} {{\n{body}"
        f"  func.func @main({arguments}) -> ({kinds}) {{\n{''.join(lines)}    return {returned} : {kinds}\n  }}\n}}\n"
    )
