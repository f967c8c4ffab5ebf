"""What IREE's own CUDA driver launches for generated kernels, told by a libcuda that runs nothing."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from math import prod
from pathlib import Path

import pytest
import torch
from cuda_stub import COMPILER, build, environment
from dense_chains import convolution, product
from fred_chains import attention, row_cases
from test_cuda_integer_products import UNSIGNED, linear

import covan_mlir
from covan_mlir import CompileOptions
from covan_mlir.fred.chain import Chain
from covan_mlir.lowering.kernels.cuda import target as cuda
from covan_mlir.lowering.kernels.cuda.compile import available, compile_kernel
from covan_mlir.lowering.kernels.cuda.device import DEVICES
from covan_mlir.lowering.kernels.cuda.kernel import Binary
from covan_mlir.lowering.kernels.cuda.match import TileMatch
from covan_mlir.lowering.kernels.cuda.schedule import TileSchedule
from covan_mlir.lowering.kernels.kernel import Refusal
from covan_mlir.lowering.kernels.select import Choices, choices, select
from covan_mlir.lowering.kernels.standalone import compile_text, program
from covan_mlir.lowering.targets.cuda import ARCHITECTURES, attribute

pytestmark = [
    pytest.mark.skipif(not available(), reason="Triton is not installed (pip install covan-mlir[cuda])"),
    pytest.mark.skipif(COMPILER is None, reason="no C compiler for the stub of libcuda"),
]

# The first four bytes of every input are its number; the first four of the result are what the stub wrote there.
RUN = """
import sys
import numpy as np
import iree.runtime as rt
config = rt.Config("cuda")
module = rt.VmModule.copy_buffer(config.vm_instance, open(sys.argv[1], "rb").read())
context = rt.VmContext(config.vm_instance, [*config.default_vm_modules, module])
inputs = []
for n, (shape, dtype) in enumerate(eval(sys.argv[2])):
    array = np.zeros(shape, dtype)
    array.reshape(-1).view(np.int32)[0] = n + 1
    inputs.append(rt.asdevicearray(config.device, array))
result = rt.FunctionInvoker(context, config.device, module.lookup_function("main_main"))(*inputs)
print(np.asarray(result.to_host()).reshape(-1).view(np.int32)[0])
"""


@dataclass(frozen=True)
class Launched:
    """A line of the log: what was launched how, the addresses of its parameters, and the ints that are there."""

    name: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    addresses: tuple[int, ...]
    first: tuple[int, ...]


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the stub."""
    return build(tmp_path_factory.mktemp("stub"))


def launched(stub: Path, folder: Path, chain: Chain) -> tuple[tuple[Binary, ...], list[list[str]], list[Launched], int]:
    """-> (what was compiled, lines of the log, launches, first int of the result)."""
    listed = choices(chain, cuda.CudaTarget(DEVICES["sm_90a"]))
    assert isinstance(listed, Choices)
    match, schedule = listed.candidates[0].match, listed.candidates[0].first
    assert isinstance(match, TileMatch)
    assert isinstance(schedule, TileSchedule)
    kernel = match.emit(schedule, "main", ())
    binaries = compile_kernel(match.write(schedule, "main"))
    path, log = folder / "program.vmfb", folder / "log"
    path.write_bytes(compile_text(program([kernel], attribute(ARCHITECTURES["sm_90a"])), target=()))
    kinds = {"f16": "float16", "f32": "float32", "i8": "int8"}
    shapes = [(operand.shape, kinds[operand.dtype]) for operand in kernel.inputs]
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(path), repr(shapes)],
        env=environment(stub, LOG=str(log)),
        check=True,
        capture_output=True,
        text=True,
    )
    lines = [line.split() for line in log.read_text().splitlines()]
    launches = []
    for name, *rest in (line[1:] for line in lines if line[0] == "launch"):
        numbers = [int(n) for n in rest[:7]]
        pairs = [pair.split(":") for pair in rest[7:]]
        launches.append(
            Launched(
                name,
                tuple(numbers[:3]),
                tuple(numbers[3:6]),
                numbers[6],
                tuple(int(a, 16) for a, _ in pairs),
                tuple(int(n) for _, n in pairs),
            )
        )
    return binaries, lines, launches, int(done.stdout)


def test_one_launch(stub: Path, tmp_path: Path) -> None:
    (binary,), lines, (launch,), result = launched(stub, tmp_path, attention(4, 512, 512, 64, "causal", dtype="f16"))
    assert launch.name == binary.launch.name
    assert launch.grid == (binary.launch.grid, 1, 1)
    assert launch.block == (binary.threads, 1, 1)
    assert launch.shared == binary.shared > 48 << 10
    assert launch.first[:3] == (1, 2, 3)  # q, k, v
    assert result == 1000
    # Operands are as aligned as the code assumes, and the shared memory is asked for before the launch.
    assert all(address % 16 == 0 for address in launch.addresses)
    assert ["attribute", launch.name, "8", str(binary.shared)] in lines


def test_parts_and_their_merge(stub: Path, tmp_path: Path) -> None:
    chain = attention(4, 1, 8192, 64, groups=8, dtype="f16")
    binaries, _, (parts, merge), result = launched(stub, tmp_path, chain)
    assert [parts.name, merge.name] == [binary.launch.name for binary in binaries]
    assert parts.first[:3] == (1, 2, 3)
    assert merge.addresses[:3] == parts.addresses[3:]  # the states of the parts
    assert merge.first[2] == 1000  # written by the first launch
    assert result == 1001
    assert parts.grid == (binaries[0].launch.grid, 1, 1)
    assert parts.grid[0] > prod(chain.sizes[axis] or 1 for axis in ("h",))


def test_rows(stub: Path, tmp_path: Path) -> None:
    (binary,), _, (launch,), result = launched(stub, tmp_path, row_cases(64, 1000)["layer_norm"][0])
    assert launch.grid == (binary.launch.grid, 1, 1) == (64, 1, 1)
    assert launch.first[:3] == (1, 2, 3)
    assert result == 1000


def test_a_product_and_the_sum_of_its_parts(stub: Path, tmp_path: Path) -> None:
    whole = product("ik", "jk", "ij", "k", "f16", i=1024, j=1024, k=512)
    (binary,), _, (launch,), result = launched(stub, tmp_path, whole)
    assert launch.grid == (binary.launch.grid, 1, 1)
    assert launch.block == (binary.threads, 1, 1)
    assert launch.shared == binary.shared
    assert launch.first[:4] == (1, 2, 3, 4)  # both factors, bias, gate
    assert result == 1000
    split = product("ik", "jk", "ij", "k", "f16", i=16, j=256, k=16384)
    (tmp_path / "split").mkdir()
    binaries, _, (parts, merge), result = launched(stub, tmp_path / "split", split)
    assert [parts.name, merge.name] == [binary.launch.name for binary in binaries]
    assert parts.first[:2] == (1, 2)
    assert merge.first[:3] == (3, 4, 1000)  # bias, gate, the sums of the parts
    assert merge.addresses[2] == parts.addresses[2]
    assert result == 1001


def test_a_convolution(stub: Path, tmp_path: Path) -> None:
    chain = convolution(64, 64, (3, 3), (28, 28), batch=4, dtype="f16")
    (binary,), _, (launch,), result = launched(stub, tmp_path, chain)
    assert launch.grid == (binary.launch.grid, 1, 1)
    assert launch.shared == binary.shared
    assert launch.first[:3] == (1, 2, 3)
    assert result == 1000


def test_a_product_of_steps(stub: Path, tmp_path: Path) -> None:
    chain = linear(UNSIGNED, 130, i=512, j=1024, k=512)
    (binary,), _, (launch,), result = launched(stub, tmp_path, chain)
    assert launch.grid == (binary.launch.grid, 1, 1)
    assert launch.shared == binary.shared
    assert launch.first[:4] == (1, 2, 3, 4)  # both factors, scales, bias
    assert result == 1000


class Attention(torch.nn.Module):
    """Plain attention of one query."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.softmax(q @ k.transpose(-1, -2) * 0.125, -1) @ v


def test_a_program_for_cuda_holds_the_kernels_of_its_chains() -> None:
    q, k, v = (torch.randn(2, 8, n, 64).half() for n in (1, 4096, 4096))
    options = CompileOptions(fuse_reductions=True)
    exe = covan_mlir.compile_module(Attention(), (q, k, v), options=options, target="cuda:sm_90a")
    sites = exe.lineage.sites
    assert [site.kernel.rpartition("_")[2] for site in sites] == ["parts", "merge"]
    names = {exe.lineage.actions[n].name for n in sites[-1].trace}
    assert {"matmul", "softmax", "matmul_1"} <= names


def test_without_triton_reductions_are_left_to_iree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "available", lambda: False)
    refusal = select(row_cases(4, 100)["softmax"][0], "k", cuda.CudaTarget(DEVICES["sm_80"]))
    assert isinstance(refusal, Refusal)
    assert "pip install covan-mlir[cuda]" in refusal.reason
