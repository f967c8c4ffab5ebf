"""Operators of compiled models: all that computes with steps is one, and computes what the interpreter says."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from dense_chains import assumed
from lowered import linalg
from step_chains import Grid
from test_integer_products import HOST
from torch import Tensor, nn
from torch.nn import functional as F
from torch_mlir import ir

import covan_mlir
from covan_mlir import Attachment, CompileOptions
from covan_mlir.kir.interpretation import interpret
from covan_mlir.kir.operators import Kind
from covan_mlir.lowering import stages
from covan_mlir.lowering.kernels.declarations import declared
from covan_mlir.lowering.kernels.standalone import compile_kernels
from covan_mlir.passes.framework.pipeline import parse_pipeline
from covan_mlir.provenance.explain_fusion import fusions_json, fusions_text, left_over

LEFT, RIGHT, GIVEN = Grid(0.0625, 121), Grid(0.03, -5, torch.int8), Grid(0.0501, 7, torch.int8)


class Function(nn.Module):
    def __init__(self, compute: Callable[..., Tensor]) -> None:
        super().__init__()
        self.compute = compute

    def forward(self, *args: Tensor) -> Tensor:
        return self.compute(*args)


@dataclass(frozen=True)
class Case:
    """A function of steps.

    Attributes:
        steps: how far the machine's functions may be from those of `interpret`.
    """

    kind: Kind
    compute: Callable[..., Tensor]
    inputs: tuple[Tensor, ...]
    steps: int = 0


def case(kind: Kind, real: Callable[..., Tensor], *shapes: tuple[int, ...], steps: int = 0) -> Case:
    """Steps in, floats, steps out."""
    grids = (LEFT, RIGHT)[: len(shapes)]

    def compute(*args: Tensor) -> Tensor:
        return GIVEN.quantize(real(*(grid.dequantize(arg) for grid, arg in zip(grids, args, strict=True))))

    inputs = tuple(grid.steps(shape, n) for n, (grid, shape) in enumerate(zip(grids, shapes, strict=True)))
    return Case(kind, compute, inputs, steps)


CASES = [
    case("add", torch.add, (6, 40), (6, 40)),
    case("mul", torch.mul, (6, 40), (6, 40)),
    case("requantize", lambda x: x, (6, 40)),
    case("activation", F.relu, (6, 40)),
    case("activation", F.hardswish, (6, 40)),
    case("activation", F.silu, (6, 40), steps=1),
    case("activation", F.gelu, (6, 40), steps=1),
    case("softmax", lambda x: torch.softmax(x, -1), (64, 48), steps=1),
    case("norm", lambda x: F.layer_norm(x, (48,)), (64, 48), steps=1),
    Case("quantize", GIVEN.quantize, (torch.randn(6, 40, generator=torch.Generator().manual_seed(0)) * 5,)),
    Case("dequantize", RIGHT.dequantize, (RIGHT.steps((6, 40), 0),)),
    Case(
        "pooling",
        lambda x: GIVEN.quantize(F.max_pool2d(x, 3, 2, 1)),
        (torch.randn(2, 3, 9, 11, generator=torch.Generator().manual_seed(0)) * 5,),
    ),
    Case(
        "concat",
        lambda x, y: GIVEN.quantize(torch.cat([x, y], 1)),
        tuple(torch.randn(3, n, 5, generator=torch.Generator().manual_seed(n)) * 5 for n in (4, 6)),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[f"{n}-{case.kind}" for n, case in enumerate(CASES)])
def test_machines_compute_what_operators_mean(case: Case) -> None:
    """Both those that are kernels and those that another compiler compiled; results are those of torch, too."""
    options = CompileOptions(fuse_reductions="always")
    model = Function(case.compute)
    exe = covan_mlir.compile_module(model, case.inputs, options=options)
    (placed,) = exe.lineage.operators()
    assert placed.operator.kind == case.kind
    assert len(placed.operator.table) == (256 if case.kind == "activation" else 0)
    arrays = {
        value.name: given.numpy().reshape([placed.chain.known_sizes[axis] for axis in value.axes])
        for value, given in zip(placed.chain.inputs, case.inputs, strict=True)
    }
    (want,) = interpret(placed.chain, arrays).values()
    got, eager = (np.asarray(result).astype(np.int64).ravel() for result in (exe(*case.inputs), model(*case.inputs)))
    assert np.abs(got - want.astype(np.int64).ravel()).max() <= case.steps
    assert np.abs(eager - want.astype(np.int64).ravel()).max() <= case.steps
    assert exe.verify()


class Network(nn.Module):
    """Convolutions with a residual and a concatenation, pooled; all of it in steps."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = (
            nn.Conv2d(n, 16, k, padding=k // 2) for n, k in ((8, 3), (16, 1), (32, 1))
        )
        self.head = nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.first(x))
        x = F.max_pool2d(x + F.hardswish(self.second(x)), 2)
        x = F.relu(self.third(torch.cat([x, torch.sigmoid(x)], 1)))
        scores: Tensor = self.head(F.avg_pool2d(x, 2).mean((2, 3)))
        return scores


@pytest.fixture(scope="module")
def quantized() -> covan_mlir.Quantized:
    torch.manual_seed(0)
    return covan_mlir.quantize(Network().eval(), [(torch.randn(1, 8, 12, 12),) for _ in range(4)])


def test_all_of_a_model_is_operators(
    quantized: covan_mlir.Quantized, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assumed(HOST, tmp_path, monkeypatch)
    exe = quantized.compile()
    placed = exe.lineage.operators()
    assert {one.site.id for one in placed} == {site.id for site in exe.lineage.sites if site.phase == "call"}
    kinds = Counter(one.operator.kind for one in placed)
    assert kinds.keys() >= {"quantize", "convolution", "pooling", "concat", "linear"}, kinds
    assert "kernel" not in kinds, kinds
    assert exe.verify()
    exe.save(tmp_path / "network.covan")
    loaded = covan_mlir.load(tmp_path / "network.covan").lineage.operators()
    assert [(one.operator, one.site.id) for one in loaded] == [(one.operator, one.site.id) for one in placed]


def test_more_tensors_than_an_operator_reads_stay_apart() -> None:
    def join(*tensors: Tensor) -> Tensor:
        return GIVEN.quantize(torch.cat(tensors, 1))

    inputs = tuple(torch.randn(3, 4, generator=torch.Generator().manual_seed(n)) for n in range(30))
    exe = covan_mlir.compile_module(Function(join), inputs)
    assert exe.lineage.operators() == ()
    assert torch.equal(exe(*inputs), join(*inputs))


def doubled(x: Tensor) -> Tensor:
    return (x * 2).to(torch.int8)


def test_attached_operators_are_part_of_operators(quantized: covan_mlir.Quantized) -> None:
    """Of one that gives steps, or one of their own; and people are told."""
    exe = quantized.compile(options=CompileOptions(attach={"max_pool2d": Attachment(doubled, name="twice")}))
    carrying = [one for one in exe.lineage.operators() if one.attached]
    assert {name for one in carrying for name in one.attached} == {"twice"}
    assert all(any(action.name.startswith("twice_") for action in one.actions) for one in carrying)
    left = left_over(exe.lineage, exe.lineage.actions)
    text = fusions_text(exe.lineage, exe.lineage.fusions, left=left)
    assert "attached twice" in text
    assert "operator quantize: result 0 in steps 0 to 255" in text
    rows = fusions_json(exe.lineage, exe.lineage.fusions, left=left)
    assert ["twice"] in [row["operator"].get("attached") for row in rows if "operator" in row]


@pytest.fixture
def raised(quantized: covan_mlir.Quantized, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The model behind ``fred-raise``, with locations."""
    assumed(HOST, tmp_path, monkeypatch)
    module = linalg(quantized.exported, (torch.randn(1, 8, 12, 12),))
    parse_pipeline("builtin.module(func.func(fred-raise{target=cpu fuse=always}))").run(module)
    text: str = module.operation.get_asm(enable_debug_info=True)
    return text


def after(text: str, passes: str) -> ir.Module:
    context = ir.Context()
    covan_mlir.dialects.load(context)
    module = ir.Module.parse(text, context)
    parse_pipeline(f"builtin.module({passes})").run(module)
    return module


def test_what_is_left_is_left_as_it_was(raised: str) -> None:
    """Each op that no kernel takes in stands there again, with the same operands and where it comes from."""
    before, behind = (
        after(raised, "cse"),
        after(raised, "cse,func.func(kir-raise,kir-freeze),kir-check,func.func(kir-lower)"),
    )
    counted = []
    for module in (before, behind):
        stages.take_off(module)
        lines = module.operation.get_asm(enable_debug_info=True, use_local_scope=True).splitlines()
        counted.append(Counter(re.sub(r"%\w+", "%", line) for line in lines))
    assert counted[0] == counted[1]


def test_machine_code_is_the_same_without_provenance(raised: str) -> None:
    codes = []
    for strip in ("", "kir-strip,", "prov-strip,"):
        module = after(raised, f"func.func(kir-raise),{strip}fred-kernels{{target=cpu fuse=always}}")
        kernels = [one.executable for one in declared(module)]
        assert len(kernels) > 3
        codes.append((kernels, compile_kernels(kernels)))
    assert codes[0] == codes[1] == codes[2]
