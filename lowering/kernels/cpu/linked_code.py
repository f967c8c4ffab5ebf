"""Kernels' functions that call machine code which is linked to the program.

The code is made by `covan_mlir.lowering.kernels.cpu.machine_code`. IREE's phases up to code are given a kernel whose
function does nothing (`stub`): they lay out its operands and its dispatches. What they make of that function then calls
the code (`call`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import iree.compiler.ir as ir

_VERSION = 6
"""`IREE_HAL_EXECUTABLE_LIBRARY_VERSION_LATEST` of IREE's runtime/src/iree/hal/local/executable_library.h, which a
library is asked for by its `iree_hal_executable_library_query_fn_t`."""
_FUNCTIONS = 32
"""Bytes before the address of the functions in `iree_hal_executable_library_v0_t`, there: after the address of its
head, the number and the address of imports, and the number of exports."""


def stub(name: str) -> Any:
    """What stands for a kernel's code in a program: a module, in whose context the caller is."""
    owner = ir.Module.parse(f"module {{ module {{ func.func @{name}() {{ return }} }} }}")
    (body,) = (op.operation for op in list(owner.body.operations))
    body.detach_from_parent()
    return body


def call(module: Any, files: Mapping[str, Path]) -> None:
    """Makes functions of kernels call their machine code.

    Args:
        module: of IREE, in whose context the caller is, after the phase that makes code of executables.
        files: object files of kernels, by the names of their functions.
    """
    for executable in module.body.operations:
        if executable.operation.name != "hal.executable":
            continue
        for variant in [op for op in _block(executable) if op.operation.name == "hal.executable.variant"]:
            for inner in [op for op in _block(variant) if op.operation.name == "builtin.module"]:
                for function in [op.operation for op in _block(inner) if op.operation.name == "llvm.func"]:
                    name = ir.StringAttr(function.attributes["sym_name"]).value
                    if name in files:
                        _call(inner, function, name, files[name])


def _call(inner: Any, function: Any, name: str, file: Path) -> None:
    """Gives a function another body: a call of the only function of the library in an object file."""
    owner = ir.Module.parse(f"""
      llvm.func hidden @{name}_library_query(i32, !llvm.ptr) -> !llvm.ptr
          attributes {{hal.executable.objects = [#hal.executable.object<{{path = "{file}"}}>]}}
      llvm.func @{name}(%environment: !llvm.ptr, %dispatch: !llvm.ptr, %group: !llvm.ptr) -> i32 {{
        %version = llvm.mlir.constant({_VERSION} : i32) : i32
        %library = llvm.call @{name}_library_query(%version, %environment) : (i32, !llvm.ptr) -> !llvm.ptr
        %at = llvm.getelementptr %library[{_FUNCTIONS}] : (!llvm.ptr) -> !llvm.ptr, i8
        %functions = llvm.load %at : !llvm.ptr -> !llvm.ptr
        %function = llvm.load %functions : !llvm.ptr -> !llvm.ptr
        %result = llvm.call %function(%environment, %dispatch, %group)
            : !llvm.ptr, (!llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32
        llvm.return %result : i32
      }}""")
    query, caller = list(owner.body.operations)
    query.detach_from_parent()
    _block(inner).append(query)
    block, other = _block(function), _block(caller)
    for op in reversed(list(block)):
        op.operation.erase()
    for given, taken in zip(block.arguments, other.arguments, strict=True):
        taken.replace_all_uses_with(given)
    for op in list(other):
        op.detach_from_parent()
        block.append(op)


def _block(op: Any) -> Any:
    return op.operation.regions[0].blocks[0]
