"""Calling: threads, aliasing, lifetimes, memory."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from oracle import assert_same
from torch import nn

import covan_mlir
from covan_mlir import CompileOptions


def test_threads_may_call_one_executable() -> None:
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 16)).eval()
    exe = covan_mlir.compile_module(model, (torch.randn(8, 32),))
    wrong: list[int] = []

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for _ in range(50):
            x = torch.randn(8, 32, generator=generator)
            if not torch.allclose(exe(x), model(x), atol=1e-5):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_threads_share_state_without_losing_updates() -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros((), dtype=torch.int64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count += 1
            return x + self.count

    model = Counter()
    exe = covan_mlir.compile_module(model, (torch.zeros(1),))
    threads = [threading.Thread(target=lambda: [exe(torch.zeros(1)) for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert model.count == 200


@pytest.mark.parametrize("as_numpy", [False, True])
def test_results_outlive_everything(as_numpy: bool) -> None:
    exe = covan_mlir.compile_module(lambda x: (x, x * 2, x.reshape(-1)), (torch.zeros(64, 64),))
    results = []
    for i in range(5):
        x = torch.full((64, 64), float(i))
        results.append(exe(x.numpy() if as_numpy else x))
        del x
        gc.collect()
    del exe
    gc.collect()
    noise = [np.full(4096, -1.0, np.float32) for _ in range(100)]
    for i, (same, double, flat) in enumerate(results):
        assert (same == i).all()
        assert (double == 2 * i).all()
        assert (flat == i).all()
    assert len(noise) == 100


def test_unaligned_memory_is_copied() -> None:
    exe = covan_mlir.compile_module(lambda x: x + 1, (torch.zeros(64),))
    memory = torch.arange(200.0)
    for offset in range(1, 17):
        x = memory[offset : offset + 64]
        assert_same(exe(x), x + 1)
        assert (exe(x.numpy()) == x.numpy() + 1).all()


def test_inputs_that_require_grad_and_lazy_views() -> None:
    exe = covan_mlir.compile_module(lambda x: x * 2, (torch.zeros(4),))
    assert_same(exe(torch.ones(4, requires_grad=True)), torch.full((4,), 2.0))
    assert_same(exe(torch.ones(4).expand(4)), torch.full((4,), 2.0))
    assert_same(exe(torch._neg_view(torch.ones(4))), torch.full((4,), -2.0))


def test_drivers_agree() -> None:
    model = nn.Sequential(nn.Linear(32, 64), nn.Softmax(-1)).eval()
    x = torch.randn(8, 32)
    results = [
        covan_mlir.compile_module(model, (x,), options=CompileOptions(device=device))(x)
        for device in ("auto", "local-sync", "local-task")
    ]
    for result in results:
        assert_same(result, model(x), depth=2)


MEMORY = """
import resource, torch, covan_mlir

def peak():  # bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

model = torch.nn.Sequential(*[layer for _ in range(16) for layer in (torch.nn.Linear(4096, 4096), torch.nn.ReLU())])
x = torch.randn(2, 4096)
with torch.no_grad():
    expected = model(x)
before = peak()
exe = covan_mlir.compile_module(model.eval(), (x,))
torch.testing.assert_close(exe(x), expected)
from covan_mlir.lowering import pool
worker = pool._idle[0].process.pid
compiler = int(open(f"/proc/{worker}/status").read().split("VmHWM:")[1].split()[0]) * 1024
print(peak() - before + compiler)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_gibibyte_of_weights_is_not_held_twice() -> None:
    output = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True).stdout
    assert int(output) < 1 << 30  # what is allowed is 2.5 GiB; nothing of the size of the weights may be copied


ISOLATED = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "torch_mlir") or name.startswith("iree.compiler"):
            raise ImportError(f"{name} is not installed")

sys.meta_path.insert(0, Refuse())
import numpy as np
import covan_mlir

exe = covan_mlir.load(sys.argv[1])
result = exe(np.ones((2, 8), np.float32))
assert isinstance(result["y"], np.ndarray), type(result["y"])
np.save(sys.argv[2], result["y"])
assert "softmax" in exe.explain()
"""


def test_artifact_runs_with_runtime_and_numpy_alone(tmp_path: Path) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(8, 4)
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            self.calls += 1
            return {"y": torch.softmax(self.fc(x), -1) * self.calls}

    net = Net()
    options = CompileOptions(external_weight_bytes=64)  # the weight travels beside the program
    covan_mlir.compile_module(net, (torch.ones(2, 8),), options=options).save(tmp_path / "net.covan")
    subprocess.run(
        [sys.executable, "-c", ISOLATED, str(tmp_path / "net.covan"), str(tmp_path / "y.npy")],
        check=True,
        env={**os.environ, "PYTHONPATH": ""},
    )
    assert_same(torch.from_numpy(np.load(tmp_path / "y.npy")), net(torch.ones(2, 8))["y"].detach(), depth=3)
