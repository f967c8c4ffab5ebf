// RUN: covan-opt %s -p 'func.func(linalg-name-scatters)' --mlir-print-debuginfo | FileCheck %s

#i = affine_map<(d0) -> (d0, 0)>

// What makes the positions of a scatter is at its location; what others read as well stays where it is.
// CHECK-LABEL: func.func @positions(
// CHECK: tensor.insert_slice {{.*}} loc(#[[FIRST:.*]])
// CHECK: linalg.index 0 : index loc(#[[SECOND:.*]])
// CHECK: } -> (tensor<16x1xi64>, tensor<16x1xi64>) loc(#[[SECOND]])
// CHECK: tensor.insert_slice {{.*}} loc(#[[SECOND]])
// CHECK: tm_tensor.scatter
// CHECK: loc(#[[SECOND]])
// CHECK-DAG: #[[FIRST]] = loc("first")
// CHECK-DAG: #[[SECOND]] = loc("second")
func.func @positions(%x: tensor<8x4xf32>, %u: tensor<16xf32>, %zero: tensor<16x2xi64>, %rows: tensor<16x1xi64>) -> (tensor<8x4xf32>, tensor<16x2xi64>) {
  %e = tensor.empty() : tensor<16x1xi64>
  %p = tensor.insert_slice %rows into %zero[0, 0] [16, 1] [1, 1] : tensor<16x1xi64> into tensor<16x2xi64> loc("first")
  %i:2 = linalg.generic {indexing_maps = [#i, #i], iterator_types = ["parallel"]} outs(%e, %e : tensor<16x1xi64>, tensor<16x1xi64>) {
  ^bb0(%a: i64, %b: i64):
    %k = linalg.index 0 : index loc("first")
    %n = arith.index_cast %k : index to i64 loc("first")
    linalg.yield %n, %n : i64, i64 loc("first")
  } -> (tensor<16x1xi64>, tensor<16x1xi64>) loc("first")
  %q = tensor.insert_slice %i#1 into %p[0, 1] [16, 1] [1, 1] : tensor<16x1xi64> into tensor<16x2xi64> loc("first")
  %r = tm_tensor.scatter {dimension_map = array<i64: 0, 1>} unique_indices(false) ins(%u, %q : tensor<16xf32>, tensor<16x2xi64>) outs(%x : tensor<8x4xf32>) {
  ^bb0(%new: f32, %old: f32):
    tm_tensor.yield %new : f32 loc("second")
  } -> tensor<8x4xf32> loc("second")
  return %r, %p : tensor<8x4xf32>, tensor<16x2xi64>
}
