"""The compiler's pipeline as text: covan-opt makes the same IR of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from command_line import said
from limits import part
from oracle import assert_same
from torch import nn
from torch_mlir import ir

import covan_mlir
import covan_mlir.lowering.kernels.passes  # makes them known
from covan_mlir import CompileError, CompileOptions, dialects
from covan_mlir.compilation.messages import compile_error
from covan_mlir.compile import pipeline_text
from covan_mlir.frontend.capture import capture
from covan_mlir.frontend.importer import import_program
from covan_mlir.lowering import pool
from covan_mlir.lowering.job import JobError, compile_job
from covan_mlir.lowering.kernels.passes.fred_raise import FredRaise
from covan_mlir.lowering.request import Job
from covan_mlir.lowering.result import CompilerDiagnostic, JobResult, StepFailure
from covan_mlir.machine import host
from covan_mlir.passes.framework.interface import Pass, PassFailure
from covan_mlir.passes.framework.pipeline import PassError, parse_pipeline
from covan_mlir.passes.framework.place import visited
from covan_mlir.passes.linalg_name_scatters import LinalgNameScatters
from covan_mlir.passes.linalg_sink_transpose import LinalgSinkTranspose

# What the compiler has before the step into IREE, in a file beside this one.
STEPS = """
import os

def keep(state):
    with open(os.environ["COVAN_TEST_KEPT"], "w") as file:
        file.write(state.module.operation.get_asm(enable_debug_info=True))
"""


class Head(nn.Module):
    """A kernel that pays, a chain that does not, and a product with a weight, with an open dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(512)
        self.out = nn.Linear(512, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.out(self.norm(x)), -1)[:4].sum(-1)


def opt(module: bytes, pipeline: str, folder: Path) -> str:
    """What covan-opt makes of a module, with locations."""
    (folder / "imported.mlirbc").write_bytes(module)
    tool = [sys.executable, "-m", "covan_mlir.tools.opt", str(folder / "imported.mlirbc"), "--mlir-print-debuginfo"]
    done = subprocess.run([*tool, f"--pass-pipeline={pipeline}"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "target", part(["cpu", "cpu:x86_64-linux-gnu:znver4", "vulkan:lavapipe", "cuda:sm_90"], kept=["cpu", "cuda:sm_90"])
)
def test_what_is_printed_is_what_runs(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if target.startswith("cuda"):
        pytest.importorskip("triton")
    (tmp_path / "steps.py").write_text(STEPS)
    monkeypatch.setenv("COVAN_TEST_KEPT", str(tmp_path / "kept.mlir"))
    covan_mlir.lowering.pool.shutdown()  # the next worker sees the environment
    model, args = Head().eval(), (torch.randn(2048, 512),)
    shapes = {"x": {0: torch.export.Dim.DYNAMIC}}
    extra = (("fred-kernels", f"{tmp_path / 'steps.py'}:keep"),)
    options = CompileOptions(extra_steps=extra, fuse_reductions="always", external_weight_bytes=1)
    covan_mlir.compile_module(model, args, target=target, dynamic_shapes=shapes, options=options)
    covan_mlir.lowering.pool.shutdown()

    text = pipeline_text(model, args, target=target, dynamic_shapes=shapes, options=options)
    imported = import_program(capture(model, args, None, shapes), provenance=True, external_weight_bytes=1)
    printed = opt(imported.bytecode, text, tmp_path)
    assert "covan.kernel" in printed
    with ir.Context():
        assert str(ir.Module.parse(printed)) == str(ir.Module.parse((tmp_path / "kept.mlir").read_text()))


# Makes traces false as a pass might: all ids are still there, so only a comparison with the table tells.
SWAPPING = """
from torch_mlir import ir
from covan_mlir.dialects.prov_locations import ids, rewrite_locations

def swap(state):
    first, second = [op.operation for op in state.module.body.operations[0].body.blocks[0] if op.name == "fred.chain"]
    one, other = first.location, second.location
    theirs = {one.attr: other, other.attr: one}
    inner = [[op.location for op in chain.regions[0].blocks[0] if ids(op.location)] for chain in (first, second)]
    theirs |= {a.attr: b for a, b in zip(*inner)} | {b.attr: a for a, b in zip(*inner)}
    rewrite_locations(state.module.operation, lambda location: theirs.get(location.attr, location))
"""


class Norms(nn.Module):
    """Two chains that read different arguments."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.softmax(x, -1), torch.softmax(y, -1)


SOFTMAX = Norms.forward.__code__.co_firstlineno + 1


def test_false_traces_are_caught(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(SWAPPING)
    args = (torch.randn(64, 128), torch.randn(64, 128))
    options = CompileOptions(extra_steps=(("fred-raise", f"{tmp_path / 'steps.py'}:swap"),), fuse_reductions="always")
    with pytest.raises(CompileError) as raised:
        covan_mlir.compile_module(Norms(), args, options=options)
    said = [(told.message, told.file) for told in raised.value.diagnostics]
    assert [file for message, file in said if "is returned as the value of div" in message] == [__file__, __file__]
    assert "pass 'prov-check'" in said[-1][0]


@pytest.mark.loses_kernels
def test_a_pass_that_fails_costs_kernels_and_not_the_program(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(self: FredRaise, op: ir.Operation) -> None:
        raise PassFailure("it is broken", op.location)

    def here(bytecode: bytes, job: Job, **kwargs: object) -> tuple[JobResult, bytes]:
        return compile_job(bytecode, job, lambda step: None)

    monkeypatch.setattr(FredRaise, "run", fails)
    monkeypatch.setattr(pool, "compile_program", here)
    monkeypatch.setattr(host, "assume", lambda machine: None)  # a job's machine is for its worker
    args = (torch.randn(64, 128), torch.randn(64, 128))
    exe = covan_mlir.compile_module(Norms(), args)
    assert_same(exe(*args), Norms()(*args))
    assert exe.verify()
    assert not exe.lineage.fusions
    assert "no kernels of covan's own, for fred-raise failed" in caplog.text
    assert "it is broken" in caplog.text
    with pytest.raises(JobError):
        covan_mlir.compile_module(Norms(), args, options=CompileOptions(fuse_reductions="always"))


@pytest.mark.loses_kernels
@pytest.mark.parametrize(
    ("broken", "frontend", "told"),
    [
        (LinalgSinkTranspose, "linalg", "no kernels of covan's own, for torch-to-linalg failed at softmax"),
        (LinalgNameScatters, "torch", f"{__file__}:{SOFTMAX}: covan's pass linalg-name-scatters failed at softmax"),
    ],
)
def test_a_pass_of_ours_that_crashes_is_warned_of(
    broken: type[Pass],
    frontend: str,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def crashes(self: Pass, op: ir.Operation) -> None:
        for inner in visited(op.regions[0].blocks[0]):
            if inner.name == "linalg.generic":
                raise KeyError("nothing is called that")

    def here(bytecode: bytes, job: Job, **kwargs: object) -> tuple[JobResult, bytes]:
        return compile_job(bytecode, job, lambda step: None)

    monkeypatch.setattr(broken, "run", crashes)
    monkeypatch.setattr(pool, "compile_program", here)
    monkeypatch.setattr(host, "assume", lambda machine: None)  # a job's machine is for its worker
    args = (torch.randn(64, 128), torch.randn(64, 128))
    exe = covan_mlir.compile_module(Norms(), args)
    assert_same(exe(*args), Norms()(*args))
    assert exe.info["frontend"] == frontend
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told in warning
    assert "raised KeyError: 'nothing is called that'" in warning


def test_a_pass_of_ours_that_fails_for_good_is_our_mistake() -> None:
    """Who asks for one way through is told that the model is not why there is none."""
    diagnostic = CompilerDiagnostic("error", "pass 'linalg-name-scatters' raised KeyError: 'x'", (), "model.py", 7)
    failure = StepFailure("torch-to-linalg", "it failed", (diagnostic,), own_pass="linalg-name-scatters")
    told = str(compile_error(pool.WorkerError(failure), ()))
    assert told.startswith("model.py:7: covan's pass linalg-name-scatters failed: ")
    assert "a mistake of covan's" in told
    assert "frontend='torch'" in told


def test_command_prints_it(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "model.py").write_text("import torch\n\ndef make():\n    return torch.nn.Softmax(-1), torch.randn(4, 8)\n")
    lines = said(capsys, "compile", "model.py:make", "--print-pipeline", "-o", "out.covan").splitlines()
    assert lines[0] == "builtin.module("
    passes = [line.strip(" ,").partition("{")[0] for line in lines[1 : lines.index(")")]]
    assert passes == [
        "prov-drop-table",
        "func.func(torch-match-quantized-custom-ops)",
        "torchdynamo-export-to-torch-backend-pipeline",
        "torch-return-bytes",
        "torch-backend-to-linalg-on-tensors-backend-pipeline",
        "func.func(linalg-name-scatters)",
        "func.func(linalg-narrow-weights)",
        "func.func(linalg-rematerialize)",
        "func.func(linalg-sink-transpose)",
        "func.func(linalg-recompute-products)",
        "prov-baseline",
        "func.func(fred-raise",
        "prov-check",
        "func.func(kir-raise,kir-freeze)",
        "fred-kernels",
        "kir-check",
        "func.func(kir-lower)",
        "prov-check",
        "func.func(linalg-cut-windows)",
        "func.func(linalg-rotate-halves)",
        "prov-lower-locations",
    ]
    assert lines[lines.index(")") + 1 :][:2] == ["// iree:import", "// iree:embed"]
    assert lines[-1] == "// iree:end"
    assert not (here / "out.covan").exists()


def test_no_name_stands_for_two_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """However unlikely: calls go by names, so kernels that are not the same must not share one."""
    from covan_mlir.lowering.kernels import choice

    monkeypatch.setattr(choice, "symbol", lambda chain, lines=(): "fred_same")
    text = """
      #rows = affine_map<(i, j) -> (i, j)>
      #row = affine_map<(i, j) -> (i)>
      func.func @two(%a: tensor<8x16xf32>, %b: tensor<8x32xf32>) -> (tensor<8xf32>, tensor<8xf32>) {
        %zero = arith.constant 0.0 : f32
        %e = tensor.empty() : tensor<8xf32>
        %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
        %r = linalg.generic {indexing_maps = [#rows, #row], iterator_types = ["parallel", "reduction"]}
            ins(%a : tensor<8x16xf32>) outs(%f : tensor<8xf32>) {
        ^bb0(%x: f32, %y: f32):
          %s = arith.addf %x, %y : f32
          linalg.yield %s : f32
        } -> tensor<8xf32>
        %q = linalg.generic {indexing_maps = [#rows, #row], iterator_types = ["parallel", "reduction"]}
            ins(%b : tensor<8x32xf32>) outs(%f : tensor<8xf32>) {
        ^bb0(%x: f32, %y: f32):
          %s = arith.addf %x, %y : f32
          linalg.yield %s : f32
        } -> tensor<8xf32>
        return %r, %q : tensor<8xf32>, tensor<8xf32>
      }"""
    context = ir.Context()
    dialects.load(context)
    options = "{target=cpu fuse=always}"
    pipeline = f"builtin.module(func.func(fred-raise{options}),fred-kernels{options})"
    with context, pytest.raises(PassError, match="two kernels are called fred_same"):
        parse_pipeline(pipeline, context).run(ir.Module.parse(text))
