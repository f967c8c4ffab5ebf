"""Kernels into IREE's module: calls of the functions that stand for them become dispatches, and what they read prepared
becomes globals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from covan_mlir.lowering.kernels.kernel import Executable
from covan_mlir.lowering.kernels.prepare import Preparer
from covan_mlir.lowering.pipeline import StepError


def by_name(executables: Iterable[Executable]) -> dict[str, Executable]:
    """Executables by the name that calls have of them.

    Raises:
        StepError: two that are not the same have one name.
    """
    known: dict[str, Executable] = {}
    for executable in executables:
        if known.setdefault(executable.name, executable) != executable:
            raise StepError(f"two kernels are called {executable.name}: a call would not say which of them it means")
    return known


def embed(module: Any, executables: Iterable[Executable]) -> Counter[str]:
    """Makes dispatches of the calls of kernels, and gives the module what they dispatch.

    Args:
        module: of IREE, in whose context the caller is; each kernel is declared in it as a private function without a
            body, which goes.

    Returns:
        How many calls of each kernel there are.

    Raises:
        StepError: two kernels that are not the same have one name.
    """
    import iree.compiler.ir as ir

    known = by_name(executables)
    calls: Counter[str] = Counter()
    preparer = Preparer(module)
    with ir.Location.unknown():
        # An op of a dialect that is not loaded yet would be one of an unknown dialect for ever.
        module.context.get_dialect_descriptor("flow")
        for view in list(module.body.operations):
            if view.operation.name != "func.func":
                continue
            if view.attributes["sym_name"].value in known:
                view.operation.erase()
                continue
            for block in view.regions[0]:
                for call in [inner.operation for inner in block if inner.operation.name == "func.call"]:
                    if (name := ir.FlatSymbolRefAttr(call.attributes["callee"]).value) in known:
                        calls[name] += 1
                        _dispatch(call, known[name], preparer)
        for executable in known.values():
            owner = ir.Module.parse(executable.text)  # of what is in it until that is moved
            for op in list(owner.body.operations):
                op.detach_from_parent()
                module.body.append(op)
    return calls


def _dispatch(call: Any, executable: Executable, preparer: Preparer) -> None:
    """Replaces a call by the dispatches of an executable."""
    import iree.compiler.ir as ir
    from iree.compiler.dialects import arith

    from covan_mlir.dialects.prov_locations import Fused, fused_key, fused_of, without

    names = [*(operand.name for operand in executable.inputs), *executable.sizes]
    values = dict(zip(names, call.operands, strict=True))
    sizes = {axis: values[axis] for axis in executable.sizes}
    for preparation in executable.preparations:
        sources = [values[name] for name in preparation.sources]
        values[preparation.operand.name] = preparer.value(preparation, sources, call)
    read = {operand.name for step in executable.dispatches for operand in step.inputs}
    values |= {name: preparer.reshaped(value, call) for name, value in values.items() if name in read}
    with ir.Location.unknown(), ir.InsertionPoint(call):  # no action computes them
        i32 = ir.IntegerType.get_signless(32)
        numbers = [arith.index_castui(i32, size) for size in sizes.values()]
    for number, step in enumerate(executable.dispatches):
        shapes = [[sizes[axis] for operand in side for axis in operand.extents] for side in (step.inputs, step.outputs)]
        counts = [len(sizes), len(step.inputs) + len(numbers), *map(len, shapes)]
        attributes = {
            "entry_points": ir.ArrayAttr.get([ir.SymbolRefAttr.get([step.name, step.name])]),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get(counts),
        }
        kinds = [ir.Type.parse(operand.tensor) for operand in step.outputs]
        where = call.location
        if step.outputs != executable.outputs and (said := fused_of(where)) is not None:
            begun = said.begun[number]
            states = set(begun).difference(said.read)  # each result is one of all that is begun
            rest = without(where, {*said.performed}.difference(begun))
            where = ir.Location.name(fused_key(Fused([states] * len(kinds), begun)), rest)
        with where, ir.InsertionPoint(call):
            operands = [values[operand.name] for operand in step.inputs]
            given = [*sizes.values(), *operands, *numbers, *shapes[0], *shapes[1]]
            op = ir.Operation.create("flow.dispatch", kinds, given, attributes=attributes)
        values |= dict(zip([operand.name for operand in step.outputs], op.results, strict=True))
    for before, operand in zip(call.results, executable.outputs, strict=True):
        before.replace_all_uses_with(values[operand.name])
    call.erase()
