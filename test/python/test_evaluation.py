"""What weights are prepared in: computed by numpy as IREE's own code computes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import iree.compiler.ir as ir
import iree.runtime as rt
import ml_dtypes
import numpy as np
import pytest
from iree.compiler.api import Session

from covan_mlir.lowering.kernels import evaluation, resources
from covan_mlir.lowering.kernels.standalone import compile_text

PACKED = """(%w: tensor<3x21x5xf32>) -> tensor<3x2x5x16xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<3x2x5x16xf32>
  %packed = linalg.pack %w padding_value(%zero : f32) outer_dims_perm = [0, 1, 2] inner_dims_pos = [1]
    inner_tiles = [16] into %empty : tensor<3x21x5xf32> -> tensor<3x2x5x16xf32>
  return %packed : tensor<3x2x5x16xf32>
}"""
TILED = """(%w: tensor<20x33xf32>) -> tensor<5x5x4x8xf32> {
  %one = arith.constant 1.0 : f32
  %empty = tensor.empty() : tensor<5x5x4x8xf32>
  %packed = linalg.pack %w padding_value(%one : f32) outer_dims_perm = [1, 0] inner_dims_pos = [0, 1]
    inner_tiles = [4, 8] into %empty : tensor<20x33xf32> -> tensor<5x5x4x8xf32>
  return %packed : tensor<5x5x4x8xf32>
}"""
VIEWED = """(%w: tensor<6x4xf32>) -> tensor<2x5x2x3xf32> {
  %one = arith.constant 1.0 : f32
  %two = arith.constant 2.0 : f32
  %padded = tensor.pad %w low[0, 1] high[0, 0] {
  ^bb0(%i: index, %j: index):
    tensor.yield %one : f32
  } : tensor<6x4xf32> to tensor<6x5xf32>
  %empty = tensor.empty() : tensor<5x6xf32>
  %turned = linalg.transpose ins(%padded : tensor<6x5xf32>) outs(%empty : tensor<5x6xf32>) permutation = [1, 0]
  %split = tensor.expand_shape %turned [[0], [1, 2, 3]] output_shape [5, 2, 1, 3]
    : tensor<5x6xf32> into tensor<5x2x1x3xf32>
  %flat = tensor.collapse_shape %split [[0], [1], [2, 3]] : tensor<5x2x1x3xf32> into tensor<5x2x3xf32>
  %scales = arith.constant dense<[0.5, 4.0]> : tensor<2xf32>
  %out = tensor.empty() : tensor<2x5x2x3xf32>
  %scaled = linalg.generic {indexing_maps = [affine_map<(a, b, c, d) -> (b, c, d)>, affine_map<(a, b, c, d) -> (a)>,
      affine_map<(a, b, c, d) -> (a, b, c, d)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
      ins(%flat, %scales : tensor<5x2x3xf32>, tensor<2xf32>) outs(%out : tensor<2x5x2x3xf32>) {
  ^bb0(%x: f32, %s: f32, %o: f32):
    %m = arith.mulf %x, %s : f32
    %r = arith.subf %m, %two : f32
    linalg.yield %r : f32
  } -> tensor<2x5x2x3xf32>
  return %scaled : tensor<2x5x2x3xf32>
}"""
TRANSFORMED = """(%w: tensor<3x4x5xf32>) -> tensor<2x4xf32> {
  %zero = arith.constant 0.0 : f64
  %matrix = arith.constant dense<[[1.0, 0.5, -0.25], [0.75, 1.5, 2.0]]> : tensor<2x3xf64>
  %empty = tensor.empty() : tensor<2x4xf64>
  %none = linalg.fill ins(%zero : f64) outs(%empty : tensor<2x4xf64>) -> tensor<2x4xf64>
  %sum = linalg.generic {indexing_maps = [affine_map<(p, c, r, s) -> (p, r)>, affine_map<(p, c, r, s) -> (r, c, s)>,
      affine_map<(p, c, r, s) -> (p, c)>], iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%matrix, %w : tensor<2x3xf64>, tensor<3x4x5xf32>) outs(%none : tensor<2x4xf64>) {
  ^bb0(%m: f64, %x: f32, %total: f64):
    %wide = arith.extf %x : f32 to f64
    %term = arith.mulf %m, %wide : f64
    %next = arith.addf %total, %term : f64
    linalg.yield %next : f64
  } -> tensor<2x4xf64>
  %out = tensor.empty() : tensor<2x4xf32>
  %rounded = linalg.generic {indexing_maps = [affine_map<(p, c) -> (p, c)>, affine_map<(p, c) -> (p, c)>],
      iterator_types = ["parallel", "parallel"]} ins(%sum : tensor<2x4xf64>) outs(%out : tensor<2x4xf32>) {
  ^bb0(%x: f64, %o: f32):
    %n = arith.truncf %x : f64 to f32
    linalg.yield %n : f32
  } -> tensor<2x4xf32>
  return %rounded : tensor<2x4xf32>
}"""
MAXIMUM = """(%w: tensor<3x4xf32>) -> tensor<3xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<3xf32>
  %none = linalg.fill ins(%zero : f32) outs(%empty : tensor<3xf32>) -> tensor<3xf32>
  %most = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a, b)>, affine_map<(a, b) -> (a)>],
      iterator_types = ["parallel", "reduction"]} ins(%w : tensor<3x4xf32>) outs(%none : tensor<3xf32>) {
  ^bb0(%x: f32, %m: f32):
    %n = arith.maximumf %x, %m : f32
    linalg.yield %n : f32
  } -> tensor<3xf32>
  return %most : tensor<3xf32>
}"""


@pytest.fixture
def session() -> Iterator[Session]:
    session = Session()
    with session.context, ir.Location.unknown():
        yield session


def evaluated(text: str, weight: Any) -> Any:
    module = ir.Module.parse(f"func.func private @f{text}")
    (function,) = module.body.operations
    return evaluation.call(function.operation, [weight])


@pytest.mark.parametrize("text", [PACKED, TILED, VIEWED, TRANSFORMED], ids=["packed", "tiled", "viewed", "transformed"])
def test_numpy_computes_what_the_compiler_does(session: Session, text: str) -> None:
    shape = [int(size) for size in text.split("tensor<")[1].split("xf32")[0].split("x")]
    weight = np.random.default_rng(0).standard_normal(shape, np.float32)
    program = compile_text(f"func.func @f{text}")
    config = rt.Config("local-sync")
    loaded = rt.load_vm_module(rt.VmModule.copy_buffer(config.vm_instance, program), config)
    here = evaluated(text, weight)
    np.testing.assert_array_equal(here, loaded.f(weight).to_host())
    assert here.dtype == np.float32


def test_other_reductions_are_left_to_the_compiler(session: Session) -> None:
    with pytest.raises(evaluation.UnknownError, match="no sum"):
        evaluated(MAXIMUM, np.zeros((3, 4), np.float32))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(3,), (2, 7), (64, 64, 33), (1, 1)])
def test_resources_are_read_back(session: Session, dtype: Any, shape: tuple[int, ...]) -> None:
    held = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    name = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16"}[held.dtype.name]
    kind = ir.Type.parse(f"tensor<{'x'.join(map(str, shape))}x{name}>")
    attribute = ir.DenseResourceElementsAttr.get_from_buffer(held.view(np.uint8), "weight", kind)
    assert resources.data(attribute, held.nbytes) == held.tobytes()
