"""What a program has for kernels whose work the calling thread shares with a team of the process's own threads.

Each of their dispatches takes, after all else, the address of a function as OpenMP runtimes export it, or 0, and the
number of threads that will come. Both live in globals of the program, which are 0 until somebody calls the program's
function for them. `covan_mlir.lowering.kernels.cpu.team` makes kernels of it, `covan_mlir.runtime.team` finds the
function.
"""

from __future__ import annotations

from covan_mlir.runtime.team import SETTER

WORDS = 3
"""32-bit words that each dispatch is given: an address, its low word first, and a number of threads."""

ADDRESS = "covan_team_words"
"""The program's function that gives these words."""

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
