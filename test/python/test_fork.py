"""Calls in processes that were forked, or spawned, after a program was loaded."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
from limits import HANG
from torch import nn

import covan_mlir
from covan_mlir import CompileOptions

_CODE = textwrap.dedent("""
    import multiprocessing, sys, threading
    import numpy as np
    import covan_mlir

    def call(path, exe, expected, queue):
        for _ in range(3):
            assert np.allclose(exe(np.ones((64, 32), np.float32)), expected)
        assert np.allclose(covan_mlir.load(path)(np.ones((64, 32), np.float32)), expected)
        queue.put(exe.driver)

    def main():
        if sys.argv[2] == "torch":
            import torch
            torch.ones(2000, 2000) @ torch.ones(2000, 2000)  # OpenMP's threads are there
        path = sys.argv[1]
        exe = covan_mlir.load(path)
        expected = exe(np.ones((64, 32), np.float32)).copy()
        busy = threading.Thread(target=lambda: [exe(np.ones((64, 32), np.float32)) for _ in range(2000)])
        busy.start()
        context = multiprocessing.get_context("fork")
        for _ in range(3):
            queue = context.Queue()
            child = context.Process(target=call, args=(path, exe, expected, queue))
            child.start()
            print(queue.get(timeout=120))
            child.join(200)
            assert child.exitcode == 0
        busy.join()
        assert np.allclose(exe(np.ones((64, 32), np.float32)), expected)

    main()
""")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("device", ["local-task", "local-sync", "openmp"])
def test_calls_in_forked_processes(tmp_path: Path, device: str) -> None:
    """The parent calls it meanwhile, in another thread; its children load the program again."""
    path = tmp_path / "model.covan"
    model = nn.Sequential(nn.Linear(32, 64), nn.Softmax(-1)).eval()
    covan_mlir.compile_module(model, (torch.ones(64, 32),), options=CompileOptions(device=device)).save(path)
    command = [sys.executable, "-c", _CODE, str(path), "torch" if device == "openmp" else "numpy"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["local-task" if device == "openmp" else device] * 3


def _spawned(path: str, queue: multiprocessing.Queue[float]) -> None:
    queue.put(float(covan_mlir.load(path)(torch.ones(3)).sum()))


def test_calls_in_spawned_processes(tmp_path: Path) -> None:
    path = tmp_path / "model.covan"
    covan_mlir.compile_module(lambda x: x * 2, (torch.ones(3),)).save(path)
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=_spawned, args=(str(path), queue))
    child.start()
    assert queue.get(timeout=600) == 6.0
    child.join(600)
    assert child.exitcode == 0


def test_sub_interpreters_are_refused() -> None:
    """A call would wait for ever there."""
    pytest.importorskip("_xxsubinterpreters", reason="this Python has no sub-interpreters under that name")
    code = """
import _xxsubinterpreters as interpreters
try:
    interpreters.run_string(interpreters.create(), "import covan_mlir; covan_mlir.load('nowhere.covan')")
except interpreters.RunFailedError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG, check=False)
    assert "CovanError" in done.stdout
    assert "this is a sub-interpreter" in done.stdout
