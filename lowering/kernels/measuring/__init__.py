"""Kernels built and timed in processes of their own, which may crash or hang without harm.

`measure` is the caller's side, `child` the process; `messages` go between them. `reference` says what a chain computes
at some positions: no time counts of a kernel that computes something else. `timing` takes turns.
"""
