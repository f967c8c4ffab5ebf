"""The functions that a kernel for a team of threads calls, as text; see `covan_mlir.lowering.kernels.cpu.team`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class InstructionSet:
    """What is said in other words on each architecture; `{at}` is a pointer to a word.

    Attributes:
        jump: to the fifth argument of the C calling convention of ELF platforms.
        get: writes the control word of floating-point arithmetic to memory.
        set: reads it from there.
    """

    jump: str
    get: str
    set: str


INSTRUCTION_SETS = {
    "x86_64": InstructionSet(
        "jmp *%r8",
        'llvm.call_intrinsic "llvm.x86.sse.stmxcsr"({at}) : (!llvm.ptr) -> ()',
        'llvm.call_intrinsic "llvm.x86.sse.ldmxcsr"({at}) : (!llvm.ptr) -> ()',
    ),
    "aarch64": InstructionSet(
        "br x4",
        '{at}_got = llvm.call_intrinsic "llvm.aarch64.get.fpcr"() : () -> i64\n'
        "llvm.store {at}_got, {at} : i64, !llvm.ptr",
        "{at}_set = llvm.load {at} : !llvm.ptr -> i64\n"
        'llvm.call_intrinsic "llvm.aarch64.set.fpcr"({at}_set) : (i64) -> ()',
    ),
}


def functions(name: str, numbers: int, memories: list[str], instruction_set: InstructionSet) -> str:
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
        llvm.inline_asm has_side_effects "{instruction_set.jump}", "" : () -> ()
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
        {instruction_set.get.format(at="%own")}
        {instruction_set.set.format(at="%theirs_at")}
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
        {instruction_set.set.format(at="%own")}
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
          {instruction_set.get.format(at="%control_at")}
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
