"""The check around every covan pass, for passes that do what they like."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from rewriting import CHAIN, TABLE, as_pass, find, parse, run, traces
from torch_mlir import ir
from torch_mlir.dialects import arith

from covan_mlir.passes.framework.pipeline import PassError, PassStep, Pipeline
from covan_mlir.passes.framework.rewriter import Rewriter
from covan_mlir.passes.framework.trace_check import TraceError, run_checked


def _drops(root: ir.Operation) -> None:
    find(root, "math.exp").location = find(root, "arith.mulf").location


def _erases(root: ir.Operation) -> None:
    add = find(root, "arith.addf")
    add.results[0].replace_all_uses_with(add.operands[0])
    add.erase()


def _invents(root: ir.Operation) -> None:
    find(root, "math.exp").location = ir.Location.fused(
        [find(root, "math.exp").location, ir.Location.name("prov:9:new", context=root.context)], context=root.context
    )


def _forgets(root: ir.Operation) -> None:
    add = find(root, "arith.addf")
    with ir.InsertionPoint(add), ir.Location.unknown(root.context):
        add.results[0].replace_all_uses_except(arith.negf(add.operands[0]), add)


def _strips(root: ir.Operation) -> None:
    find(root, "math.exp").location = ir.Location.file("model.py", 7, 0, root.context)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (_drops, "drops id 3 (exp): 'math.exp' carried it before, no op does now"),
        (_erases, "drops id 5 (add): 'arith.addf' carried it before, no op does now"),
        (_invents, "invents id 9: 'math.exp' names what no op carried before and the module's prov.table does not"),
        (_strips, "leaves 'math.exp' without a trace, in a module that has a prov.table"),
        (_forgets, "leaves 'arith.negf' without a trace, in a module that has a prov.table"),
    ],
)
def test_the_check_finds(body: Callable[[ir.Operation], None], message: str) -> None:
    with pytest.raises(TraceError, match=re.escape(message)):
        run_checked(as_pass(body), parse(TABLE, CHAIN).operation)


def test_what_the_check_lets_pass() -> None:
    # Declared; in a module without a table, ops need no trace; another function still carries the id.
    run(as_pass(_drops, drops=True), parse(TABLE, CHAIN))
    run(as_pass(_forgets), parse(CHAIN))
    with pytest.raises(TraceError, match="drops id 3: "):
        run_checked(as_pass(_drops), parse(CHAIN).operation)
    two = parse(TABLE, CHAIN, CHAIN.replace("@f", "@g"))
    run_checked(as_pass(_drops), find(two.operation, "func.func"))
    run_checked(as_pass(lambda op: op.erase()), find(two.operation, "func.func"))
    with pytest.raises(TraceError, match="drops id 4"):
        run_checked(as_pass(lambda op: op.erase()), find(two.operation, "func.func"))


def test_untraced_ops_may_be_replaced_by_untraced_ops() -> None:
    text = CHAIN.replace('loc("prov:5:add"("model.py":9:0))', "")

    def replace(root: ir.Operation) -> None:
        add = find(root, "arith.addf")
        with Rewriter(root).replacing(add) as new:
            new.results(arith.subf(arith.negf(add.operands[0]), add.operands[1]))

    module = parse(TABLE, text)
    run(as_pass(replace), module)
    assert traces(module)[-2:] == [("arith.negf", set()), ("arith.subf", set())]


def test_the_pipeline_reports_each_fault_at_its_op() -> None:
    module = parse(TABLE, CHAIN)

    def many(root: ir.Operation) -> None:
        for _ in range(9):
            _forgets(root)
        _drops(root)

    faulty_pass = as_pass(many)
    pipeline = Pipeline("builtin.module", (PassStep(("func.func",), faulty_pass),))
    with pytest.raises(PassError) as caught:
        pipeline.run(module)
    text = str(caught.value)
    assert isinstance(caught.value.__cause__, TraceError)
    assert "\"model.py\":7:0): pass 'test-made' drops id 3 (exp): 'math.exp' carried it" in text
    assert text.count("leaves 'arith.negf' without a trace") == 4
    assert "(and 5 more like these)" in text
