// RUN: covan-opt %s -p 'func.func(fred-raise)' | FileCheck %s

// What only holds a chain's result in more bits, for a product to read, is left to that product: the result is in memory as
// halves, and is multiplied as such.

// CHECK-LABEL: func.func @main(
// CHECK: %[[N:.*]] = "fred.chain"(%arg0) ({
// CHECK: arith.truncf
// CHECK: }) {{.*}} -> tensor<4x8xbf16>
// CHECK: "fred.chain"(%[[N]], {{.*}}) ({
// CHECK: arith.extf
// CHECK: arith.mulf
func.func @main(%x: tensor<4x8xf32>) -> tensor<4x16xf32> {
  %w = arith.constant dense_resource<w> : tensor<8x16xf32>
  %zero = arith.constant 0.0 : f32
  %es = tensor.empty() : tensor<4xf32>
  %fs = linalg.fill ins(%zero : f32) outs(%es : tensor<4xf32>) -> tensor<4xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<4x8xf32>) outs(%fs : tensor<4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %sum = arith.addf %in, %out : f32
    linalg.yield %sum : f32
  } -> tensor<4xf32>
  %en = tensor.empty() : tensor<4x8xbf16>
  %n = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%x, %s : tensor<4x8xf32>, tensor<4xf32>) outs(%en : tensor<4x8xbf16>) {
  ^bb0(%in: f32, %total: f32, %out: bf16):
    %part = arith.divf %in, %total : f32
    %half = arith.truncf %part : f32 to bf16
    linalg.yield %half : bf16
  } -> tensor<4x8xbf16>
  %ew = tensor.empty() : tensor<4x8xf32>
  %wide = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%n : tensor<4x8xbf16>) outs(%ew : tensor<4x8xf32>) {
  ^bb0(%in: bf16, %out: f32):
    %more = arith.extf %in : bf16 to f32
    linalg.yield %more : f32
  } -> tensor<4x8xf32>
  %ep = tensor.empty() : tensor<4x16xf32>
  %fp = linalg.fill ins(%zero : f32) outs(%ep : tensor<4x16xf32>) -> tensor<4x16xf32>
  %p = linalg.matmul ins(%wide, %w : tensor<4x8xf32>, tensor<8x16xf32>) outs(%fp : tensor<4x16xf32>) -> tensor<4x16xf32>
  return %p : tensor<4x16xf32>
}
