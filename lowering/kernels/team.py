"""What a program has for dispatches whose work the calling thread shares with a team of the process's own threads.

Each of them is given the address of a function as OpenMP runtimes export it, or 0, and the number of threads that will
come. Both live in globals of the program, which are 0 until somebody calls the program's function for them.
`covan_mlir.lowering.kernels.cpu.team` gives a program all of that, `covan_mlir.runtime.team` finds the function.
"""

from __future__ import annotations

from covan_mlir.runtime.team import SETTER

WORDS = 3
"""32-bit words that each dispatch is given: an address, its low word first, and a number of threads."""

ADDRESS = "covan_team_address"
THREADS = "covan_team_threads"
"""The program's globals."""

DECLARATIONS = f"""
  util.global private mutable @{ADDRESS} = 0 : i64
  util.global private mutable @{THREADS} = 0 : i32
  util.func public @{SETTER}(%address: i64, %threads: i32) {{
    util.global.store %address, @{ADDRESS} : i64
    util.global.store %threads, @{THREADS} : i32
    util.return
  }}
"""
"""What a program with such dispatches has besides them."""
