"""Kernels that the caller shares with OpenMP threads: every share is computed once, and as on IREE's own threads."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from fred_chains import attention, row_cases
from test_cpu_kernels import array, inputs_of, kernel

from covan_mlir import CompileOptions, compile_module
from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.standalone import Standalone, compile_kernels, compile_text
from covan_mlir.machine.description import COMPILER_SHARE, PRESETS
from covan_mlir.runtime import choice, team

START = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Instead of an OpenMP runtime: two threads, neither the caller. Lists how many were started by each call."""
    calls: list[int] = []

    def start(task: int, data: int, count: int, flags: int) -> None:
        assert (count, flags) == (0, 0)
        helpers = [threading.Thread(target=TASK(task), args=(data,)) for _ in range(2)]
        for helper in helpers:
            helper.start()
        for helper in helpers:
            helper.join()
        calls.append(len(helpers))

    function = START(start)
    monkeypatch.setattr(team, "address", lambda: ctypes.cast(function, ctypes.c_void_p).value)
    return calls


CHAINS: dict[str, tuple[Chain, dict[str, object]]] = {
    "queries": (attention(2, 300, 70, 24, "causal"), {}),
    "keys": (attention(6, 1, 300, 64), {}),
    "parts": (attention(2, 1, 300, 64), {"split": 3, "block": 32}),
    "rows": (row_cases(511, 1000)["layer_norm"][0], {}),
}


def test_a_team_computes_what_workers_compute(threads: list[int]) -> None:
    kernels = [kernel(chain, name, **changes) for name, (chain, changes) in CHAINS.items()]
    code = compile_kernels(kernels)
    drivers = {name: Standalone(kernels, name, code) for name in ("local-task", team.DRIVER)}
    for name, (chain, _) in CHAINS.items():
        inputs = [array(x) for x in inputs_of(chain)]
        threads.clear()
        theirs, ours = (np.asarray(it[name](*map(it.buffer, inputs)).to_host()) for it in drivers.values())
        np.testing.assert_array_equal(ours, theirs)
        assert threads == [2]  # to merge parts is so little that it is not shared


EACH_PLACE = """
#layout = #hal.pipeline.layout<bindings = [#hal.pipeline.binding<storage_buffer, ReadOnly>,
                                           #hal.pipeline.binding<storage_buffer>]>
module {
  hal.executable.source private @places {
    hal.executable.export public @places ordinal(0) layout(#layout) count(%d: !hal.device) -> (index, index, index) {
      %c3 = arith.constant 3 : index
      %c2 = arith.constant 2 : index
      %c5 = arith.constant 5 : index
      hal.return %c3, %c2, %c5 : index, index, index
    }
    builtin.module {
      func.func @places() {
        %c0 = arith.constant 0 : index
        %c1 = arith.constant 1 : index
        %c2 = arith.constant 2 : index
        %c3 = arith.constant 3 : index
        %c500 = arith.constant 500 : index
        %one = arith.constant 1.0 : f32
        %x = hal.interface.workgroup.id[0] : index
        %y = hal.interface.workgroup.id[1] : index
        %z = hal.interface.workgroup.id[2] : index
        %from = hal.interface.binding.subspan layout(#layout) binding(0) alignment(64) offset(%c0) flags(ReadOnly)
            : memref<15000xf32>
        %to = hal.interface.binding.subspan layout(#layout) binding(1) alignment(64) offset(%c0) : memref<15000xf32>
        %zy = arith.muli %z, %c2 : index
        %row = arith.addi %zy, %y : index
        %rows = arith.muli %row, %c3 : index
        %place = arith.addi %rows, %x : index
        %begin = arith.muli %place, %c500 : index
        scf.for %i = %c0 to %c500 step %c1 {
          %at = arith.addi %begin, %i : index
          %before = memref.load %from[%at] : memref<15000xf32>
          %after = arith.addf %before, %one : f32
          memref.store %after, %to[%at] : memref<15000xf32>
        }
        return
      }
    }
  }
  func.func @main(%x: tensor<15000xf32>) -> tensor<15000xf32> {
    %y = flow.dispatch @places::@places(%x) : (tensor<15000xf32>) -> tensor<15000xf32>
    return %y : tensor<15000xf32>
  }
}
"""


def test_workgroups_of_three_dimensions_are_shares(threads: list[int]) -> None:
    loaded = Standalone([], team.DRIVER, compile_text(EACH_PLACE))
    x = np.arange(15000, dtype=np.float32)
    np.testing.assert_array_equal(np.asarray(loaded.function("main")(loaded.buffer(x)).to_host()), x + 1)
    assert threads == [2]


class Turned(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.T.contiguous()


@pytest.mark.parametrize(("size", "teams"), [(600, 1), (8, 0)])
def test_what_iree_makes_is_shared_where_it_is_not_little(threads: list[int], size: int, teams: int) -> None:
    x = torch.randn(size, 500 if teams else 4)
    exe = compile_module(Turned(), (x,), options=CompileOptions(device="openmp"))
    assert not exe.lineage.fusions
    assert torch.equal(exe(x), x.T)
    assert threads == [2] * teams
    assert exe.verify()


def test_threads_flush_denormals_as_the_caller_does(threads: list[int]) -> None:
    chain, _ = row_cases(64, 1000)["var"]
    alone = Standalone([kernel(chain)], team.DRIVER)
    tiny = np.random.default_rng(0).normal(size=(64, 1000)).astype(np.float32) * np.float32(3e-20)
    assert not np.asarray(alone["k"](alone.buffer(tiny)).to_host()).any()  # 1e-39 without
    assert threads == [2]


def test_one_workgroup_needs_no_team(threads: list[int]) -> None:
    chain, _ = row_cases(2, 8)["softmax"]
    alone = Standalone([kernel(chain)], team.DRIVER)
    rows = torch.randn(2, 8)
    got = np.asarray(alone["k"](alone.buffer(rows.numpy())).to_host())
    np.testing.assert_allclose(got, torch.softmax(rows, -1).numpy(), rtol=1e-6)
    assert not threads


class Weighted(torch.nn.Module):
    def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1) @ w


def test_programs_of_fused_kernels_run_with_the_callers_threads(threads: list[int], tmp_path: Path) -> None:
    """Sizes that are known at run time only are given to each share; what is not fused runs on the caller."""
    n = torch.export.Dim("n", min=2, max=4096)
    x, w = torch.randn(300, 2000), torch.randn(2000, 3)
    exe = compile_module(Weighted(), (x, w), dynamic_shapes=({0: n}, None))
    assert exe(x, w).shape == (300, 3)
    assert threads
    torch.testing.assert_close(exe(x[:77], w), Weighted()(x[:77], w))
    assert exe.verify()
    profile = exe.profile(x, w, repeat=3)
    assert profile.driver == "local-task"
    assert any("OpenMP" in note for note in profile.notes)


def test_without_openmp_threads_ireess_own_run_it(tmp_path: Path) -> None:
    x, w = torch.randn(300, 2000), torch.randn(2000, 3)
    for device in ("auto", "openmp"):
        compile_module(Weighted(), (x, w), options=CompileOptions(device=device)).save(tmp_path / f"{device}.covan")
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import covan_mlir, numpy as np\n"
        "exe = covan_mlir.load(sys.argv[1])\n"
        "print(exe.driver, exe(np.ones((300, 2000), np.float32), np.ones((2000, 3), np.float32)).sum())\n"
    )

    def run(name: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code, str(tmp_path / f"{name}.covan")]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    driver, total = run("auto").stdout.split()
    assert driver == "local-task"
    assert float(total) == pytest.approx(900, rel=1e-5)
    refused = run("openmp")
    assert refused.returncode != 0
    assert re.search(r"DeviceError: no OpenMP threads .* import torch first", refused.stderr)


# One core multiplies and adds a billion times a second, or computes as many elements. Of a second's work two cores save
# half a second, so threads that take 50 us to wake pay from 100 us on, a team that takes 2.5 us from 5 us on. What a
# team would share takes a tenth longer on these threads: of 1 ms, they pay from 181.8 us on that it would not share.
MACHINE = replace(PRESETS["avx2"], cores=2, flops_alone=1e9 / COMPILER_SHARE, elements=1e9, wake=50e-6, team=2.5e-6)


@pytest.mark.parametrize(
    ("device", "info", "chosen"),
    [
        ("auto", {"flops": 1e6, "shared": {"flops": 1e6}}, "openmp"),
        ("auto", {"flops": 3e6, "shared": {"flops": 1e6}}, "local-task"),
        ("auto", {"flops": 3e8, "shared": {"flops": 2.8e8}}, "openmp"),
        ("auto", {"elements": 1e6, "shared": {"elements": 1e6 - 181e3}}, "openmp"),
        ("auto", {"elements": 1e6, "shared": {"elements": 1e6 - 183e3}}, "local-task"),
        ("auto", {"elements": 1e6, "shared": {"elements": 1e6 - 183e3, "dispatches": 10}}, "openmp"),
        ("auto", {"elements": 99e3, "shared": {}}, "local-sync"),
        ("auto", {"elements": 101e3, "shared": {}}, "local-task"),
        ("auto", {"flops": 51e3, "elements": 50e3, "shared": {}}, "local-task"),
        ("auto", {"elements": 4e3, "shared": {"elements": 4e3}}, "local-sync"),
        ("auto", {"elements": 6e3, "shared": {"elements": 6e3}}, "openmp"),
        ("local-task", {"flops": 1e9, "shared": {"flops": 1e9}}, "local-task"),
    ],
)
def test_who_runs_a_program(device: str, info: dict[str, object], chosen: str, threads: list[int]) -> None:
    assert choice.driver(device, {}, info, MACHINE) == chosen


def test_one_core_wakes_nobody(threads: list[int]) -> None:
    info = {"flops": 1e9, "shared": {"flops": 1e9}}
    assert choice.driver("auto", {}, info, replace(MACHINE, cores=1)) == "local-sync"


def test_torchs_openmp_runtime_is_found() -> None:
    torch.ones(1 << 20).sum()
    assert team.address()
