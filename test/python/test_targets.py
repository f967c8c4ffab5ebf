"""Targets: their names, what programs for them require of a device, and programs on the devices that are here."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from limits import part
from torch import Tensor, nn

import covan_mlir
from covan_mlir.errors import DeviceError, TargetError
from covan_mlir.lowering.targets import parse, parse_all
from covan_mlir.lowering.targets.vulkan import PROFILES
from covan_mlir.runtime import devices, remote
from covan_mlir.runtime.requirements import missing
from covan_mlir.tools import cli

X86 = platform.machine() == "x86_64"
VULKAN = devices.discover("vulkan")
needs_vulkan = pytest.mark.skipif(not VULKAN, reason=f"no Vulkan device: {devices.trouble('vulkan')}")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gpu", "did you mean 'cpu'"),
        ("cpu:sparc-sun-solaris:v9", "unknown architecture 'sparc'"),
        ("vulkan:lavapip", "did you mean 'vulkan:lavapipe'"),
        ("cuda:sm_9", "did you mean 'cuda:sm_90'"),
        ("cuda:sm_9+tf32", "did you mean 'cuda:sm_90'"),
        ("cuda:sm_90+tf16", r"no feature of a target; known: cuda:sm_90\+tf32"),
        ("", "unknown target ''"),
    ],
)
def test_unknown_targets(name: str, words: str) -> None:
    with pytest.raises(TargetError, match=words):
        parse(name)


def test_several_targets() -> None:
    assert [t.name for t in parse_all(["cuda:sm_90+tf32", "cpu"])] == ["cuda:sm_90+tf32", "cpu"]
    with pytest.raises(TargetError, match="given twice"):
        parse_all(["cpu", "cpu"])
    with pytest.raises(TargetError, match="no target"):
        parse_all([])


FACTS = {"subgroup_size": 32, "subgroup_sizes": [32, 64], "types": ["fp16"], "shared_memory": 16384}
FACTS |= {"workgroup_invocations": 128}
WANTED = {"driver": "vulkan", "subgroup_size": 64, "types": ["fp16"], "shared_memory": 1, "workgroup_invocations": 1}


@pytest.mark.parametrize(
    ("requires", "facts", "words"),
    [
        ({"driver": "local", "architecture": platform.machine(), "features": []}, {}, None),
        ({"driver": "local", "architecture": "riscv64"}, {}, "architecture riscv64"),
        ({"driver": "local", "features": ["no-such-instruction"]}, {}, "no-such-instruction"),
        ({"driver": "abacus"}, {}, "unknown driver"),
        (WANTED, FACTS, None),
        (WANTED | {"subgroup_size": 8}, FACTS, "subgroups of 8 .* 32 to 64"),
        (WANTED | {"types": ["fp64"]}, FACTS, "fp64"),
        (WANTED | {"shared_memory": 32768}, FACTS, "32768 bytes of shared memory"),
        ({"driver": "cuda", "capability": [8, 0]}, {"capability": [9, 0]}, None),
        ({"driver": "cuda", "capability": [9, 0]}, {"capability": [8, 6]}, "9.0 .* 8.6"),
        ({"driver": "cuda", "capability": [9, 0], "exact": True}, {"capability": [10, 0]}, "exactly 9.0"),
    ],
)
def test_requirements(requires: dict[str, Any], facts: dict[str, Any], words: str | None) -> None:
    unmet = "; ".join(missing(requires, facts))
    assert re.search(words, unmet) if words else unmet == ""


def _model(x: Tensor) -> Tensor:
    return torch.softmax(x, -1) * 2


@pytest.mark.skipif(not X86, reason="cross-compiles away from x86-64")
def test_a_program_for_another_architecture(tmp_path: Path) -> None:
    exe = covan_mlir.compile_module(_model, (torch.randn(4, 40),), target="cpu:aarch64-linux-gnu:neoverse-n1")
    code = exe.kernel_code(0)
    assert code
    assert len(code) % 4 == 0  # instructions of AArch64 have four bytes each
    assert exe.verify()
    with pytest.raises(DeviceError, match="architecture aarch64"):
        exe(torch.randn(4, 40))
    exe.save(tmp_path / "arm.covan")
    with pytest.raises(DeviceError, match="cpu:aarch64-linux-gnu:neoverse-n1 needs"):
        covan_mlir.load(tmp_path / "arm.covan")
    assert cli.main(["explain", str(tmp_path / "arm.covan")]) == 0


@pytest.mark.skipif(not X86, reason="names CPUs of x86-64")
def test_a_cpu_that_llvm_does_not_know() -> None:
    with pytest.raises(TargetError, match="'nosuch'"):
        covan_mlir.compile_module(_model, (torch.randn(4, 40),), target="cpu:nosuch")


def test_an_artifact_for_several_targets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    x = torch.randn(4, 40)
    exe = covan_mlir.compile_module(_model, (x,), target=["cuda:sm_80", "cpu"])
    assert exe.target == "cpu"
    assert [v.target for v in exe.variants] == ["cuda:sm_80", "cpu"]
    assert exe.verify()
    path = str(tmp_path / "fat.covan")
    exe.save(path)
    torch.testing.assert_close(covan_mlir.load(path)(x), _model(x))
    assert cli.main(["explain", path, "--target", "cuda:sm_80"]) == 0
    assert "softmax" in capsys.readouterr().out
    assert cli.main(["explain", path, "--target", "vulkan"]) == 1
    assert "there is one for cuda:sm_80, cpu" in capsys.readouterr().err


class _Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(32, 96)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (t.view(1, 12, 2, 16).transpose(1, 2) for t in self.project(x).chunk(3, -1))
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(32, 48), nn.GELU(), nn.Linear(48, 8)), (5, 32)),
    "cnn": (
        lambda: nn.Sequential(
            *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)),
        ),
        (1, 3, 12, 12),
    ),
    "transformer": (lambda: nn.TransformerEncoderLayer(32, 2, 48, batch_first=True), (2, 9, 32)),
    "attention": (_Attention, (1, 12, 32)),
}


@needs_vulkan
@pytest.mark.parametrize(
    ("name", "dtype"),
    part(
        product(MODELS, (torch.float32, torch.float16)),
        kept=[("cnn", torch.float32), ("transformer", torch.float32), ("attention", torch.float16)],
    ),
)
def test_models_on_vulkan(name: str, dtype: torch.dtype) -> None:
    make, shape = MODELS[name]
    torch.manual_seed(0)
    model, x = make().eval(), torch.randn(shape)
    with torch.no_grad():
        expected = model.double()(x.double())
        model = model.to(dtype)
        exe = covan_mlir.compile_module(model, (x.to(dtype),), target="vulkan")
        own = (model(x.to(dtype)).double() - expected).abs().max().item()
        error = (exe(x.to(dtype)).double() - expected).abs().max().item()
    assert error <= 4 * own + torch.finfo(dtype).eps
    assert exe.verify()


@needs_vulkan
def test_vulkan_takes_all_that_programs_do(tmp_path: Path) -> None:
    def program(x: Tensor, scale: float, table: Tensor) -> tuple[Tensor, Tensor]:
        return x * scale + table.to(torch.float32), x.sum(0) > 0

    x, table = torch.randn(3, 5), torch.arange(5, dtype=torch.int32)
    exe = covan_mlir.compile_module(program, (x, 2.5, table), target="vulkan")
    for result, expected in zip(exe(x, 2.5, table), program(x, 2.5, table), strict=True):
        torch.testing.assert_close(result, expected)
    exe.save(tmp_path / "v.covan")
    back = covan_mlir.load(tmp_path / "v.covan")
    outputs = back(x.numpy(), 2.5, table.numpy())  # arrays in, arrays out
    np.testing.assert_allclose(outputs[0], program(x, 2.5, table)[0].numpy(), rtol=1e-6)


@needs_vulkan
def test_a_program_for_other_subgroups_does_not_run() -> None:
    size = VULKAN[0].facts["subgroup_sizes"]
    name = next(n for n, p in PROFILES.items() if not size[0] <= p.subgroup_size <= size[1])
    exe = covan_mlir.compile_module(lambda x: x + 1, (torch.randn(8),), target=f"vulkan:{name}")
    with pytest.raises(DeviceError, match=f"vulkan:{name} needs subgroups of"):
        exe(torch.randn(8))


@needs_vulkan
def test_limits_are_those_that_every_device_has_or_better() -> None:
    facts = VULKAN[0].facts  # Vulkan 1.3 specification, table "Required Limits"
    assert facts["shared_memory"] >= 16384
    assert facts["workgroup_invocations"] >= 128
    assert all(a >= b for a, b in zip(facts["workgroup_size"], (128, 128, 64), strict=True))
    assert all(count >= 65535 for count in facts["workgroup_counts"])


@needs_vulkan
def test_more_than_a_device_holds() -> None:
    size = VULKAN[0].facts["memory"] * 2
    with pytest.raises(DeviceError, match="no room for an argument"):
        remote.to_device(devices.device("vulkan"), np.zeros(size, np.uint8), "uint8")


def test_float64_where_there_is_none() -> None:
    def program(x: Tensor) -> Tensor:
        return (x.double() * 2).float()

    with pytest.raises(TargetError, match=r"test_targets\.py:\d+ is in float64, and vulkan:adreno"):
        covan_mlir.compile_module(program, (torch.randn(3),), target="vulkan:adreno")


def test_devices_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["devices"]) == 0
    out = capsys.readouterr().out
    assert [line.partition(":")[0] for line in out.splitlines() if line[0] != " "] == ["cpu", "vulkan", "cuda"]
