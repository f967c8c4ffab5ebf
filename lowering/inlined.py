"""Operators of covan's own in the torch dialect: bodies of functions that were given as MLIR, and barriers.

torch-mlir imports an operator that it does not know as ``torch.operator "torch.covan.<name>"``. Where it stands comes
a copy of the function's body, each operation of which has the location of the operator. A barrier becomes a region
that is not to be inlined, for only upstream dialects cross to IREE, and there ``util.optimization_barrier``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from covan_mlir.lowering.pipeline import PipelineState, Run, StepError

NAMESPACE = "covan"
"""Of the operators in torch."""
BARRIER = "covan.barrier"
_MARK = "covan.barrier"
_PREPARE = "builtin.module(inline, func.func(convert-elementwise-to-linalg))"
"""Functions that the text's function calls are put into it; arithmetic on tensors is taken in linalg's form only."""


def main_function(module: Any, name: str) -> Any:
    """The function of a parsed module that has this name, or the only one.

    Raises:
        ValueError: there is none, or it has several blocks or no body.
    """
    functions = [op for op in module.body.operations if op.operation.name == "func.func"]
    named = [op for op in functions if not name or op.attributes["sym_name"].value == name]
    public = named if len(named) == 1 or name else [op for op in named if not _private(op)]
    if len(public) != 1:
        there = ", ".join(op.attributes["sym_name"].value for op in functions) or "none"
        raise ValueError(f"which function is it? There is {there}: MlirFunction(text, name=...)")
    if len(public[0].regions[0].blocks) != 1:
        raise ValueError("the function has no body of one block")
    return public[0]


def _private(op: Any) -> bool:
    return "sym_visibility" in op.attributes and op.attributes["sym_visibility"].value == "private"


def bodies(functions: Sequence[tuple[str, str, str]]) -> Run:
    """The step on torch-mlir's side: bodies in place of operators, regions in place of barriers.

    Args:
        functions: names of operators, the texts of the modules that they stand for, and names of functions in these.
    """
    texts = {operator: (text, name) for operator, text, name in functions}
    return lambda state: _inline(state, texts)


def _operators(module: Any) -> list[Any]:
    from torch_mlir import ir

    operators: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name == "torch.operator" and op.attributes["name"].value.startswith(f"torch.{NAMESPACE}."):
            operators.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return operators


def _inline(state: PipelineState, functions: Mapping[str, tuple[str, str]]) -> None:
    from torch_mlir import ir
    from torch_mlir.passmanager import PassManager

    module = state.module
    with module.context, ir.Location.unknown():
        parsed: dict[str, Any] = {}
        for op in _operators(module):
            name = op.attributes["name"].value.removeprefix("torch.")
            with op.location, ir.InsertionPoint(op):
                if name == BARRIER:
                    (given,) = _builtin(op.operands, [_tensor(op.operands[0].type)])
                    results = [_barrier(given)]
                else:
                    if name not in functions:
                        raise StepError(f"nothing is known of the operator {name}")
                    text, wanted = functions[name]
                    if name not in parsed:
                        parsed[name] = ir.Module.parse(text)
                        PassManager.parse(_PREPARE).run(parsed[name].operation)
                    function = main_function(parsed[name], wanted)
                    given = _builtin(op.operands, list(function.type.inputs))
                    results = _copied(function, given, op.location)
                for old, given in zip(op.results, results, strict=True):
                    new = _cast(given, _tensor(old.type))
                    back = ir.Operation.create("torch_c.from_builtin_tensor", [old.type], [new])
                    old.replace_all_uses_with(back.result)
            op.erase()


def _tensor(kind: Any) -> Any:
    """``!torch.vtensor<[2,?],f32>`` as ``tensor<2x?xf32>``."""
    from torch_mlir import ir

    sizes, _, element = str(kind).removeprefix("!torch.vtensor<[").removesuffix(">").rpartition("],")
    dims = "x".join(sizes.split(",")) + "x" if sizes else ""
    return ir.Type.parse(f"tensor<{dims}{element.removeprefix('s') if element[0] == 's' else element}>")


def _builtin(operands: Any, kinds: list[Any]) -> list[Any]:
    """Operands as builtin tensors of these types."""
    from torch_mlir import ir

    values = []
    for operand, kind in zip(operands, kinds, strict=True):
        own = _tensor(operand.type)
        value = ir.Operation.create("torch_c.to_builtin_tensor", [own], [operand]).result
        values.append(_cast(value, kind))
    return values


def _cast(value: Any, kind: Any) -> Any:
    """The value with more or fewer of its sizes in its type."""
    from torch_mlir.dialects import tensor

    return value if value.type == kind else tensor.CastOp(kind, value).result


def _copied(function: Any, given: list[Any], location: Any) -> list[Any]:
    """A copy of the function's body at the insertion point; -> what it returns."""
    block = function.regions[0].blocks[0]
    new = dict(zip(block.arguments, given, strict=True))
    for view in block:
        op = view.operation
        if op.name == "func.return":
            return [new[value] for value in op.operands]
        copy = op.clone()
        _remap(copy, new)
        _locate(copy, location)
        new.update(zip(op.results, copy.results, strict=True))
    raise StepError("an attached function does not return")


def _remap(op: Any, new: Mapping[Any, Any]) -> None:
    """Reads of the function's values become reads of the copies; also from inside of regions."""
    for index, value in enumerate(op.operands):
        if value in new:
            op.operands[index] = new[value]
    for region in op.regions:
        for block in region.blocks:
            for inner in block:
                _remap(inner.operation, new)


def _locate(op: Any, location: Any) -> None:
    op.location = location
    for region in op.regions:
        for block in region.blocks:
            for inner in block:
                _locate(inner.operation, location)


def _barrier(value: Any) -> Any:
    """A region that no pass opens: torch-mlir takes neither calls nor operations that it does not know."""
    from torch_mlir import ir

    op = ir.Operation.create(
        "scf.execute_region",
        [value.type],
        attributes={"no_inline": ir.UnitAttr.get(), _MARK: ir.UnitAttr.get()},
        regions=1,
    )
    with ir.InsertionPoint(op.regions[0].blocks.append()):
        ir.Operation.create("scf.yield", [], [value])
    return op.results[0]


def barriers(state: PipelineState) -> None:
    """The step on IREE's side: barriers in place of regions."""
    import iree.compiler.ir as ir

    regions: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name == "scf.execute_region" and _MARK in op.attributes:
            regions.append(op)
        return ir.WalkResult.ADVANCE

    with state.session.context as context, ir.Location.unknown():
        context.get_dialect_descriptor("util")
        state.module.operation.walk(visit)
        for op in regions:
            (inner,) = op.regions[0].blocks[0]
            given = inner.operation.operands[0]
            with op.location, ir.InsertionPoint(op):
                new = ir.Operation.create("util.optimization_barrier", [given.type], [given])
            op.results[0].replace_all_uses_with(new.results[0])
            op.erase()
