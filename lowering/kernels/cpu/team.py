"""Dispatches whose work the calling thread shares with a team of the process's own threads.

IREE's workers sleep between calls, and to wake one takes longer than many kernels run. The threads of an OpenMP
runtime, torch's above all, are often still awake, and the caller is one of them. So each dispatch is given the address
of a function as OpenMP runtimes export it (``GOMP_parallel``; `covan_mlir.runtime.team` finds it), or 0. With 0, a
workgroup does its own share, on whatever thread it is. Otherwise the first workgroup has the team do the shares of all,
and the others have nothing left to do: one program serves both.

All kernels do so, covan's and those that IREE's compiler makes. It is done once their code is there, in LLVM's dialect,
and before it is machine code: what a kernel's function is by then, IREE's runtime and any other caller can call for any
workgroup.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import iree.compiler.ir as ir

from covan_mlir.lowering.kernels.cpu.team_functions import INSTRUCTION_SETS, functions
from covan_mlir.lowering.kernels.team import ADDRESS, DECLARATIONS, THREADS, WORDS

log = logging.getLogger(__name__)

MOST_CONSTANTS = 64
"""That a dispatch can be given (`IREE_HAL_EXECUTABLE_MAX_CONSTANT_COUNT`)."""
_LOCAL_MEMORY = "workgroup_local_memory"
_CONSTANTS = re.compile(r"constants = (\d+)")


def share(module: Any) -> int:
    """Makes the dispatches of a module of IREE's, in whose context the caller is, call teams.

    Args:
        module: after the phase that makes code of executables.

    Returns:
        How many dispatches do.
    """
    with ir.Location.unknown():
        return _share(module)


def _share(module: Any) -> int:
    wrapped = {export.symbol for export in list(_exports(module)) if _wrap(export)}
    if not wrapped:
        return 0
    dispatches = [op for op in _walk(module.operation) if op.name == "stream.cmd.dispatch"]
    shared = [op for op in dispatches if all(str(entry) in wrapped for entry in op.attributes["entry_points"])]
    # Nothing is looked up by a dispatch: one that was replaced must not be compared with.
    owners = [_function(op) for op in shared]
    words = {function: _words(function) for function in dict.fromkeys(owners)}
    for op, function in zip(shared, owners, strict=True):
        _give(op, words[function])
    declared = ir.Module.parse(DECLARATIONS)
    for op in list(declared.body.operations):
        op.detach_from_parent()
        module.body.append(op)
    return len(shared)


@dataclass(frozen=True)
class _Export:
    """A kernel of an executable.

    Attributes:
        symbol: as dispatches have it.
        inner: the module with its code.
    """

    symbol: str
    export: Any
    inner: Any
    function: Any
    target: str


def _exports(module: Any) -> Iterator[_Export]:
    for executable in module.body.operations:
        if executable.operation.name != "hal.executable":
            continue
        variants = [op for op in _block(executable) if op.name == "hal.executable.variant"]
        if len(variants) != 1:
            continue  # a dispatch would be of several
        (variant,) = variants
        modules = [op for op in _block(variant) if op.name == "builtin.module"]
        if len(modules) != 1:
            continue  # its code is given, as of GPUs
        (inner,) = modules
        code = {_symbol(op): op for op in _block(inner) if op.name == "llvm.func"}
        for export in [op for op in _block(variant) if op.name == "hal.executable.export"]:
            if (function := code.get(_symbol(export))) is not None:
                symbol = f"@{_symbol(executable.operation)}::@{_symbol(variant)}::@{_symbol(export)}"
                yield _Export(symbol, export, inner, function, str(variant.attributes["target"]))


def _wrap(kernel: _Export) -> bool:
    """Makes a kernel's function one that a team calls, if it can be."""
    triple = re.search(r'target_triple = "(\w+)-', kernel.target)
    if triple is None or triple.group(1) not in INSTRUCTION_SETS:
        return False
    if _LOCAL_MEMORY in kernel.export.attributes:
        log.info("%s runs on one thread: it has memory of its own that a caller gives it", kernel.symbol)
        return False
    layout = str(kernel.export.attributes["layout"])
    given = int(match.group(1)) if (match := _CONSTANTS.search(layout)) else 0
    if given + WORDS > MOST_CONSTANTS:
        log.info("%s runs on one thread: with a team's it would be given %d numbers", kernel.symbol, given + WORDS)
        return False
    begin = "#hal.pipeline.layout<"
    rest = layout.removeprefix(begin) if match is None else layout[match.end() + len(", ") :]
    kernel.export.attributes["layout"] = ir.Attribute.parse(f"{begin}constants = {given + WORDS}, {rest}")
    name = _symbol(kernel.export)
    function = kernel.function
    function.attributes["sym_name"] = ir.StringAttr.get(f"{name}_part")
    function.attributes["linkage"] = ir.Attribute.parse("#llvm.linkage<internal>")
    function.attributes["no_inline"] = ir.UnitAttr.get()
    bindings = layout.count("#hal.pipeline.binding")
    # Parsed beside a declaration of what it calls.
    declared = f"llvm.func @{name}_part(!llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32"
    parsed = ir.Module.parse(declared + functions(name, given, bindings, INSTRUCTION_SETS[triple.group(1)]))
    for op in list(parsed.body.operations)[1:]:
        op.detach_from_parent()
        kernel.inner.regions[0].blocks[0].append(op)
    return True


def _words(function: Any) -> list[Any]:
    """What dispatches of a function are given for a team; while a program is loaded, there is none."""
    block = function.regions[0].blocks[0]
    i32, i64 = ir.IntegerType.get_signless(32), ir.IntegerType.get_signless(64)

    def create(name: str, kind: Any, operands: list[Any], **attributes: Any) -> Any:
        return ir.Operation.create(name, [kind], operands, attributes=attributes).result

    with ir.InsertionPoint.at_block_begin(block):
        if function.name == "util.initializer":
            return [create("arith.constant", i32, [], value=ir.IntegerAttr.get(i32, 0))] * WORDS
        address = create("util.global.load", i64, [], **{"global": ir.FlatSymbolRefAttr.get(ADDRESS)})
        threads = create("util.global.load", i32, [], **{"global": ir.FlatSymbolRefAttr.get(THREADS)})
        bits = create("arith.constant", i64, [], value=ir.IntegerAttr.get(i64, 32))
        high = create("arith.shrui", i64, [address, bits])
        return [create("arith.trunci", i32, [word]) for word in (address, high)] + [threads]


def _give(op: Any, words: list[Any]) -> None:
    """Replaces a dispatch by one that is given further numbers."""
    sizes = [int(size) for size in op.attributes["operandSegmentSizes"]]
    before = sizes[0] + sizes[1]
    operands = list(op.operands)
    sizes[1] += len(words)
    attributes = {name: op.attributes[name] for name in _names(op)}
    attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get(sizes)
    with op.location, ir.InsertionPoint(op):
        ir.Operation.create(op.name, [], [*operands[:before], *words, *operands[before:]], attributes=attributes)
    op.erase()


def _names(op: Any) -> list[str]:
    return [name if isinstance(name, str) else name.name for name in op.attributes]


def _function(op: Any) -> Any:
    """The function or initialiser that an operation is in."""
    while op.name not in ("util.func", "util.initializer"):
        op = op.parent.operation if hasattr(op.parent, "operation") else op.parent
    return op


def _walk(op: Any) -> Iterator[Any]:
    """All operations of functions; not those of executables."""
    for region in op.regions:
        for block in region:
            for view in list(block):
                inner = view.operation
                if inner.name != "hal.executable":
                    yield inner
                    yield from _walk(inner)


def _block(op: Any) -> list[Any]:
    return [view.operation for view in op.operation.regions[0].blocks[0]]


def _symbol(op: Any) -> str:
    return str(ir.StringAttr(op.attributes["sym_name"]).value)
