"""Operands that are prepared of weights, ahead of time: the contract, the module that computes them, and models."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import iree.compiler.ir as ir
import numpy as np
import pytest
import torch
from iree.compiler.api import Session
from oracle import assert_same
from torch import Tensor, nn

import covan_mlir
from covan_mlir import CompileOptions
from covan_mlir.lowering.kernels import resources
from covan_mlir.lowering.kernels.embed import embed
from covan_mlir.lowering.kernels.kernel import Executable, Operand, Preparation, with_prepared

ROWS, WEIGHT, RESULT = Operand("x", (3, 8), "f32"), Operand("w", (32, 8), "f32"), Operand("y", (3, 32), "f32")
PACKED = Operand("w.packed", (2, 8, 16), "f32")
PACK = Preparation(
    PACKED,
    ("w",),
    """func.func private @packed(%w: tensor<32x8xf32>) -> tensor<2x8x16xf32> {
  %empty = tensor.empty() : tensor<2x8x16xf32>
  %packed = linalg.pack %w inner_dims_pos = [0] inner_tiles = [16] into %empty
    : tensor<32x8xf32> -> tensor<2x8x16xf32>
  return %packed : tensor<2x8x16xf32>
}""",
)
KIND = "(tensor<3x8xf32>, tensor<32x8xf32>) -> tensor<3x32xf32>"


def kernel(name: str) -> Executable:
    """One without code."""
    return Executable.single(name, "module {}", (ROWS, WEIGHT), (RESULT,), preparations=(PACK,))


def test_a_dispatch_reads_what_is_prepared_and_not_what_it_is_prepared_of() -> None:
    assert with_prepared((WEIGHT, ROWS), (PACK,)) == (ROWS, PACKED)
    executable = kernel("k")
    assert executable.inputs == (ROWS, WEIGHT)
    assert executable.dispatches[0].inputs == (ROWS, PACKED)
    assert Executable.from_json(executable.to_json()) == executable


@pytest.fixture
def session() -> Iterator[Session]:
    session = Session()
    with session.context, ir.Location.unknown():
        yield session


def ops(root: Any, name: str) -> list[Any]:
    """Operations of a name, in order."""
    nested: list[Any] = []

    def visit(op: Any) -> Any:
        if op.name == name:
            nested.append(op)
        return ir.WalkResult.ADVANCE

    root.walk(visit)
    return nested


def calls(*lines: str, before: str = "", arguments: str = "%w: tensor<8x32xf32>") -> str:
    """A module whose weight is a parameter that reaches a private function, transposed there, and calls in that."""
    return f"""
util.global private @weight = #flow.parameter.named<"covan"::"fc.weight"> : tensor<8x32xf32>
func.func @main(%x: tensor<3x8xf32>) -> tensor<3x32xf32> {{
  %w = util.global.load @weight : tensor<8x32xf32>
  %r = call @body(%x, %w) : (tensor<3x8xf32>, tensor<8x32xf32>) -> tensor<3x32xf32>
  return %r : tensor<3x32xf32>
}}
func.func private @body(%x: tensor<3x8xf32>, {arguments}) -> tensor<3x32xf32> {{
  {before}
  {"".join(f"%r{n} = call {line} : {KIND}" + chr(10) for n, line in enumerate(lines))}
  return %r0 : tensor<3x32xf32>
}}
func.func private @first{KIND}
func.func private @second{KIND}
"""


TRANSPOSED = """%e = tensor.empty() : tensor<32x8xf32>
  %t = linalg.transpose ins(%w : tensor<8x32xf32>) outs(%e : tensor<32x8xf32>) permutation = [1, 0]"""


def test_a_weight_is_prepared_once_for_all_that_want_it_in_one_form(session: Session) -> None:
    """Two kernels, and two ops that transpose the weight alike: one global, and one initializer with all that it takes.
    A constant is known: its global has a value."""
    again = TRANSPOSED.replace("%e", "%f").replace("%t", "%u")
    constant = "%c = arith.constant dense<2.0> : tensor<32x8xf32>"
    text = calls(
        "@first(%x, %t)", "@second(%x, %u)", "@second(%x, %c)", before="\n".join([TRANSPOSED, again, constant])
    )
    module = ir.Module.parse(text)
    assert embed(module, [kernel("first"), kernel("second")]) == {"first": 1, "second": 2}
    module.operation.verify()
    stored = [op.attributes["global"].value for op in ops(module.operation, "util.global.store")]
    assert len(stored) == 1
    (known,) = (op.attributes["sym_name"].value for op in ops(module.operation, "util.global") if "dense" in str(op))
    read = [dispatch.operands[1].owner for dispatch in ops(module.operation, "flow.dispatch")]
    assert [op.attributes["global"].value for op in read] == [stored[0], stored[0], known]
    (initializer,) = ops(module.operation, "util.initializer")
    assert [op.attributes["global"].value for op in ops(initializer, "util.global.load")] == ["weight"]
    assert len(ops(initializer, "linalg.transpose")) == len(ops(initializer, "linalg.pack")) == 1


def test_what_is_prepared_of_constants_is_known_at_once(session: Session) -> None:
    """The constant in the form that weights have: a resource."""
    held = np.random.default_rng(0).standard_normal((8, 32), np.float32)
    module = ir.Module.parse(calls("@first(%x, %t)", before=TRANSPOSED))
    body = next(op.operation for op in module.body.operations if op.attributes["sym_name"].value == "body")
    kind = ir.Type.parse("tensor<8x32xf32>")
    attribute = ir.DenseResourceElementsAttr.get_from_buffer(held.view(np.uint8), "weight", kind)
    with ir.InsertionPoint.at_block_begin(body.regions[0].blocks[0]):
        weight = ir.Operation.create("arith.constant", [kind], attributes={"value": attribute}).result
    body.regions[0].blocks[0].arguments[1].replace_all_uses_with(weight)
    embed(module, [kernel("first")])
    module.operation.verify()
    assert not ops(module.operation, "util.initializer")
    (known,) = (
        op for op in ops(module.operation, "util.global") if "initial_value" in op.attributes and "dense" in str(op)
    )
    panels = np.frombuffer(resources.data(known.attributes["initial_value"], held.nbytes), np.float32)
    np.testing.assert_array_equal(panels.reshape(2, 8, 16), held.reshape(8, 2, 16).transpose(1, 0, 2))


def plain(name: str) -> Executable:
    """One that prepares nothing."""
    return Executable.single(name, "module {}", (ROWS, WEIGHT), (RESULT,))


RESHAPED = "tensor<32x8x1xf32> into tensor<32x8xf32>"


def test_a_constant_that_is_reshaped_is_one_of_the_other_shape(session: Session) -> None:
    """Of each constant one global, also for two kernels; what the reshape read has no reader left."""
    before = f"""%c = arith.constant dense<2.0> : tensor<32x8x1xf32>
  %a = tensor.collapse_shape %c [[0], [1, 2]] : {RESHAPED}
  %b = tensor.collapse_shape %c [[0], [1, 2]] : {RESHAPED}"""
    module = ir.Module.parse(calls("@first(%x, %a)", "@second(%x, %b)", before=before))
    embed(module, [plain("first"), plain("second")])
    module.operation.verify()
    (known,) = (op.attributes["sym_name"].value for op in ops(module.operation, "util.global") if "dense" in str(op))
    read = [dispatch.operands[1].owner for dispatch in ops(module.operation, "flow.dispatch")]
    assert [op.attributes["global"].value for op in read] == [known, known]
    assert not any([*op.result.uses] for op in ops(module.operation, "tensor.collapse_shape"))


def test_a_parameter_that_is_reshaped_stays_where_it_is(session: Session) -> None:
    """As a global of its own it would be in memory twice."""
    before = f"%a = tensor.collapse_shape %w [[0], [1, 2]] : {RESHAPED}"
    text = calls("@first(%x, %a)", before=before, arguments="%w: tensor<32x8x1xf32>")
    module = ir.Module.parse(text.replace("tensor<8x32xf32>", "tensor<32x8x1xf32>"))
    embed(module, [plain("first")])
    module.operation.verify()
    (dispatch,) = ops(module.operation, "flow.dispatch")
    assert dispatch.operands[1].owner.name == "tensor.collapse_shape"
    assert not ops(module.operation, "util.initializer")


def test_ops_that_read_values_from_outside_of_their_bodies_are_copied_with_these(session: Session) -> None:
    scaled = """%two = arith.constant 2.0 : f32
  %e = tensor.empty() : tensor<32x8xf32>
  %t = linalg.generic {indexing_maps = [affine_map<(i, j) -> (j, i)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]} ins(%w : tensor<8x32xf32>) outs(%e : tensor<32x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %m = arith.mulf %in, %two : f32
    linalg.yield %m : f32
  } -> tensor<32x8xf32>"""
    module = ir.Module.parse(calls("@first(%x, %t)", before=scaled))
    embed(module, [kernel("first")])
    module.operation.verify()
    (initializer,) = ops(module.operation, "util.initializer")
    (product,) = ops(initializer, "arith.mulf")
    assert product.operands[1].owner.name == "arith.constant"


def test_what_varies_after_all_is_prepared_at_each_call(session: Session, caplog: pytest.LogCaptureFixture) -> None:
    once = "call @body(%x, %w) : (tensor<3x8xf32>, tensor<8x32xf32>) -> tensor<3x32xf32>"
    text = calls("@first(%x, %t)", before=TRANSPOSED).replace(once, f"{once}\n  %again = {once}")
    module = ir.Module.parse(text)
    with caplog.at_level(logging.WARNING):
        embed(module, [kernel("first")])
    module.operation.verify()
    assert "not called from one place alone" in caplog.text
    assert not ops(module.operation, "util.initializer")
    (dispatch,) = ops(module.operation, "flow.dispatch")
    assert dispatch.operands[1].owner.name == "linalg.pack"


class Layers(nn.Module):
    """Products with one weight twice, with one that an embedding reads as well, and with one that is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(192, 512)
        self.first, self.second = nn.Linear(512, 512), nn.Linear(512, 512)
        self.second.weight = self.first.weight
        self.scaled = nn.Linear(512, 768)
        self.head = nn.Linear(512, 192, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        x = self.second(torch.tanh(self.first(self.embedding(ids))))
        return self.head(x), nn.functional.linear(x, self.scaled.weight * 0.5, self.scaled.bias)


@pytest.mark.parametrize("external", [False, True])
def test_models_with_prepared_weights(external: bool) -> None:
    torch.manual_seed(0)
    model, ids = Layers().eval(), torch.randint(0, 192, (24,))
    limit = 1024 if external else 1 << 30
    exe = covan_mlir.compile_module(
        model, (ids,), options=CompileOptions(fuse_reductions="always", external_weight_bytes=limit)
    )
    assert_same(exe(ids), model(ids), depth=3)
    schedules = [record.schedule for record in exe.lineage.fusions if record.kernel]
    # The last two are one kernel.
    packed = [own["packed"] for schedule in schedules for own in schedule.get("products", [schedule])]
    assert len(schedules) == 3
    # The embedding reads its weight as it is; parameters would be in memory twice.
    assert packed == ([False] * 4 if external else [True, True, False, True])
    loading = [site for site in exe.lineage.sites if site.phase == "init"]
    # Constants are packed when the program is compiled.
    assert not [site for site in loading if "pack" in site.kernel]
    assert exe.verify()
