"""What goes wrong with devices, each as one clear error: on a libcuda that runs nothing and fails as it is told."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from cuda_stub import COMPILER, build, environment

import covan_mlir
from covan_mlir.errors import CovanError, DeviceError
from covan_mlir.runtime import failures

needs_stub = pytest.mark.skipif(COMPILER is None, reason="no C compiler for the stub of libcuda")

# Each line of standard input is what the stub is told, and what to do then.
RUN = """
import os, sys
import numpy as np
import covan_mlir
exe = None
told = {}
for line in sys.stdin:
    what, _, settings = line.strip().partition(" ")
    for name in told:
        del os.environ[name]
    told = {f"COVAN_CUDA_{name}": value for name, _, value in (s.partition("=") for s in settings.split())}
    os.environ.update(told)
    try:
        if what == "load":
            exe = covan_mlir.load(sys.argv[1])
        elif what == "profile":
            exe.profile(np.zeros((8, 300), np.float32))
        else:
            exe(np.zeros((8, 300), np.float32))
        print("ran on", exe.target)
    except Exception as error:
        print(type(error).__name__, "|", " ".join(str(error).split()))
"""


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the stub, and of an artifact for two GPUs."""
    folder = build(tmp_path_factory.mktemp("stub"))
    targets = ["cuda:sm_90a", "cuda:sm_80"]
    exe = covan_mlir.compile_module(lambda x: x * 2 + 1, (torch.randn(8, 300),), target=targets)
    exe.save(folder / "model.covan")
    return folder


def said(stub: Path, lines: list[str], **settings: str) -> list[str]:
    """What comes of each line."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(stub / "model.covan")],
        env=environment(stub, **settings),
        input="\n".join(lines),
        text=True,
        capture_output=True,
        check=True,
    )
    return done.stdout.splitlines()


@needs_stub
def test_a_device_that_fails(stub: Path) -> None:
    cases = {
        "load FAIL=cuModuleLoadDataEx:222": "DeviceError .*driver refuses the program: .*PTX_VERSION.*(222).*too old",
        "load FAIL=cuModuleLoadDataEx:218": "DeviceError .*driver refuses the program: .*INVALID_PTX.*covan devices",
        "load": "ran on cuda:sm_90a",
        # Before a call that succeeds: the memory of that one is kept.
        "call FAIL=cuMemAlloc:2": "DeviceError .*no room for an argument of 9600 bytes: .*OUT_OF_MEMORY",
        "call MEMORY=15000": "DeviceError .*the device is out of memory: .*OUT_OF_MEMORY.*Use smaller inputs",
        "call MEMORY=50000": "ran on",
        "call": "ran on cuda:sm_90a",
        "call FAIL=cuLaunchKernel:719": "DeviceError .*failed while it ran the program: .*LAUNCH_FAILED.*new one",
    }
    answers = said(stub, list(cases))
    assert len(answers) == len(cases)
    for (line, pattern), answer in zip(cases.items(), answers, strict=True):
        assert re.search(pattern, answer), (line, answer)
        assert "while invoking" not in answer  # the virtual machine's own words are nobody's business


@needs_stub
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"FAIL": "cuInit:100"}, "there is no NVIDIA GPU"),
        ({"FAIL": "cuInit:803"}, "driver is too old"),
        ({"CAPABILITY": "75"}, "cuda:sm_80 needs compute capability 8.0 (the device has 7.5)"),
    ],
)
def test_a_device_that_does_not_fit(stub: Path, settings: dict[str, str], words: str) -> None:
    (answer,) = said(stub, ["load"], **settings)
    assert answer.startswith("DeviceError | no program for this machine: cuda:sm_90a needs ")
    assert "; cuda:sm_80 needs " in answer
    assert words in answer


@needs_stub
def test_a_newer_device_takes_what_is_not_exact(stub: Path) -> None:
    assert said(stub, ["load", "call"], CAPABILITY="100") == ["ran on cuda:sm_80"] * 2


@needs_stub
def test_memory_that_calls_freed_is_used_by_the_next(stub: Path) -> None:
    """The driver is asked for none: neither itself nor by its pools, which give back what is freed."""
    refused = "FAIL=cuMemAlloc:2"
    assert said(stub, ["load", "call", "call", "call", f"call {refused}"]) == ["ran on cuda:sm_90a"] * 5


@needs_stub
def test_cuda_has_no_profiler(stub: Path) -> None:
    answer = said(stub, ["load", "profile"])[-1]
    assert answer.startswith("ProfileError | the device of driver 'cuda' gives no times")
    assert "profiling is not implemented" in answer


def test_failures_of_other_drivers() -> None:
    lost = RuntimeError(
        "Error invoking function: x.c:1: INTERNAL; VK_ERROR_DEVICE_LOST; while invoking hal.fence.await"
    )
    assert isinstance(failures.running(lost, "vulkan"), DeviceError)
    assert "VK_ERROR_DEVICE_LOST." in str(failures.running(lost, "vulkan"))
    full = RuntimeError("x.c:1: RESOURCE_EXHAUSTED; VK_ERROR_OUT_OF_DEVICE_MEMORY; while")
    assert "no room for the program" in str(failures.loading(full, "vulkan"))
    # The program's own fault, on a device that is well.
    wrong = RuntimeError("x.c:1: INVALID_ARGUMENT; input shape mismatch")
    for driver in ("vulkan", "local-task"):
        assert type(failures.running(wrong, driver)) is CovanError
    assert type(failures.loading(wrong, "cuda")) is CovanError
    assert isinstance(failures.moving(MemoryError(), "an argument of 3 bytes"), DeviceError)
