"""Kernels whose work the calling thread shares with a team of the process's own threads.

IREE's workers sleep between calls, and to wake one takes longer than many kernels run. The threads of an OpenMP
runtime, torch's above all, are often still awake, and the caller is one of them. So each dispatch is given the address
of a function as OpenMP runtimes export it (``GOMP_parallel``; `covan_mlir.runtime.team` finds it), or 0. With 0, a
workgroup does its own share, on whatever thread it is. Otherwise the first workgroup has the team do the shares of all,
and the others have nothing left to do: one program serves both.

Beside it goes the number of threads that will come, to share by. Both live in globals of the program, which are 0 until
somebody calls the program's function for them.

IREE's code generation takes no calls of functions that are not known by name: its passes over call graphs fail. What is
called here by name is a function of one instruction that jumps to the address, with the arguments as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import iree.compiler.ir as ir

from covan_mlir.lowering.cpu.emit import MARK, WORDS
from covan_mlir.lowering.cpu.kernel import Kernel
from covan_mlir.lowering.pipeline import State, Step
from covan_mlir.runtime.team import SETTER

ADDRESS = "covan_team_words"
"""The program's function that gives the last operands of each dispatch: the words of the address, the threads."""


@dataclass(frozen=True)
class Architecture:
    """What is said in other words on each architecture; `{at}` is a pointer to a word.

    Attributes:
        jump: to the fifth argument of the C calling convention of ELF platforms.
        get: writes the control word of floating-point arithmetic to memory.
        set: reads it from there.
    """

    jump: str
    get: str
    set: str


ARCHITECTURES = {
    "x86_64": Architecture(
        "jmp *%r8",
        'llvm.call_intrinsic "llvm.x86.sse.stmxcsr"({at}) : (!llvm.ptr) -> ()',
        'llvm.call_intrinsic "llvm.x86.sse.ldmxcsr"({at}) : (!llvm.ptr) -> ()',
    ),
    "aarch64": Architecture(
        "br x4",
        '{at}_got = llvm.call_intrinsic "llvm.aarch64.get.fpcr"() : () -> i64\n'
        "llvm.store {at}_got, {at} : i64, !llvm.ptr",
        "{at}_set = llvm.load {at} : !llvm.ptr -> i64\n"
        'llvm.call_intrinsic "llvm.aarch64.set.fpcr"({at}_set) : (i64) -> ()',
    ),
}

DECLARATIONS = f"""
  util.global private mutable @covan_team_address = 0 : i64
  util.global private mutable @covan_team_threads = 0 : i32
  func.func @{SETTER}(%address: i64, %threads: i32) {{
    util.global.store %address, @covan_team_address : i64
    util.global.store %threads, @covan_team_threads : i32
    return
  }}
  func.func private @{ADDRESS}() -> (i32, i32, i32) {{
    %threads = util.global.load @covan_team_threads : i32
    %address = util.global.load @covan_team_address : i64
    %bits = arith.constant 32 : i64
    %shifted = arith.shrui %address, %bits : i64
    %low = arith.trunci %address : i64 to i32
    %high = arith.trunci %shifted : i64 to i32
    return %low, %high, %threads : i32, i32, i32
  }}
"""
"""What a program with such kernels has besides them."""


def wanted(kernel: object) -> bool:
    """Whether the dispatches of a kernel, for whatever target, are given an address."""
    return isinstance(kernel, Kernel) and kernel.team


def share(module: Any) -> None:
    """Makes kernels call teams: of the executables in a module of IREE's, those that are marked."""
    for inner, function, target in list(_marked(module)):
        del function.attributes[MARK]
        triple = re.search(r'target_triple = "(\w+)-', str(target))
        if triple and triple.group(1) in ARCHITECTURES:
            _share(inner, function, ARCHITECTURES[triple.group(1)])


def _run(state: State) -> None:
    with state.session.context, ir.Location.unknown():
        share(state.module)


STEP = Step("iree:team", _run)
AFTER = "iree:executable-sources"
"""Where the step belongs: executables have targets, and their code is still to be generated."""


def _marked(module: Any) -> Iterator[tuple[Any, Any, Any]]:
    for executable in module.body.operations:
        if executable.operation.name != "hal.executable":
            continue
        for variant in executable.operation.regions[0].blocks[0].operations:
            if variant.operation.name != "hal.executable.variant":
                continue
            for inner in variant.operation.regions[0].blocks[0].operations:
                if inner.operation.name != "builtin.module":
                    continue
                for function in inner.operation.regions[0].blocks[0].operations:
                    if MARK in function.operation.attributes:
                        yield inner.operation, function.operation, variant.operation.attributes["target"]


def _symbol(op: Any) -> str:
    return str(ir.StringAttr(op.attributes["sym_name"]).value)


_MEMORY, _NUMBER, _PLACE, _COUNT = (
    f"hal.interface.{name}" for name in ("binding.subspan", "constant.load", "workgroup.id", "workgroup.count")
)


def _share(module: Any, function: Any, architecture: Architecture) -> None:
    """Splits a function: it still asks for what it is given; what it does with that goes to a function of its own."""
    block = function.regions[0].blocks[0]
    *ops, end = (view.operation for view in block)
    memories, numbers, places = ([op for op in ops if op.name == name] for name in (_MEMORY, _NUMBER, _PLACE))
    if not places:
        return  # there is one workgroup, and nothing to share
    given = [*places, *numbers, *memories]
    name = _symbol(function)
    made = ir.Module.parse(_text(name, len(numbers), [str(op.result.type) for op in memories], architecture))
    helpers = [view.operation for view in made.body.operations]
    part = next(op for op in helpers if _symbol(op) == f"{name}_part").regions[0].blocks[0]

    _move(ops, given, part)
    with ir.InsertionPoint(end):
        count = ir.Operation.create(
            _COUNT, [ir.IndexType.get()], attributes={"dimension": places[0].attributes["dimension"]}
        )
        operands = [count.result, *_words(memories[0]), *(op.result for op in given)]
        attributes = {"callee": ir.FlatSymbolRefAttr.get(f"{name}_enter")}
        ir.Operation.create("func.call", [], operands, attributes=attributes)
    for op in helpers:
        op.detach_from_parent()
        module.regions[0].blocks[0].append(op)


def _move(ops: list[Any], given: list[Any], part: Any) -> None:
    """Moves operations to a block that is given some of their values as its arguments. What it takes to ask for these
    stays, and what else uses the same numbers gets copies."""
    asked = list(given)
    for op in asked:
        asked += [value.owner for value in op.operands if value.owner not in asked]
    end = part.operations[len(part.operations) - 1]
    values = [(op.result, argument) for op, argument in zip(given, part.arguments, strict=True)]
    for op in ops:
        if op not in asked:
            op.move_before(end)
        elif op not in given:
            values.append((op.result, op.clone(ir.InsertionPoint(end)).result))
    for old, new in values:
        for use in list(old.uses):
            if use.owner.operation not in asked:
                use.owner.operands[use.operand_number] = new


def _words(memory: Any) -> list[Any]:
    """The address that the dispatch is given, as two words, and the threads: the last constants of the layout."""
    layout = memory.attributes["layout"]
    count = int(re.search(r"constants = (\d+)", str(layout)).group(1))  # type: ignore[union-attr]
    index, i32 = ir.IndexType.get(), ir.IntegerType.get_signless(32)

    def word(ordinal: int) -> Any:
        attributes = {"layout": layout, "ordinal": ir.IntegerAttr.get(index, ordinal)}
        return ir.Operation.create(_NUMBER, [i32], attributes=attributes).result

    return [word(count - WORDS + n) for n in range(WORDS)]


def _text(name: str, numbers: int, memories: list[str], architecture: Architecture) -> str:
    """A module of functions that the kernel's own calls: ``_enter``, which has a team call ``_team``, which calls
    ``_part`` (here without a body) for one share after the other.

    Threads take shares from both ends, by turns of their arrival: of two, the caller has the first half and the other
    one the second, in call after call, as far as both are as fast; so each finds in its caches what it has left there.
    A thread takes half of its part of what is left, and so ever less: many at first, for what lies side by side is
    read fastest, and few at last, so that all end at the same time.

    What ``_team`` needs lies in memory, in words of 64 bits: how many shares have been taken (32 bits for each end),
    how many threads have come, the first share, how many there are, twice the threads, the caller's control word
    (IREE's threads take denormals for 0, others do not), numbers, and of each operand's memory where it is and how many
    elements it has.
    """
    first = 6 + numbers
    size = first + 2 * len(memories)
    kinds = ["index", *["i32"] * numbers, *memories]
    names = ["%share", *(f"%n{i}" for i in range(numbers)), *(f"%m{i}" for i in range(len(memories)))]
    declared = ", ".join(f"{name}: {kind}" for name, kind in zip(names, kinds, strict=True))
    enter, team = [], []
    for i in range(numbers):
        enter.append(f"%wide{i} = arith.extui %n{i} : i32 to i64\n{_put(6 + i, f'%wide{i}')}")
        team.append(f"{_get(6 + i, f'%wide{i}')}\n%n{i} = arith.trunci %wide{i} : i64 to i32")
    for i, kind in enumerate(memories):
        at = first + 2 * i
        enter.append(f"""
          %i{i} = memref.extract_aligned_pointer_as_index %m{i} : {kind} -> index
          %p{i} = arith.index_cast %i{i} : index to i64
          %d{i} = memref.dim %m{i}, %c0 : {kind}
          %l{i} = arith.index_cast %d{i} : index to i64
          {_put(at, f"%p{i}")}
          {_put(at + 1, f"%l{i}")}""")
        team.append(f"""
          {_get(at, f"%p{i}", "!llvm.ptr")}
          {_get(at + 1, f"%l{i}")}
          %s{i}_0 = llvm.mlir.poison : {_MEMREF}
          %s{i}_1 = llvm.insertvalue %p{i}, %s{i}_0[0] : {_MEMREF}
          %s{i}_2 = llvm.insertvalue %p{i}, %s{i}_1[1] : {_MEMREF}
          %s{i}_3 = llvm.insertvalue %zero, %s{i}_2[2] : {_MEMREF}
          %s{i}_4 = llvm.insertvalue %l{i}, %s{i}_3[3, 0] : {_MEMREF}
          %s{i}_5 = llvm.insertvalue %one, %s{i}_4[4, 0] : {_MEMREF}
          %m{i} = builtin.unrealized_conversion_cast %s{i}_5 : {_MEMREF} to {kind}""")
    lines = "\n".join
    return f"""
      llvm.func internal @{name}_call(%task: !llvm.ptr, %ctx: !llvm.ptr, %threads: i32, %flags: i32, %start: !llvm.ptr)
          attributes {{no_inline, passthrough = ["naked"]}} {{
        llvm.inline_asm has_side_effects "{architecture.jump}", "" : () -> ()
        llvm.unreachable
      }}
      func.func private @{name}_part({declared}) attributes {{no_inline}} {{
        return
      }}
      func.func private @{name}_team(%ctx: !llvm.ptr) attributes {{no_inline}} {{
        %zero = llvm.mlir.constant(0 : i64) : i64
        %one = llvm.mlir.constant(1 : i64) : i64
        {_get(2, "%base")}
        {_get(3, "%count")}
        {_get(4, "%divisor")}
        {_word(5, "%theirs")}
        %own = llvm.alloca %one x i64 : (i64) -> !llvm.ptr
        {architecture.get.format(at="%own")}
        {architecture.set.format(at="%theirs_at")}
        {lines(team)}
        {_word(1, "%come")}
        %bits = llvm.mlir.constant(32 : i64) : i64
        %low = llvm.mlir.constant({2**32 - 1} : i64) : i64
        %back = llvm.shl %one, %bits : i64
        %turn = llvm.atomicrmw add %come_at, %one monotonic : !llvm.ptr, i64
        %parity = llvm.and %turn, %one : i64
        %ahead = llvm.icmp "eq" %parity, %zero : i64
        %unit = llvm.select %ahead, %one, %back : i1, i64
        %first = llvm.atomicrmw add %ctx, %zero monotonic : !llvm.ptr, i64
        %last = scf.while (%taken = %first) : (i64) -> i64 {{
          %a = llvm.and %taken, %low : i64
          %b = llvm.lshr %taken, %bits : i64
          %sum = llvm.add %a, %b : i64
          %some = llvm.icmp "ult" %sum, %count : i64
          scf.condition(%some) %taken : i64
        }} do {{
        ^bb0(%taken: i64):
          %a = llvm.and %taken, %low : i64
          %b = llvm.lshr %taken, %bits : i64
          %behind = llvm.sub %count, %b : i64
          %left = llvm.sub %behind, %a : i64
          %part = llvm.udiv %left, %divisor : i64
          %many = arith.maxui %part, %one : i64
          %more = llvm.mul %many, %unit : i64
          %next = llvm.add %taken, %more : i64
          %tried = llvm.cmpxchg %ctx, %taken, %next monotonic monotonic : !llvm.ptr, i64
          %found = llvm.extractvalue %tried[0] : !llvm.struct<(i64, i1)>
          %mine = llvm.extractvalue %tried[1] : !llvm.struct<(i64, i1)>
          %now = scf.if %mine -> i64 {{
            %from_end = llvm.sub %behind, %many : i64
            %from = llvm.select %ahead, %a, %from_end : i1, i64
            %at = llvm.add %base, %from : i64
            %until = llvm.add %at, %many : i64
            scf.for %n = %at to %until step %one : i64 {{
              %share = arith.index_cast %n : i64 to index
              func.call @{name}_part({", ".join(names)}) : ({", ".join(kinds)}) -> ()
            }}
            %after = llvm.atomicrmw add %ctx, %zero monotonic : !llvm.ptr, i64
            scf.yield %after : i64
          }} else {{
            scf.yield %found : i64
          }}
          scf.yield %now : i64
        }}
        {architecture.set.format(at="%own")}
        return
      }}
      func.func private @{name}_enter(%count: index, %low: i32, %high: i32, %threads: i32, {declared}) {{
        %c0 = arith.constant 0 : index
        %none = arith.constant 0 : i32
        %c1 = arith.constant 1 : index
        %some = arith.ori %low, %high : i32
        %nobody = arith.cmpi eq, %some, %none : i32
        %single = arith.cmpi eq, %count, %c1 : index
        %alone = arith.ori %nobody, %single : i1
        %leads = arith.cmpi eq, %share, %c0 : index
        %works = arith.ori %alone, %leads : i1
        scf.if %works {{
          %all = arith.select %alone, %c1, %count : index
          %base = arith.index_cast %share : index to i64
          %shares = arith.index_cast %all : index to i64
          %zero = arith.constant 0 : i64
          %one = arith.constant 1 : i32
          %two = arith.constant 2 : i32
          %members = arith.maxui %threads, %one : i32
          %twice = arith.muli %members, %two : i32
          %divisor = arith.extui %twice : i32 to i64
          %n = llvm.mlir.constant({size} : i32) : i32
          %ctx = llvm.alloca %n x i64 : (i32) -> !llvm.ptr
          {_put(0, "%zero", "%taken")}
          {_put(1, "%zero", "%come")}
          {_put(2, "%base")}
          {_put(3, "%shares")}
          {_put(4, "%divisor")}
          {_word(5, "%control")}
          {architecture.get.format(at="%control_at")}
          {lines(enter)}
          scf.if %alone {{
            func.call @{name}_team(%ctx) : (!llvm.ptr) -> ()
          }} else {{
            %low64 = arith.extui %low : i32 to i64
            %high64 = arith.extui %high : i32 to i64
            %bits = arith.constant 32 : i64
            %shifted = arith.shli %high64, %bits : i64
            %address = arith.ori %low64, %shifted : i64
            %start = llvm.inttoptr %address : i64 to !llvm.ptr
            %function = func.constant @{name}_team : (!llvm.ptr) -> ()
            %task = builtin.unrealized_conversion_cast %function : (!llvm.ptr) -> () to !llvm.ptr
            llvm.call @{name}_call(%task, %ctx, %none, %none, %start)
                : (!llvm.ptr, !llvm.ptr, i32, i32, !llvm.ptr) -> ()
          }}
        }}
        return
      }}"""


_MEMREF = "!llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)>"


def _word(index: int, value: str) -> str:
    return f"{value}_at = llvm.getelementptr inbounds %ctx[{index}] : (!llvm.ptr) -> !llvm.ptr, i64\n"


def _put(index: int, value: str, name: str = "") -> str:
    name = name or value
    return _word(index, name) + f"llvm.store {value}, {name}_at : i64, !llvm.ptr"


def _get(index: int, value: str, kind: str = "i64") -> str:
    return _word(index, value) + f"{value} = llvm.load {value}_at : !llvm.ptr -> {kind}"
