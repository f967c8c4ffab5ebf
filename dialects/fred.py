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

What it means is `covan_mlir.fred.chain`; ``fred_chain`` goes from one to the other. A ``fred.fused`` holds a chain and
the sweeps that compute it, each with a loop over blocks of positions (``fred.rolling``); what it means is
`covan_mlir.fred.forms`, and ``fred_fused`` goes from one to the other. docs/fred-dialect.md has both.
"""

# ext makes the bases and constructors of these classes at run time, where no type checker sees them.
# mypy: disable-error-code="misc,name-defined,call-arg"

# The field types below are evaluated by ext when the classes are made, which
# `from __future__ import annotations` would turn into strings.
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import ext

from covan_mlir.dialects.fred_limits import MAX_STATES
from covan_mlir.dialects.fred_verify import (
    verify_chain,
    verify_fused,
    verify_inside,
    verify_line,
    verify_output,
    verify_step,
    verify_sweep,
)
from covan_mlir.dialects.operation_class import CHAIN_FIELDS, CHAIN_TRAITS, operation_class


class FredDialect(ext.Dialect, name="fred"):
    """Fused reductions."""


_ROLLING: dict[str, Any] = {
    **{f"final_{i}": ext.Result[Any] | None for i in range(MAX_STATES)},
    "axes": ir.ArrayAttr,
    "states": ir.ArrayAttr,
    "state_axes": ir.ArrayAttr,
    "initials": ir.ArrayAttr,
    "body": ext.Region,
    "finish": ext.Region,
    "merge": ext.Region,
}


ChainOp = operation_class(
    FredDialect,
    "chain",
    CHAIN_TRAITS,
    CHAIN_FIELDS,
    "verify_region_invariants",
    verify_chain,
    """A chain of reductions: steps in its region, which reads nothing but the block's arguments.

    ``axes`` and ``sizes`` name the axes and say their sizes (-1: known at run time only); ``names`` and ``inputs`` are
    name and axes of each operand, and ``weights``, if it is there, the names of those that are the same at every call.
    Each ``fred.output`` in the region is a result.
    """,
)

FusedOp = operation_class(
    FredDialect,
    "fused",
    CHAIN_TRAITS,
    {**CHAIN_FIELDS, "sweeps": ext.Region},
    "verify_region_invariants",
    verify_fused,
    """A chain and the sweeps that compute it.

    The first region is the chain, as a ``fred.chain`` has it: what is to be computed. The second one computes it: each
    ``fred.sweep`` begins a sweep.
    """,
)

RollingOp = operation_class(
    FredDialect,
    "rolling",
    [ir.NoTerminatorTrait],
    _ROLLING,
    "verify_invariants",
    verify_sweep,
    """One loop over blocks of positions on ``axes``, with states that are carried from block to block.

    A state has a name, axes and the value that it starts from. The body takes each state's ``.old`` value, and
    ``count.local``, the number of positions in the block, where ``count`` is a state; it computes elements, what the
    block alone gives (``.local``) and the states' ``.new`` values, of which each ``fred.next`` is one. ``finish`` takes
    the last ``.new`` values and gives the results; ``merge`` takes the states ``.a`` and ``.b`` of two disjoint parts
    and gives that of both. It is empty until a pass has written it.
    """,
)


class SweepOp(FredDialect.Operation, name="sweep"):
    """From here on: one sweep over ``axes``, which ``why`` is not part of the one before."""

    axes: ir.ArrayAttr
    why: ir.StringAttr

    def verify_invariants(self) -> bool:
        """Checks where it stands; the fused form checks the rest."""
        return verify_sweep(self.operation)


class RowsOp(FredDialect.Operation, name="rows"):
    """From here on: once per row, after the sweep."""

    def verify_invariants(self) -> bool:
        """Checks where it stands."""
        return verify_sweep(self.operation)


class NextOp(FredDialect.Operation, name="next"):
    """The next value that a region of a ``fred.rolling`` gives."""

    tensor: ext.Operand[Any]

    def verify_invariants(self) -> bool:
        """Checks where it stands."""
        return verify_line(self.operation)


class RepairOp(FredDialect.Operation, name="repair"):
    """How the partial result of ``value`` follows the ``statistics`` that it was computed with; a claim, to be proved.

    The region is the repaired value, over values before the block (``.old``) and after it (``.new``), without guards.
    ``helpers`` are the other states that it reads. ``fred-certify`` adds the ``certificate``.
    """

    value: ir.StringAttr
    kind: ir.StringAttr
    statistics: ir.ArrayAttr
    helpers: ir.ArrayAttr
    body: ext.Region

    def verify_invariants(self) -> bool:
        """Checks where it stands; the fused form checks the rest."""
        return verify_line(self.operation)


class MapOp(FredDialect.Operation, name="map", traits=[ext.Pure]):
    """``value[axes] = expression``, element by element; the region is the expression."""

    value: ir.StringAttr
    axes: ir.ArrayAttr
    result: ext.Result[Any]
    body: ext.Region

    def verify_invariants(self) -> bool:
        """Checks where it stands; the chain checks the rest."""
        return verify_step(self.operation)


class ReduceOp(FredDialect.Operation, name="reduce"):  # not Pure: accumulators that only repairs read must stay
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
    """The next result."""

    tensor: ext.Operand[Any]

    def verify_invariants(self) -> bool:
        """Checks where it stands."""
        return verify_output(self.operation)


class ReadOp(FredDialect.Operation, name="read", traits=[ext.Pure]):
    """In an expression: the tensor's element at the current position."""

    tensor: ext.Operand[Any]
    element: ext.Result[Any]

    def verify_invariants(self) -> bool:
        """Checks where it stands."""
        return verify_inside(self.operation)


class WindowOp(FredDialect.Operation, name="window", traits=[ext.Pure]):
    """In an expression: the element of an input at the positions that the affine map ``at`` gives, one per dimension;
    ``outside`` where any of these lies outside of it. Dimension ``i`` of the map is the position on axis ``along[i]``.
    """

    tensor: ext.Operand[Any]
    along: ir.ArrayAttr
    at: ir.AffineMapAttr
    outside: Any
    element: ext.Result[Any]

    def verify_invariants(self) -> bool:
        """Checks where it stands; the chain checks the rest."""
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
