"""Kernels whose work the calling thread shares with a team of the process's own threads.

IREE's workers sleep between calls, and to wake one takes longer than many kernels run. The threads of an OpenMP
runtime, torch's above all, are often still awake, and the caller is one of them. So each dispatch is given the address
of a function as OpenMP runtimes export it (``GOMP_parallel``; `covan_mlir.runtime.team` finds it), or 0. With 0, a
workgroup does its own share, on whatever thread it is. Otherwise the first workgroup has the team do the shares of all,
and the others have nothing left to do: one program serves both.

Beside it goes the number of threads that will come, to share by. Where a program has both from:
`covan_mlir.lowering.kernels.team`.

IREE's code generation takes no calls of functions that are not known by name: its passes over call graphs fail. What is
called here by name is a function of one instruction that jumps to the address, with the arguments as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import iree.compiler.ir as ir

from covan_mlir.lowering.kernels.cpu.executable import MARK
from covan_mlir.lowering.kernels.cpu.team_functions import INSTRUCTION_SETS, InstructionSet, functions
from covan_mlir.lowering.kernels.team import WORDS
from covan_mlir.lowering.pipeline import PipelineState


def share(module: Any) -> None:
    """Makes kernels call teams: of the executables in a module of IREE's, those that are marked."""
    for inner, function, target in list(_marked(module)):
        del function.attributes[MARK]
        triple = re.search(r'target_triple = "(\w+)-', str(target))
        if triple and triple.group(1) in INSTRUCTION_SETS:
            _share(inner, function, INSTRUCTION_SETS[triple.group(1)])


def run(state: PipelineState) -> None:
    """Makes kernels call teams, once executables have targets and before their code is generated."""
    with state.session.context, ir.Location.unknown():
        share(state.module)


def _marked(module: Any) -> Iterator[tuple[Any, Any, Any]]:
    for executable in module.body.operations:
        if executable.operation.name != "hal.executable":
            continue
        for variant in executable.operation.regions[0].blocks[0].operations:
            if variant.operation.name != "hal.executable.variant":
                continue
            for inner in variant.operation.regions[0].blocks[0].operations:
                if inner.operation.name != "builtin.module":
                    continue
                for function in inner.operation.regions[0].blocks[0].operations:
                    if MARK in function.operation.attributes:
                        yield inner.operation, function.operation, variant.operation.attributes["target"]


def _symbol(op: Any) -> str:
    return str(ir.StringAttr(op.attributes["sym_name"]).value)


_MEMORY, _NUMBER, _PLACE, _COUNT = (
    f"hal.interface.{name}" for name in ("binding.subspan", "constant.load", "workgroup.id", "workgroup.count")
)


def _share(module: Any, function: Any, instruction_set: InstructionSet) -> None:
    """Splits a function: it still asks for what it is given; what it does with that goes to a function of its own."""
    block = function.regions[0].blocks[0]
    *ops, end = (view.operation for view in block)
    memories, numbers, places = ([op for op in ops if op.name == name] for name in (_MEMORY, _NUMBER, _PLACE))
    if not places:
        return  # there is one workgroup, and nothing to share
    given = [*places, *numbers, *memories]
    name = _symbol(function)
    parsed = ir.Module.parse(functions(name, len(numbers), [str(op.result.type) for op in memories], instruction_set))
    helpers = [view.operation for view in parsed.body.operations]
    part = next(op for op in helpers if _symbol(op) == f"{name}_part").regions[0].blocks[0]

    _move(ops, given, part)
    with ir.InsertionPoint(end):
        count = ir.Operation.create(
            _COUNT, [ir.IndexType.get()], attributes={"dimension": places[0].attributes["dimension"]}
        )
        operands = [count.result, *_words(memories[0]), *(op.result for op in given)]
        attributes = {"callee": ir.FlatSymbolRefAttr.get(f"{name}_enter")}
        ir.Operation.create("func.call", [], operands, attributes=attributes)
    for op in helpers:
        op.detach_from_parent()
        module.regions[0].blocks[0].append(op)


def _move(ops: list[Any], given: list[Any], part: Any) -> None:
    """Moves operations to a block that is given some of their values as its arguments. What it takes to ask for these
    stays, and what else uses the same numbers gets copies."""
    asked = list(given)
    for op in asked:
        asked += [value.owner for value in op.operands if value.owner not in asked]
    end = part.operations[len(part.operations) - 1]
    values = [(op.result, argument) for op, argument in zip(given, part.arguments, strict=True)]
    for op in ops:
        if op not in asked:
            op.move_before(end)
        elif op not in given:
            values.append((op.result, op.clone(ir.InsertionPoint(end)).result))
    for old, new in values:
        for use in list(old.uses):
            if use.owner.operation not in asked:
                use.owner.operands[use.operand_number] = new


def _words(memory: Any) -> list[Any]:
    """The address that the dispatch is given, as two words, and the threads: the last constants of the layout."""
    layout = memory.attributes["layout"]
    (count,) = map(int, re.findall(r"constants = (\d+)", str(layout)))
    index, i32 = ir.IndexType.get(), ir.IntegerType.get_signless(32)

    def word(ordinal: int) -> Any:
        attributes = {"layout": layout, "ordinal": ir.IntegerAttr.get(index, ordinal)}
        return ir.Operation.create(_NUMBER, [i32], attributes=attributes).result

    return [word(count - WORDS + n) for n in range(WORDS)]
