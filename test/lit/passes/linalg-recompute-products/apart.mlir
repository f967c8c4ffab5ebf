// RUN: covan-opt %s -p 'func.func(linalg-recompute-products)' | FileCheck %s

#ij = affine_map<(d0, d1) -> (d0, d1)>
#i = affine_map<(d0, d1) -> (d0)>
#j = affine_map<(d0, d1) -> (d1, d0)>

// What a product needs of a value, and of the result of another product with it, is computed again for it. The sums
// over the value's rows are not.
// CHECK-LABEL: func.func @late(
// CHECK: %[[S:.*]] = linalg.matmul ins(%arg0, %arg1
// CHECK: %[[P:.*]] = linalg.generic {{.*}} ins(%[[S]]
// CHECK: %[[L:.*]] = linalg.generic {{.*}}"reduction"{{.*}} ins(%[[P]]
// CHECK: %[[W:.*]] = linalg.generic {{.*}} ins(%[[P]], %[[L]]
// CHECK: %[[O:.*]] = linalg.matmul ins(%[[W]], %arg2
// CHECK: %[[S2:.*]] = linalg.matmul ins(%arg0, %arg1
// CHECK: %[[P2:.*]] = linalg.generic {{.*}} ins(%[[S2]]
// CHECK: %[[W2:.*]] = linalg.generic {{.*}} ins(%[[P2]], %[[L]]
// CHECK: %[[T2:.*]] = linalg.transpose ins(%[[W2]]
// CHECK-NOT: linalg.transpose
// CHECK: linalg.matmul ins(%[[T2]], %[[O]]
func.func @late(%q: tensor<64x4xf32>, %k: tensor<4x64xf32>, %v: tensor<64x4xf32>) -> tensor<64x4xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
  %s = linalg.matmul ins(%q, %k : tensor<64x4xf32>, tensor<4x64xf32>) outs(%f : tensor<64x64xf32>) -> tensor<64x64xf32>
  %p = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]} ins(%s : tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) {
  ^bb0(%in: f32, %out: f32):
    %x = math.exp %in : f32
    linalg.yield %x : f32
  } -> tensor<64x64xf32>
  %r = tensor.empty() : tensor<64xf32>
  %z = linalg.fill ins(%zero : f32) outs(%r : tensor<64xf32>) -> tensor<64xf32>
  %l = linalg.generic {indexing_maps = [#ij, #i], iterator_types = ["parallel", "reduction"]} ins(%p : tensor<64x64xf32>) outs(%z : tensor<64xf32>) {
  ^bb0(%in: f32, %out: f32):
    %x = arith.addf %in, %out : f32
    linalg.yield %x : f32
  } -> tensor<64xf32>
  %w = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]} ins(%p, %l : tensor<64x64xf32>, tensor<64xf32>) outs(%e : tensor<64x64xf32>) {
  ^bb0(%in: f32, %of: f32, %out: f32):
    %x = arith.divf %in, %of : f32
    linalg.yield %x : f32
  } -> tensor<64x64xf32>
  %g = tensor.empty() : tensor<64x4xf32>
  %h = linalg.fill ins(%zero : f32) outs(%g : tensor<64x4xf32>) -> tensor<64x4xf32>
  %o = linalg.matmul ins(%w, %v : tensor<64x64xf32>, tensor<64x4xf32>) outs(%h : tensor<64x4xf32>) -> tensor<64x4xf32>
  %t = linalg.transpose ins(%w : tensor<64x64xf32>) outs(%e : tensor<64x64xf32>) permutation = [1, 0]
  %d = linalg.matmul ins(%t, %o : tensor<64x64xf32>, tensor<64x4xf32>) outs(%h : tensor<64x4xf32>) -> tensor<64x4xf32>
  return %d : tensor<64x4xf32>
}

// Products that do not need each other's results share a value.
// CHECK-LABEL: func.func @beside(
// CHECK-COUNT-3: linalg.matmul
// CHECK-NOT: linalg.matmul
func.func @beside(%q: tensor<64x4xf32>, %k: tensor<4x64xf32>, %v: tensor<64x4xf32>, %w: tensor<64x4xf32>) -> (tensor<64x4xf32>, tensor<64x4xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64x64xf32>) -> tensor<64x64xf32>
  %s = linalg.matmul ins(%q, %k : tensor<64x4xf32>, tensor<4x64xf32>) outs(%f : tensor<64x64xf32>) -> tensor<64x64xf32>
  %g = tensor.empty() : tensor<64x4xf32>
  %h = linalg.fill ins(%zero : f32) outs(%g : tensor<64x4xf32>) -> tensor<64x4xf32>
  %o = linalg.matmul ins(%s, %v : tensor<64x64xf32>, tensor<64x4xf32>) outs(%h : tensor<64x4xf32>) -> tensor<64x4xf32>
  %d = linalg.matmul ins(%s, %w : tensor<64x64xf32>, tensor<64x4xf32>) outs(%h : tensor<64x4xf32>) -> tensor<64x4xf32>
  return %o, %d : tensor<64x4xf32>, tensor<64x4xf32>
}

// A product that is no larger than its factors is kept.
// CHECK-LABEL: func.func @small(
// CHECK-COUNT-3: linalg.matmul
// CHECK-NOT: linalg.matmul
func.func @small(%q: tensor<8x4xf32>, %k: tensor<4x8xf32>, %v: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %s = linalg.matmul ins(%q, %k : tensor<8x4xf32>, tensor<4x8xf32>) outs(%f : tensor<8x8xf32>) -> tensor<8x8xf32>
  %o = linalg.matmul ins(%s, %v : tensor<8x8xf32>, tensor<8x8xf32>) outs(%f : tensor<8x8xf32>) -> tensor<8x8xf32>
  %d = linalg.matmul ins(%s, %o : tensor<8x8xf32>, tensor<8x8xf32>) outs(%f : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %d : tensor<8x8xf32>
}
