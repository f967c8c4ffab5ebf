// RUN: covan-opt %s -p 'func.func(fred-raise)' | FileCheck %s

// Products that share a factor are one chain, where that is convex and they sum over the same axes of it.

#ij = affine_map<(d0, d1) -> (d0, d1)>

// Results of different widths, one of them with what is done to its elements.
// CHECK-LABEL: func.func @projections(
// CHECK: %[[R:.*]]:2 = "fred.chain"(%arg0, %arg1, %arg2) ({
// CHECK-COUNT-2: "fred.reduce"() ({
// CHECK: "fred.map"() ({
// CHECK-NOT: linalg
// CHECK: inputs = {{\[}}["i", "j"], ["j", "k"], ["j", "l"]]
// CHECK: return %[[R]]#0, %[[R]]#1
func.func @projections(%x: tensor<4x8xf32>, %a: tensor<8x16xf32>, %b: tensor<8x24xf32>) -> (tensor<4x16xf32>, tensor<4x24xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x16xf32>
  %d = tensor.empty() : tensor<4x24xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x16xf32>) -> tensor<4x16xf32>
  %g = linalg.fill ins(%zero : f32) outs(%d : tensor<4x24xf32>) -> tensor<4x24xf32>
  %p = linalg.matmul ins(%x, %a : tensor<4x8xf32>, tensor<8x16xf32>) outs(%f : tensor<4x16xf32>) -> tensor<4x16xf32>
  %q = linalg.matmul ins(%x, %b : tensor<4x8xf32>, tensor<8x24xf32>) outs(%g : tensor<4x24xf32>) -> tensor<4x24xf32>
  %r = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]} ins(%q : tensor<4x24xf32>) outs(%d : tensor<4x24xf32>) {
  ^bb0(%in: f32, %out: f32):
    %m = arith.maximumf %in, %zero : f32
    linalg.yield %m : f32
  } -> tensor<4x24xf32>
  return %p, %r : tensor<4x16xf32>, tensor<4x24xf32>
}

// The second one reads the first: together they would wait for themselves.
// CHECK-LABEL: func.func @one_after_the_other(
// CHECK-COUNT-2: "fred.chain"
// CHECK: return
func.func @one_after_the_other(%x: tensor<8x8xf32>, %y: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %p = linalg.matmul ins(%x, %y : tensor<8x8xf32>, tensor<8x8xf32>) outs(%f : tensor<8x8xf32>) -> tensor<8x8xf32>
  %q = linalg.matmul ins(%p, %y : tensor<8x8xf32>, tensor<8x8xf32>) outs(%f : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %q : tensor<8x8xf32>
}

// What one sums over, the other keeps.
// CHECK-LABEL: func.func @other_axes(
// CHECK-COUNT-2: "fred.chain"
// CHECK: return
func.func @other_axes(%x: tensor<4x8xf32>, %a: tensor<8x16xf32>, %b: tensor<16x4xf32>) -> (tensor<4x16xf32>, tensor<16x8xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x16xf32>
  %d = tensor.empty() : tensor<16x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x16xf32>) -> tensor<4x16xf32>
  %g = linalg.fill ins(%zero : f32) outs(%d : tensor<16x8xf32>) -> tensor<16x8xf32>
  %p = linalg.matmul ins(%x, %a : tensor<4x8xf32>, tensor<8x16xf32>) outs(%f : tensor<4x16xf32>) -> tensor<4x16xf32>
  %q = linalg.matmul ins(%b, %x : tensor<16x4xf32>, tensor<4x8xf32>) outs(%g : tensor<16x8xf32>) -> tensor<16x8xf32>
  return %p, %q : tensor<4x16xf32>, tensor<16x8xf32>
}
