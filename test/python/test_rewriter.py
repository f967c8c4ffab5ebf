"""The rewriter's rule, and mistakes that it finds."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rewriting import BRANCH, CHAIN, TABLE, as_pass, find, ops, parse, run, traces
from torch_mlir import ir
from torch_mlir.dialects import arith, math

from covan_mlir.dialects.prov_locations import ids
from covan_mlir.passes.framework.rewriter import RewriteError, Rewriter
from covan_mlir.passes.framework.trace_check import run_checked

# The rule


def test_expansion_gives_its_trace_to_every_piece() -> None:
    def expand(root: ir.Operation) -> None:
        mul = find(root, "arith.mulf")
        x, y = mul.operands
        with Rewriter(root).replacing(mul) as new:
            twice = arith.addf(x, x)
            product = arith.mulf(twice, y)
            half = arith.constant(ir.F32Type.get(), 0.5)
            new.results(arith.mulf(product, half))

    module = parse(TABLE, CHAIN)
    run(as_pass(expand), module)
    assert traces(module) == [
        ("math.exp", {3}),
        ("arith.addf", {4}),
        ("arith.mulf", {4}),
        ("arith.constant", {4}),
        ("arith.mulf", {4}),
        ("arith.addf", {5}),
    ]


def test_fusion_unites_traces() -> None:
    def fuse(root: ir.Operation) -> None:
        mul, add = find(root, "arith.mulf"), find(root, "arith.addf")
        a, b = mul.operands
        with Rewriter(root).replacing(mul, add) as new:
            new.results(math.fma(a, b, add.operands[1]))

    module = parse(TABLE, CHAIN)
    run(as_pass(fuse), module)
    assert traces(module) == [("math.exp", {3}), ("math.fma", {4, 5})]
    text = ops(module, "math.fma")[0].location
    assert "model.py" in str(text)


def test_a_copy_takes_its_trace_along() -> None:
    module = parse(
        TABLE,
        """
  func.func @f(%x: f32) -> (f32, f32) {
    %e = math.exp %x : f32 loc("prov:3:exp")
    %m = arith.mulf %e, %x : f32 loc("prov:4:mul")
    return %e, %m : f32, f32
  }""",
    )

    def fuse(root: ir.Operation) -> None:
        exp, mul = find(root, "math.exp"), find(root, "arith.mulf")
        with Rewriter(root).replacing(mul, copies=[exp]) as new:
            with new.only(exp):
                again = math.exp(exp.operands[0])
            new.results(arith.mulf(again, mul.operands[1]))

    run(as_pass(fuse), module)
    assert traces(module) == [("math.exp", {3}), ("math.exp", {3}), ("arith.mulf", {3, 4})]


def test_more_specific_traces_are_kept() -> None:
    def fuse(root: ir.Operation) -> None:
        mul, add = find(root, "arith.mulf"), find(root, "arith.addf")
        a, b = mul.operands
        with Rewriter(root).replacing(mul, add) as new:
            with new.only(mul):
                product = arith.mulf(b, a)
            doubled = arith.negf(product, loc=add.location)
            new.results(arith.subf(add.operands[1], doubled))

    module = parse(TABLE, CHAIN)
    run(as_pass(fuse), module)
    assert traces(module)[1:] == [("arith.mulf", {4}), ("arith.negf", {5}), ("arith.subf", {4, 5})]


def test_locations_without_a_trace_get_it_and_inputs_do_not() -> None:
    module = parse(
        TABLE,
        """
  func.func @f(%x: f32) -> f32 {
    %c = arith.constant 2.0 : f32
    %m = arith.mulf %x, %c : f32 loc("prov:4:mul")
    return %m : f32
  }""",
    )

    def expand(root: ir.Operation) -> None:
        mul = find(root, "arith.mulf")
        with Rewriter(root).replacing(mul) as new:
            unknown = ir.Location.unknown(root.context)
            new.results(arith.addf(arith.mulf(*mul.operands, loc=unknown), mul.operands[1], loc=unknown))

    run(as_pass(expand), module)
    assert traces(module) == [("arith.constant", set()), ("arith.mulf", {4}), ("arith.addf", {4})]


def test_ops_in_regions_and_ops_without_results() -> None:
    module = parse(
        TABLE,
        """
  func.func @f(%x: f32, %m: memref<f32>, %p: i1) {
    "test.sink"(%x) : (f32) -> () loc("prov:3:exp")
    return
  }""",
    )

    def expand(root: ir.Operation) -> None:
        from torch_mlir.dialects import memref, scf

        sink = find(root, "test.sink")
        x, m, p = find(root, "func.func").regions[0].blocks[0].arguments
        with Rewriter(root).replacing(sink) as new:
            branch = scf.IfOp(p)
            with ir.InsertionPoint(branch.then_block), ir.Location.unknown():
                memref.store(math.exp(x), m, [])
                scf.yield_([])
            new.effects(branch)

    run(as_pass(expand), module)
    assert traces(module) == [("scf.if", {3}), ("math.exp", {3}), ("memref.store", {3}), ("scf.yield", {3})]


def test_nested_traces_count() -> None:
    text = """
  func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
    %r = linalg.map ins(%x : tensor<4xf32>) outs(%x : tensor<4xf32>) (%i: f32, %o: f32) {
      %e = math.exp %i : f32 loc("prov:3:exp")
      linalg.yield %e : f32
    } loc("prov:4:mul")
    return %r : tensor<4xf32>
  }"""
    module = parse(TABLE, text)

    def replace(root: ir.Operation) -> None:
        old = find(root, "linalg.map")
        with Rewriter(root).replacing(old) as new:
            new.results(math.exp(old.operands[0]))

    run(as_pass(replace), module)
    assert traces(module) == [("math.exp", {3, 4})]


def test_the_place_of_a_fusion() -> None:
    text = """
  func.func @f(%x: f32) -> (f32, f32, f32) {
    %e = math.exp %x : f32 loc("prov:3:exp")
    %n = arith.negf %e : f32 loc("prov:4:mul")
    %INPUT
    %s = math.sin %z : f32 loc("prov:5:add")
    return %e, %n, %s : f32, f32, f32
  }"""

    def fuse(root: ir.Operation) -> None:
        exp, sin = find(root, "math.exp"), find(root, "math.sin")
        with Rewriter(root).replacing(exp, sin) as new:
            new.results(math.exp(exp.operands[0]), of=exp)
            new.results(math.sin(sin.operands[0]))

    # A reader stands between the two: the fused ops go before it.
    module = parse(TABLE, text.replace("%INPUT", "").replace("%z", "%x"))
    run(as_pass(fuse), module)
    assert [name for name, _ in traces(module)] == ["math.exp", "math.sin", "arith.negf"]
    # What the second reads comes after a reader of the first.
    module = parse(TABLE, text.replace("%INPUT", '%z = math.cos %n : f32 loc("prov:4:mul")'))
    with pytest.raises(RewriteError, match=r"cannot be replaced by one: 'arith.negf' reads an earlier one before"):
        fuse(module.operation)


def test_eliminations_have_a_reason() -> None:
    def eliminate(root: ir.Operation) -> None:
        rewriter = Rewriter(root)
        mul, add = find(root, "arith.mulf"), find(root, "arith.addf")
        rewriter.replace_by(add, mul.results[0], reason="folded: adds nothing")
        rewriter.replace_by(mul, mul.operands[1], reason="folded")
        rewriter.erase(find(root, "math.exp"))

    module = parse(TABLE, CHAIN)
    journal = run_checked(as_pass(eliminate), module.operation)
    assert journal.eliminated == {5: "folded: adds nothing", 4: "folded", 3: "dead"}
    assert traces(module) == []


# Mistakes that the rewriter itself finds


def _loses(root: ir.Operation) -> None:
    add = find(root, "arith.addf")
    with Rewriter(root).replacing(add) as new:
        new.results(add.operands[0])


def _foreign(root: ir.Operation) -> None:
    add = find(root, "arith.addf")
    with Rewriter(root).replacing(add) as new:
        new.results(arith.mulf(*add.operands, loc=find(root, "math.exp").location))


def _no_successor(root: ir.Operation) -> None:
    with Rewriter(root).replacing(find(root, "arith.addf"), reason="none"):
        pass


def _reads_itself(root: ir.Operation) -> None:
    add = find(root, "arith.addf")
    with Rewriter(root).replacing(add) as new:
        new.results(arith.negf(add.results[0]))


def _wrong_type(root: ir.Operation) -> None:
    with Rewriter(root).replacing(find(root, "arith.addf")) as new:
        new.results(arith.constant(ir.F64Type.get(), 1.0))


def _wrong_number(root: ir.Operation) -> None:
    with Rewriter(root).replacing(find(root, "arith.addf")) as new:
        new.results()


def _erases_what_is_read(root: ir.Operation) -> None:
    Rewriter(root).erase(find(root, "math.exp"))


def _results_of_another(root: ir.Operation) -> None:
    with Rewriter(root).replacing(find(root, "arith.addf")) as new:
        new.results(None, of=find(root, "math.exp"))


def _only_of_another(root: ir.Operation) -> None:
    with Rewriter(root).replacing(find(root, "arith.addf")) as new, new.only(find(root, "math.exp")):
        pass


def _twice(root: ir.Operation) -> None:
    with Rewriter(root).replacing(find(root, "arith.addf"), find(root, "arith.addf")):
        pass


def _nested(root: ir.Operation) -> None:
    with Rewriter(root).replacing(find(root, "func.func"), find(root, "arith.addf")):
        pass


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (_twice, "'arith.addf' is replaced twice, or with an op that it stands in"),
        (_nested, "'arith.addf' is replaced twice, or with an op that it stands in"),
        (_loses, "replacing 'arith.addf' loses ids 5: no new op carries them, and no reason is given"),
        (_foreign, "the new 'arith.mulf' carries ids 3, which none of the replaced ops does"),
        (_no_successor, "a result of 'arith.addf' is replaced by nothing, and 'func.return' reads it"),
        (_reads_itself, "a new op reads 'arith.addf', which it is to replace"),
        (_wrong_type, "result 0 of 'arith.addf' is a f32 and cannot become a f64"),
        (_wrong_number, "'arith.addf' has 1 results and is given 0 values"),
        (_erases_what_is_read, "'math.exp' is read by 'arith.mulf' and cannot be erased"),
        (_results_of_another, "results of 'math.exp' are given, which is not being replaced"),
        (_only_of_another, "'math.exp' is not among what is replaced"),
    ],
)
def test_mistakes(body: Callable[[ir.Operation], None], message: str) -> None:
    with pytest.raises(RewriteError, match=re.escape(message)):
        body(parse(TABLE, CHAIN).operation)


def test_a_root_that_reads_from_outside() -> None:
    module = parse(BRANCH.replace("RETURN", "return %r : f32"))

    def expand(branch: ir.Operation) -> None:
        add = find(branch, "arith.addf")
        with Rewriter(branch).replacing(add) as new:
            new.results(arith.subf(add.operands[0], arith.negf(add.operands[1])))

    run_checked(as_pass(expand), find(module.operation, "scf.if"))
    assert traces(module) == [
        ("math.exp", {3}),
        ("scf.if", set()),
        ("arith.mulf", {4}),
        ("arith.negf", {5}),
        ("arith.subf", {5}),
        ("scf.yield", set()),
        ("scf.yield", set()),
    ]


# Any graph, any part of it


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[list[int]], int, int]:
    """For each op the values it reads; values 0 and 1 are arguments. And the ops from ``start`` to ``stop``."""
    count = draw(st.integers(1, 12))
    reads = [draw(st.lists(st.integers(0, 1 + i), min_size=1, max_size=3)) for i in range(count)]
    start = draw(st.integers(0, count - 1))
    return reads, start, draw(st.integers(start + 1, count))


def _graph(reads: list[list[int]]) -> ir.Module:
    lines = []
    for i, operands in enumerate(reads):
        values = ", ".join(f"%v{o}" for o in operands)
        types = ", ".join(["f32"] * len(operands))
        lines.append(f'%v{i + 2} = "test.op{i}"({values}) : ({types}) -> f32 loc("prov:{i}:n")')
    results = ", ".join(f"%v{i}" for i in range(len(reads) + 2))
    types = ", ".join(["f32"] * (len(reads) + 2))
    body = "\n".join(lines)
    return parse(f"func.func @f(%v0: f32, %v1: f32) -> ({types}) {{\n{body}\nreturn {results} : {types}\n}}")


@settings(max_examples=150)
@given(graphs(), st.data())
def test_expansion_of_any_part(graph: tuple[list[list[int]], int, int], data: st.DataObject) -> None:
    reads, start, stop = graph
    module = _graph(reads)
    part = [find(module.operation, f"test.op{i}") for i in range(start, stop)]
    inside = {result for op in part for result in op.results}
    inputs = [value for op in part for value in op.operands if value not in inside]
    outside = {op.name: str(op.location) for op in ops(module) if op not in part}
    known = 0

    def expand(root: ir.Operation) -> None:
        nonlocal known
        f32 = ir.F32Type.get(root.context)
        with Rewriter(root).replacing(*part) as new:
            values = list(inputs)
            for op in part:
                for _ in range(data.draw(st.integers(1, 3))):
                    read = data.draw(st.lists(st.integers(0, len(values) - 1), max_size=3)) if values else []
                    # A location may be forgotten, and an op may be read by nobody.
                    where = ir.Location.unknown() if data.draw(st.booleans()) else new.location
                    new_op = ir.Operation.create("test.new", [f32], [values[i] for i in read], loc=where)
                    values.append(new_op.results[0])
                new.results(values[-1], of=op)

    run(as_pass(expand), module)
    now = ops(module)
    assert {op.name: str(op.location) for op in now if op.name != "test.new"} == outside
    union = set(range(start, stop))
    # From the results backwards, up to the inputs.
    results = [o.owner for o in find(module.operation, "func.return").operands if not isinstance(o.owner, ir.Block)]
    waiting = [op.operation for op in results if op.operation.name == "test.new"]
    between: list[ir.Operation] = []
    while waiting:
        op = waiting.pop()
        if op.name == "test.new" and op not in between:
            between.append(op)
            waiting += [v.owner.operation for v in op.operands if not isinstance(v.owner, ir.Block)]
    assert between
    for op in between:
        assert ids(op.location) == union
