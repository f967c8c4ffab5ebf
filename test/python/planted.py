"""Faults that tests plant in the compiler: extra steps of a compilation (`covan_mlir.CompileOptions`).

Each is a function of the pipeline's state, in the bindings of the context that the module is in at that step.
"""

from __future__ import annotations

from typing import Any

HERE = __file__


def fault(name: str, after: str) -> tuple[tuple[str, str], ...]:
    """``extra_steps`` with one fault."""
    return ((after, f"{HERE}:{name}"),)


def flip_sign(state: Any) -> None:
    """After ``torch-to-linalg``: one addition in the middle of the program subtracts."""
    import torch_mlir.ir as ir

    adds = _ops(state, ir, "arith.addf")
    _replace(ir, adds[len(adds) // 2], "arith.subf")


def not_a_number(state: Any) -> None:
    """After ``torch-to-linalg``: the last hyperbolic tangent is a logarithm, of numbers that are negative."""
    import torch_mlir.ir as ir

    _replace(ir, _ops(state, ir, "math.tanh")[-1], "math.log")


def wrong_repair(state: Any) -> None:
    """After ``iree:kernel-code``: a fused kernel that keeps nothing but its own result adds where it should subtract
    the maximum that it corrects for."""
    import iree.compiler.ir as ir

    memories = _ops(state, ir, "hal.interface.binding.subspan")
    written = [_kernel(op) for op in memories if "flags(ReadOnly)" not in str(op)]
    if len(set(written)) < len(written):
        return  # some value inside of the chain is observed
    for op in _ops(state, ir, "arith.subf")[:1]:
        _replace(ir, op, "arith.addf")


def past_the_row(state: Any) -> None:
    """After ``iree:kernel-code``: a fused kernel reads one element further than it should, once."""
    _move_load(state, 1)


def far_away(state: Any) -> None:
    """After ``iree:kernel-code``: a fused kernel reads memory that is nobody's."""
    _move_load(state, 1 << 42)


def wrong_constant(state: Any) -> None:
    """After ``iree:global-optimization``: a vector of constants has one wrong element."""
    import iree.compiler.ir as ir
    import numpy as np

    for op in [*_ops(state, ir, "util.global"), *_ops(state, ir, "arith.constant")]:
        name = "initial_value" if op.name == "util.global" else "value"
        if name not in op.attributes or not str(op.attributes[name].type).startswith("tensor<48x"):
            continue
        held = ir.DenseFPElementsAttr(op.attributes[name])
        values = np.array([held[index] for index in range(len(held))], np.float32)
        values[17] *= 1.25
        op.attributes[name] = ir.DenseFPElementsAttr.get(values)


def _move_load(state: Any, distance: int) -> None:
    import iree.compiler.ir as ir

    loads = [op for op in _ops(state, ir, "vector.load") if "max" in _kernel(op)]
    if not loads:
        return  # this program has no fused kernel of several reductions
    op = loads[-1]
    with ir.InsertionPoint(op), op.location:
        index = ir.IndexType.get()
        far = ir.Operation.create(
            "arith.constant", results=[index], attributes={"value": ir.IntegerAttr.get(index, distance)}
        )
        moved = ir.Operation.create("arith.addi", results=[index], operands=[op.operands[1], far.results[0]])
    op.operands[1] = moved.results[0]


def _kernel(op: Any) -> str:
    """The name of the executable that an op is in."""
    while op.name != "hal.executable.source":
        op = op.parent
        if op is None:
            return ""
        op = op.operation
    return str(op.attributes["sym_name"].value)


def _ops(state: Any, ir: Any, name: str) -> list[Any]:
    operations: list[Any] = []

    def see(op: Any) -> Any:
        if op.name == name:
            operations.append(op)
        return ir.WalkResult.ADVANCE

    state.module.operation.walk(see)
    return operations


def _replace(ir: Any, op: Any, name: str) -> None:
    with ir.InsertionPoint(op), op.location:
        new = ir.Operation.create(name, results=[op.results[0].type], operands=list(op.operands))
    op.results[0].replace_all_uses_with(new.results[0])
    op.erase()
