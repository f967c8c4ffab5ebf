"""Reductions of a product of two factors that differ in a dimension each: matrix products."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from covan_mlir.fred.chain import Chain, Input, Map, Reduce
from covan_mlir.fred.expression import Apply, Expr, Read, Window
from covan_mlir.lowering.kernels.cuda.layout import Layout
from covan_mlir.lowering.kernels.cuda.operations import TYPES
from covan_mlir.lowering.kernels.cuda.tiles import Block, Text, Tile, computed
from covan_mlir.lowering.kernels.errors import UnsupportedError
from covan_mlir.lowering.kernels.reductions.hoist import Scope

LEAST = 16
"""Positions that each dimension of a matrix instruction's operands has at least."""
_ROUNDED = 'tl.inline_asm_elementwise("cvt.rna.tf32.f32 $0, $1;", "=r,r", [{}], dtype=tl.float32, is_pure=True, pack=1)'
"""To the nearest number of TF32: the instruction cuts off what it does not take, always towards zero, and that adds up
from layer to layer."""


class FactorEvaluator(Protocol):
    """Computes factors of a product; `covan_mlir.lowering.kernels.cuda.expressions.TileEvaluator` says more."""

    text: Text
    scope: Scope
    blocks: list[Block]
    fold: bool
    precision: str

    @property
    def chain(self) -> Chain:
        """The chain whose values are read."""

    @property
    def layout(self) -> Layout:
        """Where its axes are."""

    def tile(self, expr: Expr) -> Tile:
        """The value of an expression."""

    def valid(self, dim: str) -> str | None:
        """Mask of the positions of a dimension that exist, if not all do."""

    def is_weight(self, expr: Expr) -> bool:
        """Whether a value is at most 1 or NaN."""


def factors(evaluator: FactorEvaluator, expr: Expr, side: frozenset[str]) -> list[Expr]:
    """The factors of a product; maps that have positions on all dimensions of ``side`` are written out."""
    match expr:
        case Apply("arith.mulf", (left, right), _):
            return [*factors(evaluator, left, side), *factors(evaluator, right, side)]
        case Apply("arith.extf" | "arith.truncf", (inner,), dtype) if computed(inner.dtype) == computed(dtype):
            return factors(evaluator, inner, side)
        case Read(name) if isinstance(step := evaluator.chain.values.get(name), Map) and not any(
            name in block.named for block in evaluator.blocks
        ):
            if side <= set(evaluator.layout.dims_of(evaluator.scope.axes(expr))):
                return factors(evaluator, step.expr, side)
    return [expr]


def product(evaluator: FactorEvaluator, step: Reduce, over: tuple[str, ...]) -> Tile | None:
    """The reduction as a matrix product, or None if it is none that pays.

    Raises:
        UnsupportedError: it is one that there is no instruction for.
    """
    layout, text = evaluator.layout, evaluator.text
    result = layout.dims_of(frozenset(step.axes))
    if len(result) != 2 or len(over) != 1 or computed(step.dtype)[0] != "f":
        return None
    parts = factors(evaluator, step.expr, frozenset((*result, *over)))
    sides: dict[str, list[Expr]] = {name: [] for name in result}
    rest: list[Expr] = []
    for part in parts:
        dims = set(layout.dims_of(evaluator.scope.axes(part)))
        if not dims:
            rest.append(part)
        elif dims <= {result[0], *over}:
            sides[result[0]].append(part)
        elif dims <= {result[1], *over}:
            sides[result[1]].append(part)
        else:
            return None
    if not all(sides.values()) or not all(
        any(set(layout.dims_of(evaluator.scope.axes(part))) == {name, *over} for part in parts)
        for name, parts in sides.items()
    ):
        return None
    blocks = {name: dim.block for name in (*result, *over) if (dim := layout.dim(name)) is not None}
    if computed(step.dtype) == "f64":
        raise UnsupportedError(f"{step.name} is a matrix product in f64")
    if min(blocks.values()) < LEAST:
        return None
    kind = _operand_type(evaluator, sides)
    left = _operand(evaluator, sides[result[0]], (result[0], *over), over[0], kind)
    right = _operand(evaluator, sides[result[1]], (*over, result[1]), over[0], kind)
    precision = f', input_precision="{evaluator.precision}"' if kind == "f32" else ""
    rounded = kind == "f32" and evaluator.precision == "tf32"
    operands = [_ROUNDED.format(side.text) if rounded else side.text for side in (left, right)]
    dot = Tile(
        f"tl.dot({', '.join(operands)}{precision})", result, "f32", left.factor * right.factor, None,
        left.steps | right.steps,
    )  # fmt: skip
    for part in rest:
        scale = evaluator.tile(part)
        if evaluator.fold and scale.const is not None and scale.const > 0:
            dot = replace(dot, factor=dot.factor * scale.const)
        else:
            dot, scale = text.plain(dot, "f32"), text.plain(scale, "f32")
            dot = replace(dot, text=f"({dot.text} * {scale.text})", steps=dot.steps | scale.steps)
    return dot


def _operand_type(evaluator: FactorEvaluator, sides: dict[str, list[Expr]]) -> str:
    """Half precision where both sides are, or one is and the other loses nothing that matters: weights up to 1."""
    kinds: list[str] = []
    for parts in sides.values():
        if len(parts) == 1 and (value := _input(evaluator, parts[0])) is not None:
            kinds.append(value.dtype)
            continue
        kinds.append("weights" if len(parts) == 1 and evaluator.is_weight(parts[0]) else "computed")
    known = {kind for kind in kinds if kind not in ("weights", "computed")}
    if len(known) == 1 and (kind := known.pop()) in ("f16", "bf16") and ("computed" not in kinds or kind == "bf16"):
        return kind
    return "f32"


def _input(evaluator: FactorEvaluator, expr: Expr) -> Input | None:
    """The input that an expression reads, if it is no more than that."""
    value = evaluator.chain.values.get(expr.name) if isinstance(expr, Read | Window) else None
    return value if isinstance(value, Input) else None


def _operand(evaluator: FactorEvaluator, parts: list[Expr], order: tuple[str, ...], over: str, kind: str) -> Tile:
    """A factor of the product with its dimensions in the order that the instruction takes."""
    text = evaluator.text
    if len(parts) == 1:
        tile = evaluator.tile(parts[0])
        zero = not isinstance(parts[0], Window) or parts[0].outside.value == 0
        loaded = zero and _input(evaluator, parts[0]) is not None
    else:
        expr = parts[0]
        for part in parts[1:]:
            expr = Apply("arith.mulf", (expr, part), "f32")
        tile, loaded = evaluator.tile(expr), False
    dims = text.union(tile)
    factor = tile.factor if evaluator.fold else 1.0
    tile = tile if factor == 1.0 else replace(tile, factor=1.0)
    if tile.dtype != kind or tile.factor != 1.0:
        tile = text.plain(tile, "f32")
    operand = tile.text
    # Positions that do not exist: what was loaded is 0 there.
    if not loaded and (ok := evaluator.valid(over)) is not None:
        operand = f"tl.where({text.spread(ok, (over,), dims)}, {operand}, 0.0)"
    if tile.dtype != kind:
        operand = f"{operand}.to({TYPES[kind]})"
    if dims != order:
        operand = f"tl.trans({operand})"
    return Tile(operand, order, kind, factor, steps=tile.steps)
