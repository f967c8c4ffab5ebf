"""Without file descriptors, temporary folders or memory: errors name what is missing, and later calls work."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from limits import HANG

_CODE = """
import os, resource, sys, tempfile
import torch
import covan_mlir
from covan_mlir.lowering import pool

def compiled():
    x = torch.ones(4, 8)
    options = covan_mlir.CompileOptions(cache=False)
    exe = covan_mlir.compile_module(lambda x: torch.softmax(x, -1), (x,), options=options)
    assert torch.allclose(exe(x), torch.softmax(x, -1))
    exe.save(sys.argv[1])

def refused(work):
    try:
        work()
    except covan_mlir.CovanError as error:
        print(error, flush=True)
    else:
        print("it worked", flush=True)

compiled()
pool.shutdown()
{then}
compiled()
"""


def run(path: Path, then: str) -> list[str]:
    code = _CODE.format(then=textwrap.dedent(then))
    command = [sys.executable, "-c", code, str(path / "model.covan")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_file_descriptors(tmp_path: Path) -> None:
    lines = run(
        tmp_path,
        """
        held = []
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
        try:
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            os.close(held.pop())
            os.close(held.pop())
        refused(compiled)
        refused(lambda: covan_mlir.load(sys.argv[1], isolated=True))
        for descriptor in held:
            os.close(descriptor)
        """,
    )
    assert [line for line in lines if "no file descriptors left (ulimit -n)" in line or "Too many open files" in line]
    assert "it worked" not in lines


def test_temporary_folders(tmp_path: Path) -> None:
    lines = run(
        tmp_path,
        """
        candidates = tempfile._candidate_tempdir_list
        tempfile.tempdir, tempfile._candidate_tempdir_list = None, lambda: ["/no/folder"]
        refused(compiled)
        refused(lambda: covan_mlir.load(sys.argv[1], isolated=True))
        tempfile.tempdir, tempfile._candidate_tempdir_list = None, candidates
        """,
    )
    assert ["TMPDIR" in line for line in lines if "process" in line or "compiler" in line] == [True, True]


@pytest.mark.skipif(sys.platform != "linux", reason="limits of address space are Linux's here")
def test_memory_of_the_compiler(tmp_path: Path) -> None:
    lines = run(
        tmp_path,
        """
        start = pool._Worker.__init__
        def limited(self, trace):
            start(self, trace)
            resource.prlimit(self.process.pid, resource.RLIMIT_AS, (1 << 28, 1 << 28))
        pool._Worker.__init__ = limited
        refused(compiled)
        pool._Worker.__init__ = start
        pool.shutdown()
        """,
    )
    assert "memory" in lines[0]
