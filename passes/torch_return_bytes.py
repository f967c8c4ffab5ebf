"""``torch-return-bytes``: functions that return constants of unsigned bytes take and return builtin tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch_mlir import ir
from torch_mlir.passmanager import PassManager

from covan_mlir.passes.framework.trace_check import current_journal, identity

_BYTES = ",ui8>"
_RETURN = "func.return"
_CONVERSIONS = frozenset({"torch_c.from_builtin_tensor", "torch_c.to_builtin_tensor"})


@dataclass(frozen=True)
class TorchReturnBytes:
    """Converts the types of functions ahead of torch-mlir's pipeline to linalg where a constant of bytes is returned.

    The pipeline begins with the constants: it would give this one an attribute of signed bytes, which its type
    contradicts, as long as nothing but the return reads it. Other programs are left to the pipeline. What is converted
    is at the place of what gives it.

    Before::

        %0 = torch.vtensor.literal(dense<7> : tensor<2xui8>) : !torch.vtensor<[2],ui8>
        return %0 : !torch.vtensor<[2],ui8>

    After::

        %0 = torch.vtensor.literal(dense<7> : tensor<2xui8>) : !torch.vtensor<[2],ui8>
        %1 = torch_c.to_builtin_tensor %0 : !torch.vtensor<[2],ui8> -> tensor<2xi8>
        return %1 : tensor<2xi8>
    """

    name: ClassVar[str] = "torch-return-bytes"
    op_name: ClassVar[str | None] = "builtin.module"

    def run(self, op: ir.Operation) -> None:
        returned = [value for inner in _inside(op) if inner.name == _RETURN for value in inner.operands]
        if not any(str(value.type).endswith(_BYTES) and _is_constant(value) for value in returned):
            return
        PassManager.parse("builtin.module(torch-func-backend-type-conversion)", op.context).run(op)
        for inner in _inside(op):
            if inner.name == _RETURN or inner.name in _CONVERSIONS:
                current_journal().untraced.add(identity(inner))  # as the return was
            if inner.name in _CONVERSIONS and not isinstance(inner.operands[0].owner, ir.Block):
                inner.location = inner.operands[0].owner.location


def _inside(module: ir.Operation) -> list[ir.Operation]:
    """The operations in a module's functions."""
    functions = [view.operation for view in module.regions[0].blocks[0]]
    blocks = [block for function in functions for region in function.regions for block in region]
    return [view.operation for block in blocks for view in block]


def _is_constant(value: Any) -> bool:
    """Whether a value is, or will be folded to, a literal: nothing that it is computed of is an argument."""
    behind, seen = [value], set[Any]()
    while behind:
        owner = behind.pop().owner
        if isinstance(owner, ir.Block):
            return False
        if owner not in seen:
            seen.add(owner)
            behind += owner.operands
    return True
