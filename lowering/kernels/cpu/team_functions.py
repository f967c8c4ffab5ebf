"""The functions by which workgroups become shares of a team of threads, as text; see
`covan_mlir.lowering.kernels.cpu.team`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class InstructionSet:
    """What is said in other words on each architecture; `{at}` is a pointer to a word.

    Attributes:
        get: writes the control word of floating-point arithmetic to memory.
        set: reads it from there.
    """

    get: str
    set: str


INSTRUCTION_SETS = {
    "x86_64": InstructionSet(
        'llvm.call_intrinsic "llvm.x86.sse.stmxcsr"({at}) : (!llvm.ptr) -> ()',
        'llvm.call_intrinsic "llvm.x86.sse.ldmxcsr"({at}) : (!llvm.ptr) -> ()',
    ),
    "aarch64": InstructionSet(
        '{at}_got = llvm.call_intrinsic "llvm.aarch64.get.fpcr"() : () -> i64\n'
        "llvm.store {at}_got, {at} : i64, !llvm.ptr",
        "{at}_set = llvm.load {at} : !llvm.ptr -> i64\n"
        'llvm.call_intrinsic "llvm.aarch64.set.fpcr"({at}_set) : (i64) -> ()',
    ),
}

DISPATCH = "!llvm.struct<(i32, i32, i16, i16, i32, i32, i16, i8, i8, ptr, ptr, ptr)>"
"""`iree_hal_executable_dispatch_state_v0_t` of IREE's runtime/src/iree/hal/local/executable_library.h: the size of a
workgroup, the number of constants, how many workgroups there are along x, y and z, how many run at once, the number of
bindings; constants, addresses of bindings, their lengths in bytes."""
WORKGROUP = "!llvm.struct<(i32, i32, i16, i16, i32, ptr, i32)>"
"""`iree_hal_executable_workgroup_state_v0_t`, there: a workgroup's place along x, y and z, nothing, its processor, its
local memory and the length of that."""
LEAST_BYTES = 16 << 10
"""Of all operands of a dispatch: to share less takes longer than to do it (a core copies as much in a microsecond)."""

_GIVEN = ("%env: !llvm.ptr", "%dispatch: !llvm.ptr", "%group: !llvm.ptr")
_POINTER = "{llvm.align = 16 : i64, llvm.noalias, llvm.nonnull, llvm.noundef}"
_WORDS = 9
"""In memory, 64 bits each, of what a team does: see `functions`."""


def functions(name: str, constants: int, bindings: int, instruction_set: InstructionSet) -> str:
    """A module of two functions in LLVM's dialect: ``NAME``, as IREE's runtime calls it for each workgroup, and
    ``NAME_team``, which it has a team call, and which calls ``NAME_part`` for one workgroup after the other.

    Threads take shares from both ends, by turns of their arrival: of two, the caller has the first half and the other
    one the second, in call after call, as far as both are as fast; so each finds in its caches what it has left there.
    A thread takes half of its part of what is left, and so ever less: many at first, for what lies side by side is
    read fastest, and few at last, so that all end at the same time.

    What ``NAME_team`` needs lies in memory, in words of 64 bits: how many shares have been taken (32 bits for each
    end), how many threads have come, how many shares there are, twice the threads, the caller's control word (IREE's
    threads take denormals for 0, others do not), what ``NAME`` was given, and what the shares gave, together.

    Args:
        constants: that a dispatch is given, those of the team excluded, which come after them: the address of the
            function that starts a team, its low word first, and the number of its threads.
        bindings: operands in memory.
    """
    lengths = "\n".join(
        f"""%length_at{n} = llvm.getelementptr %lengths[{n}] : (!llvm.ptr) -> !llvm.ptr, i64
        %length{n} = llvm.load %length_at{n} : !llvm.ptr -> i64
        %bytes{n + 1} = llvm.add %bytes{n}, %length{n} : i64"""
        for n in range(bindings)
    )
    given = ", ".join(f"{argument} {_POINTER}" for argument in _GIVEN)
    part = "(!llvm.ptr, !llvm.ptr, !llvm.ptr) -> i32"
    return f"""
      llvm.func @{name}({given}) -> i32 {{
        %none = llvm.mlir.constant(0 : i32) : i32
        %zero = llvm.mlir.constant(0 : i64) : i64
        %one = llvm.mlir.constant(1 : i64) : i64
        %two = llvm.mlir.constant(2 : i64) : i64
        %bits = llvm.mlir.constant(32 : i64) : i64
        %state = llvm.load %dispatch : !llvm.ptr -> {DISPATCH}
        %constants = llvm.extractvalue %state[9] : {DISPATCH}
        {_constant(constants, "%low")}
        {_constant(constants + 1, "%high")}
        {_constant(constants + 2, "%members")}
        %shifted = llvm.shl %high, %bits : i64
        %address = llvm.or %low, %shifted : i64
        {_counts()}
        %lengths = llvm.extractvalue %state[11] : {DISPATCH}
        %bytes0 = llvm.mlir.constant(0 : i64) : i64
        {lengths}
        %least = llvm.mlir.constant({LEAST_BYTES} : i64) : i64
        %nobody = llvm.icmp "eq" %address, %zero : i64
        %single = llvm.icmp "ult" %count, %two : i64
        %little = llvm.icmp "ult" %bytes{bindings}, %least : i64
        %either = llvm.or %nobody, %single : i1
        %alone = llvm.or %either, %little : i1
        llvm.cond_br %alone, ^alone, ^shared
      ^alone:
        %gave = llvm.call @{name}_part(%env, %dispatch, %group) : {part}
        llvm.return %gave : i32
      ^shared:
        %place = llvm.load %group : !llvm.ptr -> {WORKGROUP}
        %place_x = llvm.extractvalue %place[0] : {WORKGROUP}
        %place_y = llvm.extractvalue %place[1] : {WORKGROUP}
        %place_z16 = llvm.extractvalue %place[2] : {WORKGROUP}
        %place_z = llvm.zext %place_z16 : i16 to i32
        %place_xy = llvm.or %place_x, %place_y : i32
        %place_xyz = llvm.or %place_xy, %place_z : i32
        %leads = llvm.icmp "eq" %place_xyz, %none : i32
        llvm.cond_br %leads, ^leads, ^follows
      ^follows:
        llvm.return %none : i32
      ^leads:
        %some = llvm.intr.umax(%members, %one) : (i64, i64) -> i64
        %divisor = llvm.mul %some, %two : i64
        %words = llvm.mlir.constant({_WORDS} : i32) : i32
        %ctx = llvm.alloca %words x i64 : (i32) -> !llvm.ptr
        {_put(0, "%zero", "%taken")}
        {_put(1, "%zero", "%come")}
        {_put(2, "%count")}
        {_put(3, "%divisor")}
        {_word(4, "%control")}
        {instruction_set.get.format(at="%control_at")}
        {_put(5, "%env", kind="!llvm.ptr")}
        {_put(6, "%dispatch", kind="!llvm.ptr")}
        {_put(7, "%group", kind="!llvm.ptr")}
        {_put(8, "%zero", "%result")}
        %task = llvm.mlir.addressof @{name}_team : !llvm.ptr
        %start = llvm.inttoptr %address : i64 to !llvm.ptr
        llvm.call %start(%task, %ctx, %none, %none) : !llvm.ptr, (!llvm.ptr, !llvm.ptr, i32, i32) -> ()
        %result64 = llvm.load %result_at : !llvm.ptr -> i64
        %given = llvm.trunc %result64 : i64 to i32
        llvm.return %given : i32
      }}
      llvm.func internal @{name}_team(%ctx: !llvm.ptr) attributes {{no_inline}} {{
        %zero = llvm.mlir.constant(0 : i64) : i64
        %one = llvm.mlir.constant(1 : i64) : i64
        %bits = llvm.mlir.constant(32 : i64) : i64
        %low = llvm.mlir.constant({2**32 - 1} : i64) : i64
        %back = llvm.shl %one, %bits : i64
        {_word(1, "%come")}
        {_get(2, "%shares")}
        {_get(3, "%divisor")}
        {_word(4, "%theirs")}
        {_get(5, "%env", "!llvm.ptr")}
        {_get(6, "%dispatch", "!llvm.ptr")}
        {_get(7, "%callers", "!llvm.ptr")}
        {_word(8, "%result")}
        %state = llvm.load %dispatch : !llvm.ptr -> {DISPATCH}
        {_counts()}
        %own = llvm.alloca %one x i64 : (i64) -> !llvm.ptr
        {instruction_set.get.format(at="%own")}
        {instruction_set.set.format(at="%theirs_at")}
        %group = llvm.alloca %one x {WORKGROUP} : (i64) -> !llvm.ptr
        %callers_place = llvm.load %callers : !llvm.ptr -> {WORKGROUP}
        %turn = llvm.atomicrmw add %come_at, %one monotonic : !llvm.ptr, i64
        %parity = llvm.and %turn, %one : i64
        %ahead = llvm.icmp "eq" %parity, %zero : i64
        %unit = llvm.select %ahead, %one, %back : i1, i64
        %first = llvm.atomicrmw add %ctx, %zero monotonic : !llvm.ptr, i64
        llvm.br ^look(%first : i64)
      ^look(%taken: i64):
        %a = llvm.and %taken, %low : i64
        %b = llvm.lshr %taken, %bits : i64
        %sum = llvm.add %a, %b : i64
        %some = llvm.icmp "ult" %sum, %shares : i64
        llvm.cond_br %some, ^take, ^end
      ^take:
        %behind = llvm.sub %shares, %b : i64
        %left = llvm.sub %behind, %a : i64
        %part = llvm.udiv %left, %divisor : i64
        %many = llvm.intr.umax(%part, %one) : (i64, i64) -> i64
        %more = llvm.mul %many, %unit : i64
        %next = llvm.add %taken, %more : i64
        %tried = llvm.cmpxchg %ctx, %taken, %next monotonic monotonic : !llvm.ptr, i64
        %seen = llvm.extractvalue %tried[0] : !llvm.struct<(i64, i1)>
        %mine = llvm.extractvalue %tried[1] : !llvm.struct<(i64, i1)>
        %from_end = llvm.sub %behind, %many : i64
        %from = llvm.select %ahead, %a, %from_end : i1, i64
        %until = llvm.add %from, %many : i64
        llvm.cond_br %mine, ^share(%from : i64), ^look(%seen : i64)
      ^share(%n: i64):
        %px = llvm.urem %n, %x : i64
        %rest = llvm.udiv %n, %x : i64
        %py = llvm.urem %rest, %y : i64
        %pz = llvm.udiv %rest, %y : i64
        %px32 = llvm.trunc %px : i64 to i32
        %py32 = llvm.trunc %py : i64 to i32
        %pz16 = llvm.trunc %pz : i64 to i16
        %at_x = llvm.insertvalue %px32, %callers_place[0] : {WORKGROUP}
        %at_xy = llvm.insertvalue %py32, %at_x[1] : {WORKGROUP}
        %at_xyz = llvm.insertvalue %pz16, %at_xy[2] : {WORKGROUP}
        llvm.store %at_xyz, %group : {WORKGROUP}, !llvm.ptr
        %gave = llvm.call @{name}_part(%env, %dispatch, %group) : {part}
        %gave64 = llvm.zext %gave : i32 to i64
        %others = llvm.atomicrmw _or %result_at, %gave64 monotonic : !llvm.ptr, i64
        %n1 = llvm.add %n, %one : i64
        %again = llvm.icmp "ult" %n1, %until : i64
        llvm.cond_br %again, ^share(%n1 : i64), ^after
      ^after:
        %now = llvm.atomicrmw add %ctx, %zero monotonic : !llvm.ptr, i64
        llvm.br ^look(%now : i64)
      ^end:
        {instruction_set.set.format(at="%own")}
        llvm.return
      }}"""


def _constant(index: int, value: str) -> str:
    return f"""{value}_at = llvm.getelementptr %constants[{index}] : (!llvm.ptr) -> !llvm.ptr, i32
        {value}32 = llvm.load {value}_at : !llvm.ptr -> i32
        {value} = llvm.zext {value}32 : i32 to i64"""


def _counts() -> str:
    """How many workgroups there are, along each dimension and in all."""
    fields = ("%x", 4, "i32"), ("%y", 5, "i32"), ("%z", 6, "i16")
    lines = [
        f"{name}_count = llvm.extractvalue %state[{field}] : {DISPATCH}\n"
        f"        {name} = llvm.zext {name}_count : {kind} to i64"
        for name, field, kind in fields
    ]
    lines += ["%xy = llvm.mul %x, %y : i64", "%count = llvm.mul %xy, %z : i64"]
    return "\n        ".join(lines)


def _word(index: int, value: str) -> str:
    return f"{value}_at = llvm.getelementptr inbounds %ctx[{index}] : (!llvm.ptr) -> !llvm.ptr, i64\n"


def _put(index: int, value: str, name: str = "", kind: str = "i64") -> str:
    name = name or f"{value}_word"
    return _word(index, name) + f"llvm.store {value}, {name}_at : {kind}, !llvm.ptr"


def _get(index: int, value: str, kind: str = "i64") -> str:
    return _word(index, f"{value}_word") + f"{value} = llvm.load {value}_word_at : !llvm.ptr -> {kind}"
