"""Code of programs for GPUs, read back out of them: whose it is, and which lines of the model it names."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import covan_mlir
from covan_mlir import CovanError, Executable
from covan_mlir.artifacts import machine_code
from covan_mlir.lowering.kernels.cuda.compile import assembled, available

HERE = str(Path(__file__))
needs_triton = pytest.mark.skipif(not available(), reason="Triton is not installed (pip install covan-mlir[cuda])")


class TransposedProduct(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.relu(a.mT @ b)


class Twice(nn.Module):
    """The same chain from two lines, with something between them, and a third time from one of the lines."""

    def step(self, x: Tensor) -> Tensor:
        return torch.softmax(x, -1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.step(x) @ x
        x = self.step(x).relu() @ x
        return torch.softmax(x, 1) @ x


ARGS = (torch.randn(256, 256),)


@pytest.fixture(scope="module")
def program() -> Executable:
    return covan_mlir.compile_module(Twice(), ARGS, target="cuda:sm_80")


def named(ptx: str) -> set[tuple[str, int, str]]:
    """File, line and action that the line table of a PTX module names."""
    files = dict(re.findall(r'^\s*\.file\s+(\d+) "([^"]*)"', ptx, re.M))
    labels = {
        name: bytes(int(byte) for byte in re.findall(r"\.b8 (\d+)", rows))[:-1].decode()
        for name, rows in re.findall(r"^(\$covan_action\d+):\n((?:\.b8 \d+\n)+)", ptx, re.M)
    }
    directives = re.findall(r"^\s*\.loc\s+(\d+) (\d+) \d+, function_name (\$\w+),", ptx, re.M)
    return {(files[file], int(line), labels[label]) for file, line, label in directives}


@needs_triton
def test_line_tables_name_lines_and_actions_of_the_model(program: Executable) -> None:
    actions = program.lineage.actions
    seen: list[tuple[str, set[int]]] = []
    for site in program.lineage.sites:
        if not site.kernel.startswith("fred_"):
            continue
        performed = {actions[n] for n in site.trace}
        lines = {(f.file, f.line) for a in performed for f in a.frames[:1]}
        code = program.kernel_code(site).decode()
        assert "spill" in assembled(code, "sm_80")
        told = named(code)
        assert told
        for file, line, called in told:
            assert (file, line) in lines
            assert set(called.split("+")) <= {action.name for action in performed}
        if not any("softmax" in action.name for action in performed):
            continue  # a product
        assert any("softmax" in called for _, _, called in told)
        seen.append((site.kernel, {line for file, line, _ in told if file == HERE}))
    source = Path(HERE).read_text().splitlines()
    first, last = (n for n, text in enumerate(source, 1) if "torch.softmax(x, " in text and "source" not in text)
    assert [first in lines for _, lines in seen] == [True, True, False]
    assert last in seen[2][1]
    assert seen[0][0] != seen[2][0]


@needs_triton
def test_without_provenance_only_line_tables_differ(program: Executable) -> None:
    plain = covan_mlir.compile_module(Twice(), ARGS, target="cuda:sm_80", provenance=False)

    def instructions(exe: Executable) -> set[str]:
        modules = machine_code.ptx(exe.variant.program)
        texts = [
            re.sub(r"//.*|^\s*\.(loc|file)\b.*|^\s*\.section[^}]*}", "", t.decode(), flags=re.M)
            for t in modules.values()
        ]
        # A chain that stands on two lines has a kernel for each: their names tell the lines, too.
        return {re.sub(r"(fred_\w+?)_[0-9a-f]{16}", r"\1", "\n".join(t.split())) for t in texts}

    assert instructions(plain) == instructions(program)


def test_spirv_of_a_site() -> None:
    exe = covan_mlir.compile_module(Twice(), ARGS, target="vulkan:lavapipe")
    sites = [site for site in exe.lineage.sites if site.kind == "dispatch"]
    for site in sites:
        code = exe.kernel_code(site)
        magic, version = struct.unpack_from("<2I", code)
        assert magic == 0x07230203
        assert version >> 16 == 1
        assert site.kernel.encode() + b"\0" in code
    assert len({exe.kernel_code(site) for site in sites}) == len({site.kernel for site in sites})


def test_the_compilers_own_code_has_no_matrix_instructions() -> None:
    """Some products of halves that it writes with them are wrong."""
    args = (torch.randn(3, 30, 50).half(), torch.randn(3, 30, 70).half())
    options = covan_mlir.CompileOptions(fuse_reductions=False)
    exe = covan_mlir.compile_module(TransposedProduct(), args, target="cuda:sm_90a", options=options)
    (text,) = machine_code.ptx(exe.variant.program).values()
    assert b".entry main_dispatch" in text
    assert b"mma.sync" not in text


def test_a_program_without_code_of_a_kernel() -> None:
    assert machine_code.ptx(b"\0" * 8 + b".visible .entry nothing(") == {}
    assert machine_code.spirv(struct.pack("<6I", 5, 0x07230203, 0x10000, 0, 1, 0)) == {}
    exe = covan_mlir.compile_module(lambda x: torch.cat([x, x]), (torch.randn(8),), target="vulkan:lavapipe")
    copies = [site for site in exe.lineage.sites if site.kind != "dispatch"]
    assert copies
    with pytest.raises(CovanError, match="does not say where the code"):
        exe.kernel_code(copies[0])
