"""Chains without float64: what IREE does to the rest of a program where the target is told so.

torch-mlir takes variances in float64, whatever the model computes in; GPUs are slow at it or cannot
(`covan_mlir.lowering.targets.target.Target.compiler_flags`).
"""

from __future__ import annotations

from dataclasses import replace

from covan_mlir.fred.chain import Chain, Reduce, Step
from covan_mlir.fred.expression import Apply, Const, Expr, Read, rebuild

FLAG = "--iree-input-demote-f64-to-f32=true"
"""Of IREE's compiler."""


def demoted(chain: Chain) -> Chain:
    """The chain in float32 where it was in float64. So are the values that it is given and gives: programs with
    arguments or results in float64 are not demoted."""
    if "f64" not in {value.dtype for value in (*chain.inputs, *chain.steps)}:
        return chain
    inputs = tuple(replace(value, dtype=_dtype(value.dtype)) for value in chain.inputs)
    return replace(chain, inputs=inputs, steps=tuple(map(_step, chain.steps)))


def _step(step: Step) -> Step:
    narrowed = replace(step, expr=rebuild(step.expr, _node), dtype=_dtype(step.dtype))
    if isinstance(narrowed, Reduce):
        return replace(narrowed, initial=replace(narrowed.initial, dtype=_dtype(narrowed.initial.dtype)))
    return narrowed


def _dtype(dtype: str) -> str:
    return "f32" if dtype == "f64" else dtype


def _node(node: Expr) -> Expr:
    if isinstance(node, Apply):
        narrowed = replace(node, dtype=_dtype(node.dtype))
        same = narrowed.op in ("arith.extf", "arith.truncf") and narrowed.args[0].dtype == narrowed.dtype
        return narrowed.args[0] if same else narrowed
    return replace(node, dtype=_dtype(node.dtype)) if isinstance(node, Const | Read) else node
