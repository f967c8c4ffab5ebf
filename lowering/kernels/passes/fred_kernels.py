"""``fred-kernels``: chains of reductions as calls of the kernels that compute them."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from torch_mlir import ir
from torch_mlir.dialects import arith, func, tensor

from covan_mlir.dialects.chain_holders import CHAINS, holds_ops
from covan_mlir.dialects.fred_chain import chains, read_chain
from covan_mlir.dialects.prov_graph import functions
from covan_mlir.dialects.prov_locations import Fused, TraceReader, fused_key
from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.for_target import ForTarget
from covan_mlir.passes.framework.interface import PassFailure
from covan_mlir.passes.framework.rewriter import Rewriter
from covan_mlir.passes.framework.trace_check import current_journal, identity
from covan_mlir.passes.fred_lower import lower_chain

if TYPE_CHECKING:
    from covan_mlir.lowering.kernels.kernel import Executable


@dataclass(frozen=True)
class FredKernels(ForTarget):
    """Makes each ``fred.chain`` a call of a private function, whose declaration holds the kernel of a target; so each
    operator (``kir``), which is one.

    Only upstream dialects cross to IREE. There the call becomes a dispatch (`covan_mlir.lowering.kernels.embed`). Sizes
    that are known at run time only are arguments of the call. What its results are, and not just what it performs in
    all, is in its location. A chain without a kernel becomes linalg on tensors again.

    Before::

        %m = "fred.chain"(%x) ({...}) {...} : (tensor<5x7xf32>) -> tensor<5xf32>

    After::

        %m = call @fred_max_5x7_f32_b5001c2f90d1e3a4(%x) : (tensor<5x7xf32>) -> tensor<5xf32>
        ...
        func.func private @fred_max_5x7_f32_b5001c2f90d1e3a4(tensor<5x7xf32>) -> tensor<5xf32>
            attributes {covan.kernel = "{\\22executable\\22: ...}"}

    Options:
        target: what the kernels are for, as ``covan compile --target`` takes it
        fuse: pays: where a kernel is predicted to pay; always: wherever there is one
        winograd: how many times as large as that of a direct sum the rounding error of a convolution by Winograd's
            filtering may be; 0: there are none
        demote-f64: kernels compute in float32 what the program has in float64
    """

    name: ClassVar[str] = "fred-kernels"
    op_name: ClassVar[str | None] = "builtin.module"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.target:
            raise ValueError("which kernels? Write target=cpu")

    def run(self, op: ir.Operation) -> None:
        # Here, for these are the code generators of all targets.
        from covan_mlir.lowering.kernels.chain_body import chain_body
        from covan_mlir.lowering.kernels.declarations import declare
        from covan_mlir.lowering.kernels.kernel import Refusal

        chooser = self.chooser(op)
        declared: dict[str, Executable] = {}
        for function in functions(op):
            chain_ops = [chain_op for chain_op in chains(function, *CHAINS) if not holds_ops(chain_op)]
            rewriter = Rewriter(function) if chain_ops else None
            for chain_op in chain_ops:
                assert rewriter is not None
                chain = read_chain(chain_op)
                kernel = Refusal("the target takes no kernels") if chooser is None else chooser.kernel(chain)
                if isinstance(kernel, Refusal):
                    lower_chain(chain_op, rewriter)
                    continue
                call = _call(chain_op, chain, kernel.executable, rewriter)
                name = kernel.executable.name
                if name not in declared:
                    declared[name] = kernel.executable
                    # It performs nothing: the calls do.
                    current_journal().untraced.add(identity(declare(op, kernel, _kind(call), chain_body(chain))))
                elif declared[name] != kernel.executable:
                    said = f"two kernels are called {name}: a call would not say which of them it means"
                    raise PassFailure(said, call.location)


def _call(op: ir.Operation, chain: Chain, executable: Executable, rewriter: Rewriter) -> ir.Operation:
    reader = TraceReader()
    steps = [view.operation for view in op.regions[0].blocks[0]]
    ids = {step.attributes["value"].value: reader.ids(step.location) for step in steps if "value" in step.attributes}
    begun = [_begun(chain, {operand.name for operand in step.inputs}) for step in executable.dispatches[:-1]]
    read = chain.trace.difference(*ids.values())
    fused = Fused([ids.get(output, ()) for output in chain.outputs], chain.trace, begun, read)
    with rewriter.replacing(op) as new:
        operands = [*op.operands, *(_extent(axis, chain, op) for axis in executable.sizes)]
        call = func.CallOp([result.type for result in op.results], executable.name, operands).operation
        new.results(call)
    # Around the trace that the rewriter has given it.
    call.location = ir.Location.name(fused_key(fused), call.location)
    return call


def _begun(chain: Chain, inputs: Set[str]) -> frozenset[int]:
    """What a dispatch that leaves partial results does some of: reductions that read nothing but what it is given and
    what is prepared of weights, and what they read. What is done with their results comes behind the last of them."""
    given = inputs | {value.name for value in chain.inputs if value.weight} | {step.name for step in chain.steps}
    begun = [step.name for step in chain.reductions if chain.depends(step.name) <= given]
    needed = frozenset(begun).union(*map(chain.depends, begun))
    return frozenset().union(*(step.trace for step in chain.steps if step.name in needed))


def _extent(axis: str, chain: Chain, op: ir.Operation) -> ir.Value:
    """The size of an axis, from an operand that has it."""
    number, value = next((n, value) for n, value in enumerate(chain.inputs) if axis in value.axes)
    position = arith.ConstantOp(ir.IndexType.get(), value.axes.index(axis)).result
    return tensor.DimOp(op.operands[number], position).result


def _kind(call: ir.Operation) -> ir.FunctionType:
    return ir.FunctionType.get([value.type for value in call.operands], [value.type for value in call.results])
