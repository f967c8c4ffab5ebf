"""The decomposition table: torch-mlir's own, and what it takes to get the other operations through.

An operation that torch-mlir lowers keeps its lowering. To torch-mlir's table are added, in this order:

1. for every operation that the torch dialect does not know at all, torch's decomposition where there is one;
2. torch's decomposition of operations that the dialect names but has no lowering for, or takes apart too late;
3. rules of our own (`covan_mlir.frontend.rules`), where torch has nothing either or the lowering is wrong;
4. a missing axis or batch axis, for operations whose lowering needs one;
5. rules for operations of other libraries, where these have been imported.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

import torch
from torch._decomp import core_aten_decompositions, decomposition_table
from torch._ops import OpOverload
from torch_mlir import ir
from torch_mlir.extras.fx_decomp_util import get_decomposition_table

from covan_mlir import dialects
from covan_mlir.frontend.rules import RULES
from covan_mlir.frontend.rules.ranks import ALONG_AN_AXIS, POOLING, with_a_batch, with_an_axis
from covan_mlir.frontend.rules.registry import Rule, either, foreign_rules

aten = torch.ops.aten

_UNLOWERED = (
    # torch-mlir leaves these to its C++ decompositions, for backends that IREE is not, and has none for linalg.
    aten.isclose,
    aten.linalg_norm,
)


_TAKEN_APART = (
    # torch-mlir takes it apart, and then shares steps of it with other operations: each step has to have a name.
    aten._softmax.default,
    # torch-mlir knows the one for real numbers and few sizes.
    aten.fft_fft.default,
    aten.fft_ifft.default,
    aten.fft_rfft.default,
)


def table() -> Mapping[OpOverload, Rule]:
    """Decomposition by operation, for `torch.export.ExportedProgram.run_decompositions`."""
    return {**_torch_table(), **foreign_rules()}


@functools.cache
def _torch_table() -> Mapping[OpOverload, Rule]:
    rules: dict[OpOverload, Rule] = dict(get_decomposition_table())
    context = ir.Context()
    dialects.load(context)
    for op, decomposition in decomposition_table.items():
        if isinstance(op, OpOverload) and op not in rules and _wanted(op, context):
            rules[op] = decomposition
    core = core_aten_decompositions()
    rules.update({op: decomposition_table[op] for op in _TAKEN_APART})
    for packet in _UNLOWERED:
        rules.update({op: core[op] for op in core if getattr(op, "overloadpacket", None) is packet})
    for op, ours in RULES.items():
        rules[op] = either(ours, rules[op]) if op in rules else ours
    for op in ALONG_AN_AXIS:
        rules[op] = with_an_axis(op, rules.get(op))
    for op, axes in POOLING.items():
        rules[op] = with_a_batch(op, axes, rules.get(op))
    return rules


def _wanted(op: OpOverload, context: ir.Context) -> bool:
    name = op._schema.name.removeprefix("aten::")
    if name.startswith(("sym_", "lift", "is_")):
        return False  # of shapes and tensors as objects: the importer has its own ways
    return name.endswith("_copy") or not context.is_registered_operation(_dialect_name(op))


def _dialect_name(op: OpOverload) -> str:
    overload = "" if op._overloadname == "default" else f".{op._overloadname}"
    return f"torch.{op._schema.name.replace('::', '.')}{overload}"
