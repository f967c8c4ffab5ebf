// RUN: covan-opt %s -p 'func.func(fred-raise)' | FileCheck %s

// A vector that only the sums of a product are multiplied with is a weight, too: it can be in the matrix ahead of time.

// CHECK-LABEL: func.func @scaled(
// CHECK: }) {axes = ["i", "j", "k"], {{.*}}weights = ["x1", "x2"]}
func.func @scaled(%a: tensor<4x8xf32>) -> tensor<4x16xf32> {
  %w = arith.constant dense_resource<w> : tensor<8x16xf32>
  %s = arith.constant dense_resource<s> : tensor<16xf32>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x16xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x16xf32>) -> tensor<4x16xf32>
  %p = linalg.matmul ins(%a, %w : tensor<4x8xf32>, tensor<8x16xf32>) outs(%f : tensor<4x16xf32>) -> tensor<4x16xf32>
  %x = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%p, %s : tensor<4x16xf32>, tensor<16xf32>) outs(%e : tensor<4x16xf32>) {
  ^bb0(%in: f32, %scale: f32, %out: f32):
    %y = arith.mulf %in, %scale : f32
    linalg.yield %y : f32
  } -> tensor<4x16xf32>
  return %x : tensor<4x16xf32>
}

// One that something else reads has to be there as it is.

// CHECK-LABEL: func.func @returned(
// CHECK: }) {axes = ["i", "j", "k"], {{.*}}weights = ["x1"]}
func.func @returned(%a: tensor<4x8xf32>) -> (tensor<4x16xf32>, tensor<4x16xf32>) {
  %w = arith.constant dense_resource<w> : tensor<8x16xf32>
  %s = arith.constant dense_resource<s> : tensor<16xf32>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x16xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x16xf32>) -> tensor<4x16xf32>
  %p = linalg.matmul ins(%a, %w : tensor<4x8xf32>, tensor<8x16xf32>) outs(%f : tensor<4x16xf32>) -> tensor<4x16xf32>
  %x = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%p, %s : tensor<4x16xf32>, tensor<16xf32>) outs(%e : tensor<4x16xf32>) {
  ^bb0(%in: f32, %scale: f32, %out: f32):
    %y = arith.mulf %in, %scale : f32
    linalg.yield %y : f32
  } -> tensor<4x16xf32>
  %t = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<16xf32>) outs(%e : tensor<4x16xf32>) {
  ^bb0(%scale: f32, %out: f32):
    %y = math.exp %scale : f32
    linalg.yield %y : f32
  } -> tensor<4x16xf32>
  return %x, %t : tensor<4x16xf32>, tensor<4x16xf32>
}
