// RUN: covan-opt %s -p 'func.func(fred-raise,kir-raise)' | FileCheck %s
// RUN: covan-opt %s -p 'func.func(fred-raise,kir-raise,kir-lower,kir-raise)' | FileCheck %s

// Mixed precision: steps in, floats between. And floats alone.

#id = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>

// CHECK-LABEL: func.func @softmax
// CHECK: "kir.softmax"(%arg0)
// CHECK: accumulator = "f32"
// CHECK-SAME: operands = [{name = "x0", scale = 5.000000e-01 : f64, signed = true, zero = 0 : i64}]
// CHECK-SAME: over = ["j"]
func.func @softmax(%x: tensor<5x7xi8>) -> tensor<5x7xf32> {
  %scale = arith.constant 0.5 : f32
  %least = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x7xf32>
  %f = tensor.empty() : tensor<5xf32>
  %n = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%x : tensor<5x7xi8>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%p: i8, %o: f32):
    %0 = arith.sitofp %p : i8 to f32
    %1 = arith.mulf %0, %scale : f32
    linalg.yield %1 : f32
  } -> tensor<5x7xf32>
  %lowest = linalg.fill ins(%least : f32) outs(%f : tensor<5xf32>) -> tensor<5xf32>
  %m = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
    ins(%n : tensor<5x7xf32>) outs(%lowest : tensor<5xf32>) {
  ^bb0(%p: f32, %total: f32):
    %0 = arith.maximumf %p, %total : f32
    linalg.yield %0 : f32
  } -> tensor<5xf32>
  %d = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
    ins(%n, %m : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.subf %p, %q : f32
    %1 = math.exp %0 : f32
    linalg.yield %1 : f32
  } -> tensor<5x7xf32>
  %nothing = linalg.fill ins(%zero : f32) outs(%f : tensor<5xf32>) -> tensor<5xf32>
  %l = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
    ins(%d : tensor<5x7xf32>) outs(%nothing : tensor<5xf32>) {
  ^bb0(%p: f32, %total: f32):
    %0 = arith.addf %p, %total : f32
    linalg.yield %0 : f32
  } -> tensor<5xf32>
  %y = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
    ins(%d, %l : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.divf %p, %q : f32
    linalg.yield %0 : f32
  } -> tensor<5x7xf32>
  return %y : tensor<5x7xf32>
}

// CHECK-LABEL: func.func @norm
// CHECK: "kir.norm"(%arg0)
// CHECK: over = ["j"]
func.func @norm(%x: tensor<5x7xf32>) -> tensor<5x7xf32> {
  %zero = arith.constant 0.0 : f32
  %size = arith.constant 7.0 : f32
  %little = arith.constant 1.0e-5 : f32
  %e = tensor.empty() : tensor<5x7xf32>
  %f = tensor.empty() : tensor<5xf32>
  %nothing = linalg.fill ins(%zero : f32) outs(%f : tensor<5xf32>) -> tensor<5xf32>
  %l = linalg.generic {indexing_maps = [#id, #row], iterator_types = ["parallel", "reduction"]}
    ins(%x : tensor<5x7xf32>) outs(%nothing : tensor<5xf32>) {
  ^bb0(%p: f32, %total: f32):
    %0 = arith.mulf %p, %p : f32
    %1 = arith.addf %0, %total : f32
    linalg.yield %1 : f32
  } -> tensor<5xf32>
  %y = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
    ins(%x, %l : tensor<5x7xf32>, tensor<5xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%p: f32, %q: f32, %o: f32):
    %0 = arith.divf %q, %size : f32
    %1 = arith.addf %0, %little : f32
    %2 = math.rsqrt %1 : f32
    %3 = arith.mulf %p, %2 : f32
    linalg.yield %3 : f32
  } -> tensor<5x7xf32>
  return %y : tensor<5x7xf32>
}

// CHECK-LABEL: func.func @product
// CHECK: "kir.linear"(%arg0, %arg1)
// CHECK: accumulator = "f32"
// CHECK-NOT: first
func.func @product(%x: tensor<5x7xf32>, %w: tensor<7x4xf32>) -> tensor<5x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x4xf32>
  %nothing = linalg.fill ins(%zero : f32) outs(%e : tensor<5x4xf32>) -> tensor<5x4xf32>
  %y = linalg.matmul ins(%x, %w : tensor<5x7xf32>, tensor<7x4xf32>) outs(%nothing : tensor<5x4xf32>) -> tensor<5x4xf32>
  return %y : tensor<5x4xf32>
}
