"""Kernels' machine code, compiled apart: it computes what it computes within the program, and is kept by its text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from limits import part
from torch import Tensor, nn

import covan_mlir
from covan_mlir import CompileOptions
from covan_mlir.lowering.cache import answers
from covan_mlir.lowering.cache.store import Store
from covan_mlir.lowering.kernels.cpu import machine_code
from covan_mlir.lowering.kernels.cpu.executable import shell
from covan_mlir.lowering.kernels.cpu.machine_code import MachineCode
from covan_mlir.lowering.kernels.kernel import Operand
from covan_mlir.lowering.pipeline import StepError
from covan_mlir.lowering.targets import parse

FLAGS = parse("cpu").compiler_flags(double=True)


class Block(nn.Module):
    """Products, a convolution by Winograd's filtering (two dispatches), one by taps, rows with functions, a gather."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Conv2d(16, 16, 3, padding=1)
        self.deep = nn.Conv2d(16, 16, 3, padding=1, groups=16)
        self.linear = nn.Linear(16, 40)

    def forward(self, x: Tensor) -> Tensor:
        y = F.gelu(self.deep(F.relu(self.wide(x)))).flatten(2).mT
        return self.linear(y).softmax(-1) + y.sigmoid().sum(-1, keepdim=True).erf()


def results(model: Callable[[Tensor], Tensor], x: Tensor, reproducer: Path | None) -> tuple[Tensor, float]:
    """What a program gives, and how many seconds it waited for machine code."""
    options = CompileOptions(
        fuse_reductions="always", cache=False, reproducer=None if reproducer is None else str(reproducer)
    )
    exe = covan_mlir.compile_module(model, (x,), options=options)
    assert any(site.kernel.startswith("fred_") for site in exe.lineage.sites)
    return exe(x), exe.info["seconds"].get("iree:machine-code", 0.0)


DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


@pytest.mark.parametrize("dtype", part(DTYPES, kept=DTYPES[:1]), ids=str)
def test_the_same_numbers_as_within_the_program(dtype: torch.dtype, tmp_path: Path) -> None:
    """Who keeps what a failing step was given wants the whole program: nothing is compiled apart for him."""
    torch.manual_seed(0)
    model, x = Block().eval().to(dtype), torch.randn(1, 16, 24, 24).to(dtype)
    apart, waited = results(model, x, None)
    within, not_at_all = results(model, x, tmp_path / "failing.mlir")
    assert waited > 0 == not_at_all
    assert torch.equal(apart, within)


def test_the_same_numbers_of_sizes_that_are_open(tmp_path: Path) -> None:
    model, x = nn.Sequential(nn.Linear(24, 48), nn.Softmax(-1), nn.LayerNorm(48)).eval(), torch.randn(5, 24)
    programs = [
        covan_mlir.compile_module(
            model,
            (x,),
            dynamic_shapes=({0: torch.export.Dim.DYNAMIC},),
            options=CompileOptions(fuse_reductions="always", cache=False, reproducer=kept),
        )
        for kept in (None, str(tmp_path / "failing.mlir"))
    ]
    for rows in (2, 5, 17, 300):
        given = torch.randn(rows, 24)
        first, second = (exe(given) for exe in programs)
        assert torch.equal(first, second)


def test_the_same_program_each_time(tmp_path: Path) -> None:
    """Nothing of the files that are linked is left in it."""
    model, x = nn.Sequential(nn.Linear(24, 48), nn.Softmax(-1)).eval(), torch.randn(5, 24)
    options = CompileOptions(fuse_reductions="always", cache=False)
    programs = {covan_mlir.compile_module(model, (x,), options=options).variant.program for _ in range(2)}
    assert len(programs) == 1


def text(name: str) -> str:
    return shell(name, (Operand("x", (4,), "f32"),), (Operand("y", (4,), "f32"),))


def code(folder: Path | None, *names: str) -> dict[str, bytes]:
    """Object files of kernels of some names that do nothing."""
    compiler = MachineCode(FLAGS, "" if folder is None else str(folder))
    try:
        for name in names:
            compiler.begin(name, text(name))
        return {name: file.read_bytes() for name, file in compiler.files().items()}
    finally:
        compiler.close()


def test_kept_by_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "kernels"
    first = code(folder, "one", "two")
    assert first == code(None, "one", "two")
    assert len(Store(folder).sizes()) == 2
    asked: list[str] = []
    compile_kernel = machine_code.compile_kernel

    def counted(name: str, *rest: object) -> None:
        asked.append(name)
        compile_kernel(name, *rest)  # type: ignore[arg-type]  # as it was given

    monkeypatch.setattr(machine_code, "compile_kernel", counted)
    again = code(folder, "one", "two", "three", "three")
    assert asked == ["three"]
    assert {name: again[name] for name in first} == first


def test_of_another_target_or_damaged_is_compiled_again(tmp_path: Path) -> None:
    folder = tmp_path / "kernels"
    first = code(folder, "one")
    for file in folder.iterdir():
        file.write_bytes(file.read_bytes()[:-1] + b"?")
    assert code(folder, "one") == first
    other = MachineCode(parse("cpu:znver2").compiler_flags(double=True), str(folder))
    other.begin("one", text("one"))
    other.files()
    other.close()
    assert len(Store(folder).sizes()) == 2


def test_a_kernel_that_the_compiler_refuses() -> None:
    """More memory than a stack frame may have."""
    body = """%large = memref.alloca() : memref<1000000xf32>
        %v = memref.load %b0[%c0] : memref<4xf32>
        memref.store %v, %large[%c0] : memref<1000000xf32>"""
    compiler = MachineCode(FLAGS, "")
    compiler.begin("one", text("one"))
    compiler.begin("bad", text("bad").replace("return\n      }", f"{body}\n        return\n      }}"))
    with pytest.raises(StepError, match="stack"):
        compiler.files()
    compiler.close()


def test_a_kernel_that_calls_a_library_is_left_to_the_program() -> None:
    """A processor without fused multiply-adds."""
    body = """%v = memref.load %b0[%c0] : memref<4xf32>
        %w = math.fma %v, %v, %v : f32
        memref.store %w, %b1[%c0] : memref<4xf32>"""
    compiler = MachineCode(parse("cpu:x86_64-linux-gnu").compiler_flags(double=True), "")
    compiler.begin("one", text("one"))
    compiler.begin("fused", text("fused").replace("return\n      }", f"{body}\n        return\n      }}"))
    assert list(compiler.files()) == ["one"]
    compiler.close()


def test_where_it_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = nn.Softmax(-1), torch.randn(3, 41)
    folder = tmp_path / "elsewhere"

    def kept(**options: bool) -> int:
        covan_mlir.compile_module(
            model, (x,), options=CompileOptions(fuse_reductions="always", timeout=900.0, **options)
        )
        return len(Store(folder).sizes())

    monkeypatch.setenv(answers.KERNELS_VARIABLE, str(folder))
    assert kept(cache=False) == 0
    assert kept() == 1
    monkeypatch.setenv(answers.KERNELS_VARIABLE, answers.OFF)
    assert answers.kernels() is None
    monkeypatch.delenv(answers.KERNELS_VARIABLE)
    assert answers.kernels() is None  # nor are programs
    monkeypatch.setenv(answers.VARIABLE, str(tmp_path))
    store = answers.kernels()
    assert store is not None
    assert store.folder == tmp_path / "kernels"
