"""What was started ends with whoever started it, killed at any moment, whatever it was doing."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from ending import gone, soon
from limits import HANG, part

STARTED = """
import collections, fcntl, itertools, os, signal, sys, time

def held(descriptor):
    flags, owner, sent = (fcntl.fcntl(descriptor, get) for get in (fcntl.F_GETFL, fcntl.F_GETOWN, fcntl.F_GETSIG))
    return flags & os.O_ASYNC and owner == os.getpid() and sent == signal.SIGKILL

def leashed():
    for name in os.listdir("/proc/self/fd"):
        try:
            if held(int(name)):
                return True
        except OSError:  # that of the folder
            pass
    return False

def work():
    while not leashed():  # the starter may be interrupted between starting and holding
        time.sleep(0.01)
    with open(os.environ["PLACE"], "w") as place:
        place.write(f"{os.getpid()}\\n")
    match os.environ["STATE"]:
        case "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "looping":  # in C, with Python's lock: no other thread runs again
            collections.deque(itertools.repeat(0), maxlen=0)
    time.sleep(6000)

if __name__ == "__main__":
    work()
"""

STARTING = {
    "child": "Child('started')",
    "thread": """
    starter = threading.Thread(target=Child, args=('started',))  # ends at once
    starter.start()
    starter.join()
    """,
    "forked": """
    Child('started')
    if os.fork() == 0:
        time.sleep(6000)
    """,
    "command": "leash.run([sys.executable, '-m', 'started'], None)",
    "apart": "apart.run(started.work)",
}

CALLER = """
import os, sys, threading, time
sys.path.insert(0, ".")
import started
from covan_mlir.support.processes import apart, leash
from covan_mlir.support.processes.child import Child
{starting}
time.sleep(6000)
"""


@pytest.mark.parametrize(
    ("starting", "state"),
    part(
        [(starting, state) for starting in STARTING for state in ("looping", "stopped")],
        kept=[("child", "stopped"), ("thread", "looping"), ("forked", "looping"), ("command", "stopped"),
              ("apart", "looping")],
    ),
)  # fmt: skip
def test_it_ends_with_its_caller(tmp_path: Path, starting: str, state: str) -> None:
    (tmp_path / "started.py").write_text(STARTED)
    place = tmp_path / "place"
    code = CALLER.format(starting=textwrap.dedent(STARTING[starting]))
    environment = os.environ | {"PLACE": str(place), "STATE": state}
    # A session of its own, for what it forks outlives it.
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, start_new_session=True
    ) as caller:
        try:
            assert soon(lambda: place.exists() and place.read_text().endswith("\n"))
            pid = int(place.read_text())
            if state == "stopped":
                assert soon(lambda: Path(f"/proc/{pid}/stat").read_text().split()[2] == "T")
            assert not gone(pid)
            caller.kill()
            assert caller.wait(HANG) < 0
            assert soon(lambda: gone(pid))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(caller.pid, signal.SIGKILL)
