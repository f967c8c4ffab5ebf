"""The ``fred`` dialect: chains of fused reductions over named axes, on tensors.

```mlir
%y = "fred.chain"(%x) ({
^bb0(%x_: tensor<5x7xf32>):
  %m = "fred.reduce"() ({
    %e = "fred.read"(%x_) : (tensor<5x7xf32>) -> f32
    "fred.yield"(%e) : (f32) -> ()
  }) {value = "m", axes = ["i"], over = ["j"], combine = "max", initial = 0xFF800000 : f32} : () -> tensor<5xf32>
  %d = "fred.map"() ({
    %e = "fred.read"(%x_) : (tensor<5x7xf32>) -> f32
    %n = "fred.read"(%m) : (tensor<5xf32>) -> f32
    %s = arith.subf %e, %n : f32
    "fred.yield"(%s) : (f32) -> ()
  }) {value = "d", axes = ["i", "j"]} : () -> tensor<5x7xf32>
  "fred.output"(%d) : (tensor<5x7xf32>) -> ()
}) {axes = ["i", "j"], sizes = [5, 7], names = ["x"], inputs = [["i", "j"]],
    operandSegmentSizes = ..., resultSegmentSizes = ...} : (tensor<5x7xf32>) -> tensor<5x7xf32>
```

What it means is `covan_mlir.fred.chain`; ``fred_chain`` goes from one to the other.
"""

# ext makes the bases and constructors of these classes at run time, where no type checker sees them.
# mypy: disable-error-code="misc,name-defined,call-arg"

# The field types below are evaluated by ext when the classes are made, which
# `from __future__ import annotations` would turn into strings.
import types
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import ext

from .fred_verify import verify_chain, verify_inside, verify_step

MAX_INPUTS = 24
MAX_OUTPUTS = 8


class FredDialect(ext.Dialect, name="fred"):
    """Fused reductions."""


# IRDL wants all values of one variadic operand, or result, to be of one type. So each has a place of its own, which
# may be empty, and the segment sizes say which are not: 1, 1, ..., 0, 0.
_CHAIN: dict[str, Any] = {
    **{f"input_{i}": ext.Operand[Any] | None for i in range(MAX_INPUTS)},
    **{f"output_{i}": ext.Result[Any] | None for i in range(MAX_OUTPUTS)},
    "axes": ir.ArrayAttr,
    "sizes": ir.ArrayAttr,
    "names": ir.ArrayAttr,
    "inputs": ir.ArrayAttr,
    "body": ext.Region,
}


def _verify_region_invariants(self: Any) -> bool:
    return verify_chain(self.operation)


def _fill(namespace: dict[str, Any]) -> None:
    namespace["__annotations__"] = _CHAIN
    namespace["__module__"] = __name__
    namespace["__doc__"] = """A chain of reductions: steps in its region, which reads nothing but the block's arguments.

    ``axes`` and ``sizes`` name the axes and say their sizes (-1: known at run time only); ``names`` and ``inputs`` are
    name and axes of each operand. Each ``fred.output`` in the region is a result.
    """
    namespace["verify_region_invariants"] = _verify_region_invariants


ChainOp = types.new_class(
    "ChainOp",
    (FredDialect.Operation,),
    {"name": "chain", "traits": [ir.IsIsolatedFromAboveTrait, ir.NoTerminatorTrait, ext.Pure]},
    _fill,
)


class MapOp(FredDialect.Operation, name="map", traits=[ext.Pure]):
    """``value[axes] = expression``, element by element; the region is the expression."""

    value: ir.StringAttr
    axes: ir.ArrayAttr
    result: ext.Result[Any]
    body: ext.Region

    def verify_invariants(self) -> bool:
        """Checks where it stands; the chain checks the rest."""
        return verify_step(self.operation)


class ReduceOp(FredDialect.Operation, name="reduce", traits=[ext.Pure]):
    """``value[axes] = combine over the axes in over of the expression``, starting from ``initial``."""

    value: ir.StringAttr
    axes: ir.ArrayAttr
    over: ir.ArrayAttr
    combine: ir.StringAttr
    initial: Any
    result: ext.Result[Any]
    body: ext.Region

    def verify_invariants(self) -> bool:
        """Checks where it stands; the chain checks the rest."""
        return verify_step(self.operation)


class OutputOp(FredDialect.Operation, name="output"):
    """The next result of the chain."""

    tensor: ext.Operand[Any]

    def verify_invariants(self) -> bool:
        """Checks where it stands."""
        return verify_step(self.operation)


class ReadOp(FredDialect.Operation, name="read", traits=[ext.Pure]):
    """In an expression: the tensor's element at the current position."""

    tensor: ext.Operand[Any]
    element: ext.Result[Any]

    def verify_invariants(self) -> bool:
        """Checks where it stands."""
        return verify_inside(self.operation)


class IndexOp(FredDialect.Operation, name="index", traits=[ext.Pure]):
    """In an expression: the current position along ``axis``."""

    axis: ir.StringAttr
    position: ext.Result[ir.IndexType]

    def verify_invariants(self) -> bool:
        """Checks where it stands."""
        return verify_inside(self.operation)


class ExtentOp(FredDialect.Operation, name="extent", traits=[ext.Pure]):
    """In an expression: the size of ``axis``."""

    axis: ir.StringAttr
    size: ext.Result[ir.IndexType]

    def verify_invariants(self) -> bool:
        """Checks where it stands."""
        return verify_inside(self.operation)


class YieldOp(FredDialect.Operation, name="yield", traits=[ir.IsTerminatorTrait]):
    """The value of an expression."""

    element: ext.Operand[Any]

    def verify_invariants(self) -> bool:
        """Checks where it stands."""
        return verify_inside(self.operation)
