"""The ``kir`` dialect: operators of a compiled model.

```mlir
%y = "kir.linear"(%x, %w, %s) ({
^bb0(%x_: tensor<5x8xi8>, %w_: tensor<16x8xi8>, %s_: tensor<16xf32>):
  %sums = "fred.reduce"() ({ (extui %x_ - 121) * extsi %w_ }) {value = "v0", over = ["k"], ...} : () -> tensor<5x16xi32>
  %y_ = "fred.map"() ({ sitofp %sums * 0.03 * %s_ }) {value = "v1", ...} : () -> tensor<5x16xf32>
  "fred.output"(%y_) : (tensor<5x16xf32>) -> ()
}, {}) {axes = ["i", "j", "k"], sizes = [5, 16, 8], names = ["x", "w", "s"], ...,
    first = {name = "x", signed = false, zero = 121, at = ["i", "k"]},
    second = {name = "w", signed = true, zero = 0, at = ["j", "k"]},
    accumulator = "i32", scales = [3.000000e-02, "s"], results = [{}]} : (...) -> tensor<5x16xf32>
```

An operator is a ``fred.chain`` that says what it is: which steps it reads and what these stand for, which integers it
multiplies, how its results are quantised. The verifier reads that off the region again: an operator that says something
else is malformed. The second region is empty where the operator becomes a kernel; where another compiler is to compile
it, it holds the ops that the operator was made of. What all of that means is `covan_mlir.kir.operators`;
``kir_operator`` goes from one to the other. docs/kir.md has both.
"""

# ext makes the bases and constructors of these classes at run time, where no type checker sees them.
# mypy: disable-error-code="misc,name-defined,call-arg"

from torch_mlir.dialects import ext

from covan_mlir.dialects.kir_operator import verify_operator
from covan_mlir.dialects.operation_class import CHAIN_TRAITS, OPERATOR_FIELDS, operation_class
from covan_mlir.kir.operators import KINDS


class KirDialect(ext.Dialect, name="kir"):
    """Operators of a compiled model."""


_DOCS = {
    "linear": "A product with a matrix, of steps or of numbers, and what is done with its sums.",
    "matmul": "Products of as many matrices as there are batches, and what is done with their sums.",
    "convolution": "Products with what is read through windows, and what is done with their sums.",
    "attention": "Products with a softmax of products.",
    "softmax": "Exponentials over their sum, or the logarithm of that.",
    "norm": "Numbers over the root of their squares' mean, less their own mean or as they are.",
    "pooling": "The largest, the sum or the average of what is read through windows; an average over whole axes.",
    "reduction": "A sum, a largest number, ... over whole axes, of one tensor.",
    "add": "The sum of tensors, each as the numbers that it stands for.",
    "mul": "The product of tensors, each as the numbers that it stands for.",
    "concat": "Tensors one behind the other, each as the numbers that it stands for.",
    "activation": "A function of one tensor, element by element: of steps to steps, a table.",
    "quantize": "Numbers as steps.",
    "dequantize": "Steps as the numbers that they stand for.",
    "requantize": "Steps as steps of another scale.",
    "kernel": "None of the others: what its region computes.",
}
for _kind in KINDS:
    operation_class(
        KirDialect, _kind, CHAIN_TRAITS, OPERATOR_FIELDS, "verify_region_invariants", verify_operator, _DOCS[_kind]
    )
