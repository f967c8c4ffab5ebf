// RUN: covan-opt %s -p 'func.func(fred-raise, canonicalize)' | FileCheck %s

// Products of the same halves, which linalg holds in more bits before: each chain widens them for itself, the transposed
// weight too, so that nobody reads the widened ones; what is behind the first product is stored in halves, as it is.

// CHECK-LABEL: func.func @shared
// CHECK-NOT: linalg.generic
// CHECK: "fred.chain"
// CHECK: ^bb0(%{{.*}}: tensor<8x64xf16>, %{{.*}}: tensor<32x64xf16>, %{{.*}}: tensor<64x16xf16>)
// CHECK: arith.extf
// CHECK: "fred.reduce"
// CHECK: arith.truncf
// CHECK: arith.extf
// CHECK: "fred.reduce"
// CHECK: "fred.output"
// CHECK-SAME: tensor<8x32xf16>
// CHECK: "fred.output"
// CHECK-SAME: tensor<8x16xf32>
// CHECK: "fred.chain"
// CHECK: ^bb0(%{{.*}}: tensor<8x32xf16>
// CHECK-NOT: linalg.generic
#row = affine_map<(d0, d1) -> (d0, d1)>
func.func @shared(%x: tensor<8x64xf16>, %w: tensor<32x64xf16>, %v: tensor<64x16xf16>, %u: tensor<32x4xf16>) -> (tensor<8x4xf32>, tensor<8x16xf32>) {
  %zero = arith.constant 0.0 : f32
  %e0 = tensor.empty() : tensor<8x64xf32>
  %wide = linalg.generic {indexing_maps = [#row, #row], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<8x64xf16>) outs(%e0 : tensor<8x64xf32>) {
  ^bb0(%in: f16, %out: f32):
    %a = arith.extf %in : f16 to f32
    linalg.yield %a : f32
  } -> tensor<8x64xf32>
  %e1 = tensor.empty() : tensor<64x32xf16>
  %t = linalg.transpose ins(%w : tensor<32x64xf16>) outs(%e1 : tensor<64x32xf16>) permutation = [1, 0]
  %e2 = tensor.empty() : tensor<64x32xf32>
  %wt = linalg.generic {indexing_maps = [#row, #row], iterator_types = ["parallel", "parallel"]} ins(%t : tensor<64x32xf16>) outs(%e2 : tensor<64x32xf32>) {
  ^bb0(%in: f16, %out: f32):
    %a = arith.extf %in : f16 to f32
    linalg.yield %a : f32
  } -> tensor<64x32xf32>
  %e3 = tensor.empty() : tensor<8x32xf32>
  %f3 = linalg.fill ins(%zero : f32) outs(%e3 : tensor<8x32xf32>) -> tensor<8x32xf32>
  %first = linalg.matmul ins(%wide, %wt : tensor<8x64xf32>, tensor<64x32xf32>) outs(%f3 : tensor<8x32xf32>) -> tensor<8x32xf32>
  %e4 = tensor.empty() : tensor<8x32xf16>
  %half = linalg.generic {indexing_maps = [#row, #row], iterator_types = ["parallel", "parallel"]} ins(%first : tensor<8x32xf32>) outs(%e4 : tensor<8x32xf16>) {
  ^bb0(%in: f32, %out: f16):
    %a = arith.truncf %in : f32 to f16
    linalg.yield %a : f16
  } -> tensor<8x32xf16>
  %again = linalg.generic {indexing_maps = [#row, #row], iterator_types = ["parallel", "parallel"]} ins(%half : tensor<8x32xf16>) outs(%e3 : tensor<8x32xf32>) {
  ^bb0(%in: f16, %out: f32):
    %a = arith.extf %in : f16 to f32
    linalg.yield %a : f32
  } -> tensor<8x32xf32>
  %e5 = tensor.empty() : tensor<64x16xf32>
  %wv = linalg.generic {indexing_maps = [#row, #row], iterator_types = ["parallel", "parallel"]} ins(%v : tensor<64x16xf16>) outs(%e5 : tensor<64x16xf32>) {
  ^bb0(%in: f16, %out: f32):
    %a = arith.extf %in : f16 to f32
    linalg.yield %a : f32
  } -> tensor<64x16xf32>
  %e6 = tensor.empty() : tensor<8x16xf32>
  %f6 = linalg.fill ins(%zero : f32) outs(%e6 : tensor<8x16xf32>) -> tensor<8x16xf32>
  %second = linalg.matmul ins(%wide, %wv : tensor<8x64xf32>, tensor<64x16xf32>) outs(%f6 : tensor<8x16xf32>) -> tensor<8x16xf32>
  %e7 = tensor.empty() : tensor<32x4xf32>
  %wu = linalg.generic {indexing_maps = [#row, #row], iterator_types = ["parallel", "parallel"]} ins(%u : tensor<32x4xf16>) outs(%e7 : tensor<32x4xf32>) {
  ^bb0(%in: f16, %out: f32):
    %a = arith.extf %in : f16 to f32
    linalg.yield %a : f32
  } -> tensor<32x4xf32>
  %e8 = tensor.empty() : tensor<8x4xf32>
  %f8 = linalg.fill ins(%zero : f32) outs(%e8 : tensor<8x4xf32>) -> tensor<8x4xf32>
  %third = linalg.matmul ins(%again, %wu : tensor<8x32xf32>, tensor<32x4xf32>) outs(%f8 : tensor<8x4xf32>) -> tensor<8x4xf32>
  return %third, %second : tensor<8x4xf32>, tensor<8x16xf32>
}
