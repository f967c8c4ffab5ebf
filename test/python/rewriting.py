"""Modules, ways to look at them, and passes made of functions, for the tests of rewriting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from torch_mlir import ir

from covan_mlir import dialects
from covan_mlir.dialects.prov_locations import ids
from covan_mlir.passes.framework.trace_check import run_checked

TABLE = """
  "prov.table"() ({
    "prov.action"() {id = 3, name = "exp", op = "aten.exp", module = "", frames = [], types = []} : () -> ()
    "prov.action"() {id = 4, name = "mul", op = "aten.mul", module = "", frames = [], types = []} : () -> ()
    "prov.action"() {id = 5, name = "add", op = "aten.add", module = "", frames = [], types = []} : () -> ()
  }) : () -> ()"""

CHAIN = """
  func.func @f(%x: f32, %y: f32) -> f32 {
    %e = math.exp %x : f32 loc("prov:3:exp"("model.py":7:0))
    %m = arith.mulf %e, %y : f32 loc("prov:4:mul"("model.py":8:0))
    %a = arith.addf %m, %y : f32 loc("prov:5:add"("model.py":9:0))
    return %a : f32
  }"""

BRANCH = """
  func.func @f(%x: f32, %p: i1) -> f32 {
    %e = math.exp %x : f32 loc("prov:3:exp")
    %r = scf.if %p -> f32 {
      %m = arith.mulf %e, %x : f32 loc("prov:4:mul")
      %a = arith.addf %m, %e : f32 loc("prov:5:add")
      scf.yield %a : f32
    } else {
      scf.yield %x : f32
    }
    RETURN
  }"""


def parse(*texts: str) -> ir.Module:
    context = ir.Context()
    context.allow_unregistered_dialects = True
    dialects.load(context)
    return ir.Module.parse(f"module {{{''.join(texts)}}}", context)


def ops(module: ir.Module, name: str | None = None) -> list[ir.Operation]:
    """The ops in functions, terminators aside, or all with a name."""
    matching: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == "prov.table":
            return ir.WalkResult.SKIP
        if op.name == name or (name is None and op.name not in ("builtin.module", "func.func", "func.return")):
            matching.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit, ir.WalkOrder.PRE_ORDER)
    return matching


def traces(module: ir.Module) -> list[tuple[str, set[int]]]:
    return [(op.name, set(ids(op.location))) for op in ops(module)]


def run(pass_: Any, module: ir.Module) -> None:
    run_checked(pass_, module.operation)
    assert module.operation.verify()


def as_pass(body: Callable[[ir.Operation], None], drops: bool = False) -> Any:
    """A pass made of a function."""

    @dataclass(frozen=True)
    class Made:
        name: ClassVar[str] = "test-made"
        op_name: ClassVar[str | None] = None
        drops_traces: ClassVar[bool] = drops

        def run(self, op: ir.Operation) -> None:
            body(op)

    return Made()


def find(root: ir.Operation, name: str) -> ir.Operation:
    matching: list[ir.Operation] = []

    def visit(op: ir.Operation) -> ir.WalkResult:
        if op.name == name:
            matching.append(op)
        return ir.WalkResult.ADVANCE

    root.walk(visit)
    return matching[0]
