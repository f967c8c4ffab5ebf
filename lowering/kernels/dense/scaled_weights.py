"""Kernels of chains whose weights are scaled, as programs call them: with weights and factors apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from covan_mlir.fred.chain import Chain
from covan_mlir.fred.scaled_weights import ScaledWeight
from covan_mlir.lowering.kernels.kernel import Executable, Operand, Preparation, composed
from covan_mlir.lowering.kernels.reductions.operands import operands


def with_weights_apart(kernel: Executable, chain: Chain, weights: tuple[ScaledWeight, ...]) -> Executable:
    """A kernel that is called with weights and factors, which are multiplied ahead of time.

    Args:
        kernel: is called with their products.
        chain: has them apart.
    """
    if not weights:
        return kernel
    given = operands(chain)[0]
    scaling = {scaled.name: _preparation(scaled, {operand.name: operand for operand in given}) for scaled in weights}
    packed = {name for preparation in kernel.preparations for name in preparation.sources}
    preparations = [preparation for name, preparation in scaling.items() if name not in packed]
    for preparation in kernel.preparations:
        for name in scaling.keys() & {*preparation.sources}:
            preparation = composed(scaling[name], preparation)
        preparations.append(preparation)
    return replace(kernel, inputs=given, preparations=tuple(preparations))


def _preparation(scaled: ScaledWeight, given: Mapping[str, Operand]) -> Preparation:
    weight, factor = given[scaled.weight.name], given[scaled.factor.name]
    names = [f"d{n}" for n in range(len(weight.shape))]
    loops = ", ".join(names)
    along = ", ".join(names[scaled.weight.axes.index(axis)] for axis in scaled.factor.axes)
    whole, dtype, kind = f"affine_map<({loops}) -> ({loops})>", weight.dtype, weight.tensor
    iterators = ", ".join(['"parallel"'] * len(names))
    text = f"""func.func private @scaled(%w: {kind}, %f: {factor.tensor}) -> {kind} {{
  %empty = tensor.empty() : {kind}
  %scaled = linalg.generic {{
      indexing_maps = [{whole}, affine_map<({loops}) -> ({along})>, {whole}], iterator_types = [{iterators}]}}
      ins(%w, %f : {kind}, {factor.tensor}) outs(%empty : {kind}) {{
  ^bb0(%a: {dtype}, %b: {dtype}, %c: {dtype}):
    %product = arith.mulf %a, %b : {dtype}
    linalg.yield %product : {dtype}
  }} -> {kind}
  return %scaled : {kind}
}}
"""
    return Preparation(Operand(scaled.name, weight.shape, dtype), (scaled.weight.name, scaled.factor.name), text)
