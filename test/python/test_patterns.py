"""Patterns, and the driver that applies them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
from rewriting import BRANCH, CHAIN, TABLE, parse, traces
from torch_mlir import ir
from torch_mlir.dialects import arith, math

from covan_mlir.passes.framework.patterns import apply_patterns
from covan_mlir.passes.framework.rewriter import RewriteError, Rewriter


@dataclass(frozen=True)
class FuseMulAdd:
    """A product that only a sum reads is fused into it."""

    op_names: ClassVar[tuple[str, ...]] = ("arith.addf",)

    def match_and_rewrite(self, op: ir.Operation, rewriter: Rewriter) -> None:
        mul = op.operands[0].owner
        if isinstance(mul, ir.Block) or mul.operation.name != "arith.mulf":
            return
        if sum(1 for _ in mul.operation.results[0].uses) > 1:
            return
        with rewriter.replacing(mul, op) as new:
            new.results(math.fma(*mul.operation.operands, op.operands[1]))


@dataclass(frozen=True)
class ExpandFma:
    op_names: ClassVar[tuple[str, ...]] = ("math.fma",)

    def match_and_rewrite(self, op: ir.Operation, rewriter: Rewriter) -> None:
        a, b, c = op.operands
        with rewriter.replacing(op) as new:
            new.results(arith.addf(arith.mulf(a, b), c))


@dataclass(frozen=True)
class EraseDead:
    op_names: ClassVar[tuple[str, ...]] = ()

    def match_and_rewrite(self, op: ir.Operation, rewriter: Rewriter) -> None:
        if op.name.split(".")[0] in ("arith", "math") and not any(True for _ in op.results[0].uses):
            rewriter.erase(op)


def test_patterns() -> None:
    module = parse(TABLE, CHAIN)
    assert apply_patterns(module, [FuseMulAdd()]) == 1
    assert traces(module) == [("math.exp", {3}), ("math.fma", {4, 5})]
    assert apply_patterns(module, [ExpandFma()]) == 1
    assert traces(module) == [("math.exp", {3}), ("arith.mulf", {4, 5}), ("arith.addf", {4, 5})]


def test_patterns_that_undo_each_other() -> None:
    with pytest.raises(RewriteError, match="no end after 40 rewrites, the last one by"):
        apply_patterns(parse(CHAIN), [FuseMulAdd(), ExpandFma()], most_changes=40)


def test_erasing_reaches_what_was_read() -> None:
    module = parse(TABLE, CHAIN.replace("return %a", "return %x"))
    assert apply_patterns(module, [EraseDead()]) == 3
    assert traces(module) == []


@dataclass(frozen=True)
class EraseIf:
    """Erases a branch with all that is in it."""

    op_names: ClassVar[tuple[str, ...]] = ("scf.if",)

    def match_and_rewrite(self, op: ir.Operation, rewriter: Rewriter) -> None:
        rewriter.replace_by(op, None, reason="dead")


def test_erasing_an_op_with_regions() -> None:
    module = parse(BRANCH.replace("RETURN", "return %x : f32"))
    # What stood in the branch is not looked at any more, what it read is.
    assert apply_patterns(module, [EraseIf(), EraseDead()]) == 2
    assert traces(module) == []
