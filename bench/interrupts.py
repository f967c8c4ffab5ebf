"""Ctrl-C at every moment of import, compilation, call, save and load; after it, a compilation has to work.

    python bench/interrupts.py                  one process for each 50 ms of a first compilation
    python bench/interrupts.py --minutes 20     as many of them as fit, spread over all of the compilation
    python bench/interrupts.py --at 4           one process, interrupted after 4 seconds

Prints what did not work, and how many moments did.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import time

_CODE = """
import os, signal, sys, tempfile, threading, time
import covan_mlir

moment, path = float(sys.argv[1]), os.path.join(tempfile.mkdtemp(), "model.covan")
signal.signal(signal.SIGINT, signal.default_int_handler)

def compiled():
    compile_module = covan_mlir.compile_module
    import torch
    x = torch.ones(8, 8)
    exe = compile_module(lambda x: torch.softmax(x @ x, -1), (x,), options=covan_mlir.CompileOptions(cache=False))
    assert torch.allclose(exe(x), torch.softmax(x @ x, -1))
    exe.save(path)
    covan_mlir.load(path)(x)

def interrupt():
    time.sleep(moment)
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

if moment:
    threading.Thread(target=interrupt, daemon=True).start()
try:
    compiled()
    if moment:
        time.sleep(moment)
except KeyboardInterrupt:
    pass
compiled()
"""


def run(moment: float) -> subprocess.CompletedProcess[str]:
    """A process that is interrupted after ``moment`` seconds; 0: never."""
    return subprocess.run([sys.executable, "-c", _CODE, str(moment)], capture_output=True, text=True, check=False)


def main() -> int:
    """Exit status: whether a compilation failed after an interrupt."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--step", type=float, default=0.05, help="seconds")
    parser.add_argument("--minutes", type=float, default=math.inf, help="no moment begins later")
    parser.add_argument("--at", type=float, help="one moment only: after so many seconds")
    options = parser.parse_args()
    started = time.monotonic()
    if options.at is None:
        run(0.0)
    whole = time.monotonic() - started if options.at is None else options.at
    # Spread wherever it ends: multiples of the golden ratio's fraction.
    order = sorted(range(1, int(whole / options.step)), key=lambda index: index * (math.sqrt(5) - 1) / 2 % 1)
    moments = [index * options.step for index in order] if options.at is None else [options.at]
    failed = tried = 0
    for moment in moments:
        if time.monotonic() - started > options.minutes * 60:
            break
        tried += 1
        done = run(moment)
        if done.returncode:
            failed += 1
            print(f"after {moment:.2f} s: exit status {done.returncode}: {done.stderr.strip()[-600:]}", flush=True)
    print(f"{tried} of {len(moments)} moments of {whole:.1f} s, {failed} failed")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
