"""``fred-raise``: chains of reductions, from linalg on tensors."""

from dataclasses import dataclass
from typing import ClassVar

from torch_mlir import ir

from covan_mlir.lowering.kernels.for_target import ForTarget
from covan_mlir.passes.raising.raise_chains import raise_chains


@dataclass(frozen=True)
class FredRaise(ForTarget):
    """Finds reductions and element-wise ops that share axes and makes each such set one ``fred.chain``.

    No op of torch is looked for: a chain is what `chain_search` says it is. What cannot be raised stays as it was.

    Before::

        %m = linalg.generic {max over d1} ins(%x : tensor<5x7xf32>) outs(%least : tensor<5xf32>) -> tensor<5xf32>
        %w = tensor.expand_shape %m [[0, 1]] output_shape [5, 1] : tensor<5xf32> into tensor<5x1xf32>
        %d = linalg.generic {subf} ins(%x, %w : ...) -> tensor<5x7xf32>

    After, in short::

        %d = "fred.chain"(%x) ({
        ^bb0(%in: tensor<5x7xf32>):
          %v0 = "fred.reduce"() ({max of %in over j}) {value = "v0", axes = ["i"], over = ["j"]} : () -> tensor<5xf32>
          %v1 = "fred.map"() ({%in - %v0}) {value = "v1", axes = ["i", "j"]} : () -> tensor<5x7xf32>
          "fred.output"(%v1) : (tensor<5x7xf32>) -> ()
        }) {axes = ["i", "j"], sizes = [5, 7], ...} : (tensor<5x7xf32>) -> tensor<5x7xf32>

    Images between chains may lie with their channels behind the positions, where kernels are predicted to take less
    then (`covan_mlir.passes.raising.layouts`): chains give and read them in that order.

    With a target, only what becomes a kernel there: a chain that has none is tried again without its matrix products,
    and stays as it was if that has none either. What was decided about each, with the derivation and its proofs, is
    the function's ``covan.decisions``. What the function's arguments are is read from their attributes
    (`covan_mlir.dialects.arguments`).

    Options:
        products: whether chains may hold matrix products
        target: what the kernels are for, as ``covan compile --target`` takes it; empty: all chains are raised
        fuse: pays: where a kernel is predicted to pay; always: wherever there is one
        winograd: how many times as large as that of a direct sum the rounding error of a convolution by Winograd's
            filtering may be; 0: there are none
        demote-f64: kernels compute in float32 what the program has in float64
    """

    name: ClassVar[str] = "fred-raise"
    op_name: ClassVar[str | None] = "func.func"

    products: bool = True

    def run(self, op: ir.Operation) -> None:
        if not self.target:
            raise_chains(op, products=self.products)
        elif (chooser := self.chooser(op)) is not None:
            decisions = chooser.decisions()
            raise_chains(op, decisions, self.products)
            decisions.write(op)
