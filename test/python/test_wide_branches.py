"""What branches hand on has 64 bits: IREE's virtual machine overwrites shorter numbers before it copies them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import iree.compiler.ir as ir
import iree.runtime as rt
import pytest
from iree.compiler.api import Invocation, Output, Session, Source

from covan_mlir.lowering import marks
from covan_mlir.lowering.wide_branches import widen

COUNTED = """
func.func @main(%a: i32, %c: i32, %x: i64, %n: i64) -> (i64, i32) {
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  cf.br ^loop(%x, %n, %c : i64, i64, i32)
^loop(%y: i64, %k: i64, %d: i32):
  %go = arith.cmpi sgt, %k, %zero : i64
  cf.cond_br %go, ^body, ^exit
^body:
  %k1 = arith.subi %k, %one : i64
  %y1 = arith.addi %y, %one : i64
  cf.br ^loop(%y1, %k1, %d : i64, i64, i32)
^exit:
  return %y, %d : i64, i32
}"""
SHORT = """
func.func @main(%x: f32, %i: i32, %n: i64) -> (f32, i32, i64) {
  %true = arith.constant true
  %false = arith.constant false
  %one = arith.constant 1 : i64
  cf.br ^head(%n, %true, %x, %i : i64, i1, f32, i32)
^head(%k: i64, %go: i1, %y: f32, %j: i32):
  cf.cond_br %go, ^head(%one, %false, %y, %j : i64, i1, f32, i32), ^exit(%y, %k, %j : f32, i64, i32)
^exit(%z: f32, %m: i64, %l: i32):
  return %z, %l, %m : f32, i32, i64
}"""


def widened(text: str) -> Any:
    """A module after the step."""
    session = Session()
    with session.context, ir.Location.unknown():
        module = ir.Module.parse(text)
    state: Any = SimpleNamespace(session=session, module=module)
    widen(state)
    assert module.operation.verify()
    return module


def handed(module: Any) -> set[str]:
    """Types of what branches hand on, conditions aside."""
    types = set()
    for branch in marks.walk(module.operation, "cf."):
        types |= {str(value.type) for value in list(branch.operands)[branch.name == "cf.cond_br" :]}
    return types


def run(text: str, *arguments: int | float) -> list[int | float]:
    """What a program of numbers gives."""
    session = Session()
    session.set_flags("--iree-hal-target-device=local", "--iree-hal-local-target-device-backends=vmvx")
    invocation: Invocation = session.invocation()
    assert invocation.parse_source(Source.wrap_buffer(session, text.encode()))
    assert invocation.execute()
    output = Output.open_membuffer()
    invocation.output_vm_bytecode(output)
    config = rt.Config("local-sync")
    module = rt.VmModule.copy_buffer(config.vm_instance, bytes(output.map_memory()))
    context = rt.VmContext(config.vm_instance, [*config.default_vm_modules, module])
    entry = module.lookup_function("main")
    given, results = rt.VmVariantList(len(arguments)), rt.VmVariantList(3)
    for number in arguments:
        given.push_float(number) if isinstance(number, float) else given.push_int(number)
    context.invoke(entry, given, results)
    return [results.get_variant(n) for n in range(len(results))]


@pytest.mark.parametrize("text", [COUNTED, SHORT])
def test_branches_hand_on_numbers_of_64_bits(text: str) -> None:
    assert handed(widened(text)) == {"i64"}


def test_a_loop_counts_what_it_was_given() -> None:
    assert run(str(widened(COUNTED)), 5, 7, 1000 << 32, 2) == [(1000 << 32) + 2, 7]


def test_numbers_come_through_as_they_were() -> None:
    assert run(str(widened(SHORT)), -1.5, -3, 9) == [-1.5, -3, 1]
