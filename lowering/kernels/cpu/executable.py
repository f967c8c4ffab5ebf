"""The executable around a kernel's function, as a module of IREE's: what the function is given, how it is counted."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from math import prod
from typing import Any, cast

import iree.compiler.ir as ir

from covan_mlir.lowering.kernels.cpu.elements import storage
from covan_mlir.lowering.kernels.kernel import Operand
from covan_mlir.machine.elements import bits


def _layout(operands: int, outputs: int, constants: int) -> str:
    bindings = ["#hal.pipeline.binding<storage_buffer, ReadOnly>"] * (operands - outputs)
    bindings += ["#hal.pipeline.binding<storage_buffer>"] * outputs
    numbers = f"constants = {constants}, " if constants else ""
    return f"#hal.pipeline.layout<{numbers}bindings = [{', '.join(bindings)}]>"


def shell(
    name: str,
    inputs: Sequence[Operand],
    outputs: Sequence[Operand],
    extents: Sequence[str] = (),
) -> str:
    """The executable around a kernel, with a function that only asks for what it is given.

    Values in the function: workgroup, sizes known at run time, memory of the operands.
    """
    operands = (*inputs, *outputs)
    layout = _layout(len(operands), len(outputs), len(extents))
    lines = []
    for n in range(len(extents)):
        lines.append(f"%s{n} = hal.interface.constant.load layout(#layout) ordinal({n}) : i32")
    lines += [f"%e{n} = arith.index_castui %s{n} : i32 to index" for n in range(len(extents))]
    for n, operand in enumerate(operands):
        fixed = prod(size for size in operand.shape if size >= 0)
        elements, length = str(fixed), ""
        if operand.extents:
            lines.append(f"%n{n}_0 = arith.constant {fixed} : index")
            for k, axis in enumerate(operand.extents):
                lines.append(f"%n{n}_{k + 1} = arith.muli %n{n}_{k}, %e{extents.index(axis)} : index")
            elements, length = "?", f"{{%n{n}_{len(operand.extents)}}}"
        # Two operands of a dispatch are never the same memory, one of them written. No more is known of where they
        # begin than that it is an element: rows of what another dispatch computed are read where they are.
        lines.append(
            f"%b{n} = hal.interface.binding.subspan layout(#layout) binding({n}) "
            f"alignment({bits(storage(operand.dtype)) // 8}) offset(%c0)"
            f"{'' if n >= len(inputs) else ' flags(ReadOnly)'} : memref<{elements}x{storage(operand.dtype)}>{length}"
        )
    body = "\n        ".join(lines)
    workload = "".join(f", %w{n}: index" for n in range(len(extents)))
    return f"""#layout = {layout}
module {{
  hal.executable.source private @{name} {{
    hal.executable.export public @{name} ordinal(0) layout(#layout)
        count(%d: !hal.device{workload}) -> (index, index, index) {{
      %n = arith.constant 1 : index
      hal.return %n, %n, %n : index, index, index
    }}
    builtin.module {{
      func.func @{name}() {{
        %c0 = arith.constant 0 : index
        %wx = hal.interface.workgroup.id[0] : index
        {body}
        return
      }}
    }}
  }}
}}
"""


def first_named(op: Any, name: str) -> Any:
    """The first operation of a name among those nested in one; None if there is none."""
    for region in op.regions:
        for block in region:
            for inner in block:
                if inner.operation.name == name:
                    return inner
                if (nested := first_named(inner.operation, name)) is not None:
                    return nested
    return None


_kept = threading.local()


def context() -> ir.Context:
    """Where this thread writes its kernels: loading the dialects anew takes longer than many a kernel."""
    if not hasattr(_kept, "context"):
        _kept.context = ir.Context()
    return cast("ir.Context", _kept.context)


def joined(first: str, *others: str) -> str:
    """Modules of executables as one."""
    with context(), ir.Location.unknown():
        module = ir.Module.parse(first)
        for other in map(ir.Module.parse, others):
            for op in list(other.body.operations):
                op.detach_from_parent()
                module.body.append(op)
        return str(module.operation.get_asm(large_elements_limit=1 << 30))
