// RUN: covan-opt %s -p 'func.func(fred-raise)' | FileCheck %s

// What is repeated side by side (a pooling's gradient, for the elements of its windows) is made before a chain: vectors
// of the chain would be along two elements.

// CHECK-LABEL: func.func @repeated(
// CHECK: linalg.generic
// CHECK: "fred.chain"
// CHECK-NOT: linalg.generic
func.func @repeated(%g: tensor<16x32xf32>, %x: tensor<16x32x2xf32>) -> tensor<16xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<16x32x2xf32>
  %s = linalg.generic {
      indexing_maps = [affine_map<(i, j, k) -> (i, j)>, affine_map<(i, j, k) -> (i, j, k)>, affine_map<(i, j, k) -> (i, j, k)>],
      iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%g, %x : tensor<16x32xf32>, tensor<16x32x2xf32>) outs(%e : tensor<16x32x2xf32>) {
  ^bb0(%a: f32, %b: f32, %c: f32):
    %m = arith.mulf %a, %b : f32
    linalg.yield %m : f32
  } -> tensor<16x32x2xf32>
  %f = tensor.collapse_shape %s [[0], [1, 2]] : tensor<16x32x2xf32> into tensor<16x64xf32>
  %r_e = tensor.empty() : tensor<16xf32>
  %r_0 = linalg.fill ins(%zero : f32) outs(%r_e : tensor<16xf32>) -> tensor<16xf32>
  %r = linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]}
      ins(%f : tensor<16x64xf32>) outs(%r_0 : tensor<16xf32>) {
  ^bb0(%a: f32, %c: f32):
    %m = arith.addf %c, %a : f32
    linalg.yield %m : f32
  } -> tensor<16xf32>
  return %r : tensor<16xf32>
}
