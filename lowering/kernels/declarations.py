"""A kernel as a private function without a body: what calls of it stand for is an attribute of the declaration.

So a program carries its kernels from one context to another, and what makes dispatches of the calls needs no more than
the program.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

import msgspec
from torch_mlir import ir
from torch_mlir.dialects import func

from covan_mlir.lowering.kernels.chain_body import KernelBody
from covan_mlir.lowering.kernels.embed import embed
from covan_mlir.lowering.kernels.kernel import Executable
from covan_mlir.lowering.kernels.select import Selection
from covan_mlir.lowering.kernels.template import Cost
from covan_mlir.provenance.bodies import Body

KERNEL = "covan.kernel"


@dataclass(frozen=True)
class Declared:
    """What a declaration says.

    Attributes:
        cost: as it was predicted.
        body: what it computes.
    """

    executable: Executable
    cost: Cost
    body: Body

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "executable": self.executable.to_json(),
            "cost": asdict(self.cost),
            "body": msgspec.to_builtins(self.body),
        }

    @staticmethod
    def from_json(fields: dict[str, Any]) -> Declared:
        """The inverse of `to_json`."""
        executable = Executable.from_json(fields["executable"])
        return Declared(executable, Cost(**fields["cost"]), msgspec.convert(fields["body"], Body))


def declare(module: ir.Operation, selection: Selection, kind: ir.FunctionType, body: Body) -> ir.Operation:
    """Declares a kernel, which computes ``body``, at the end of a module of torch-mlir's."""
    executable = selection.executable
    with ir.Location.unknown(module.context), ir.InsertionPoint(module.regions[0].blocks[0]):
        declaration = func.FuncOp(executable.name, kind, visibility="private").operation
    text = json.dumps(Declared(executable, selection.cost, body).to_json())
    declaration.attributes[KERNEL] = ir.StringAttr.get(text, module.context)
    return declaration


def declared(module: Any) -> list[Declared]:
    """The kernels that a module of either compiler declares, in order."""
    functions = [view.operation for view in module.body.operations if KERNEL in view.operation.attributes]
    return [Declared.from_json(json.loads(function.attributes[KERNEL].value)) for function in functions]


def bodies(module: Any) -> dict[str, KernelBody]:
    """What the kernels compute that a module of either compiler declares, by the symbol of each of their dispatches."""
    known: dict[str, KernelBody] = {}
    for kernel in declared(module):
        body = KernelBody.of(kernel.executable, kernel.body)
        known |= {step.name: body for step in kernel.executable.dispatches}
    return known


def embed_declared(module: Any) -> list[Executable]:
    """Makes dispatches of the calls of the kernels that a module of IREE's declares, in whose context the caller is.

    Returns:
        the kernels.

    Raises:
        StepError: two kernels that are not the same have one name.
    """
    executables = [kernel.executable for kernel in declared(module)]
    if executables:
        embed(module, executables)
    return executables
