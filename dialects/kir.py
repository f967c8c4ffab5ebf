"""The ``kir`` dialect: operators of a compiled model, one for each kernel of covan's.

```mlir
%y = "kir.linear"(%x, %w, %s) ({
^bb0(%x_: tensor<5x8xi8>, %w_: tensor<16x8xi8>, %s_: tensor<16xf32>):
  %sums = "fred.reduce"() ({ (extui %x_ - 121) * extsi %w_ }) {value = "v0", over = ["k"], ...} : () -> tensor<5x16xi32>
  %y_ = "fred.map"() ({ sitofp %sums * 0.03 * %s_ }) {value = "v1", ...} : () -> tensor<5x16xf32>
  "fred.output"(%y_) : (tensor<5x16xf32>) -> ()
}) {axes = ["i", "j", "k"], sizes = [5, 16, 8], names = ["x", "w", "s"], ...,
    first = {name = "x", signed = false, zero = 121, at = ["i", "k"]},
    second = {name = "w", signed = true, zero = 0, at = ["j", "k"]},
    accumulator = "i32", scales = [3.000000e-02, "s"], results = [{}]} : (...) -> tensor<5x16xf32>
```

An operator is a ``fred.chain`` that says what it is: which integers it multiplies, what these stand for, how its
results are quantised. The verifier reads that off the region again: an operator that says something else is malformed.
What it means is `covan_mlir.kir.operators`; ``kir_operator`` goes from one to the other. docs/kir.md has both.
"""

# ext makes the bases and constructors of these classes at run time, where no type checker sees them.
# mypy: disable-error-code="misc,name-defined,call-arg"

from torch_mlir.dialects import ext

from covan_mlir.dialects.kir_operator import verify_operator
from covan_mlir.dialects.operation_class import CHAIN_FIELDS, CHAIN_TRAITS, operation_class


class KirDialect(ext.Dialect, name="kir"):
    """Operators of a compiled model."""


_DOCS = {
    "linear": "Steps times a matrix of steps, and what is done with the sums.",
    "matmul": "Steps times steps, for each of some batches, and what is done with the sums.",
    "convolution": "Steps that are read through windows, times steps, and what is done with the sums.",
    "kernel": "A kernel that multiplies no steps: what its region computes, and how its results are quantised.",
}
LinearOp, MatmulOp, ConvolutionOp, KernelOp = (
    operation_class(KirDialect, name, CHAIN_TRAITS, CHAIN_FIELDS, "verify_region_invariants", verify_operator, doc)
    for name, doc in _DOCS.items()
)
