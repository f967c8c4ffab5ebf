// RUN: covan-opt %s -p 'func.func(fred-raise)' | FileCheck %s
// RUN: covan-opt %s -p 'func.func(fred-raise{products=false})' | FileCheck %s --check-prefix=LEFT

// Products of matrices are chains with the element-wise ops behind them that go over all of their result.

// LEFT-NOT: fred.chain

#ij = affine_map<(d0, d1) -> (d0, d1)>
#j = affine_map<(d0, d1) -> (d1)>

// A bias and what is done to the sums.
// CHECK-LABEL: func.func @linear(
// CHECK: %[[R:.*]] = "fred.chain"(%arg0, %arg1, %arg2) ({
// CHECK: "fred.reduce"() ({
// CHECK: arith.mulf
// CHECK: }) {axes = ["i", "k"], combine = "add", {{.*}}over = ["j"]
// CHECK: "fred.map"() ({
// CHECK: arith.addf
// CHECK: arith.maximumf
// CHECK: return %[[R]]
func.func @linear(%a: tensor<4x8xf32>, %b: tensor<8x16xf32>, %bias: tensor<16xf32>) -> tensor<4x16xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x16xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x16xf32>) -> tensor<4x16xf32>
  %p = linalg.matmul ins(%a, %b : tensor<4x8xf32>, tensor<8x16xf32>) outs(%f : tensor<4x16xf32>) -> tensor<4x16xf32>
  %r = linalg.generic {indexing_maps = [#ij, #j, #ij], iterator_types = ["parallel", "parallel"]} ins(%p, %bias : tensor<4x16xf32>, tensor<16xf32>) outs(%e : tensor<4x16xf32>) {
  ^bb0(%in: f32, %of: f32, %out: f32):
    %s = arith.addf %in, %of : f32
    %m = arith.maximumf %s, %zero : f32
    linalg.yield %m : f32
  } -> tensor<4x16xf32>
  return %r : tensor<4x16xf32>
}

// An operand that is transposed is read as it lies.
// CHECK-LABEL: func.func @transposed(
// CHECK-NOT: linalg
// CHECK: %[[R:.*]] = "fred.chain"(%arg1, %arg0) ({
// CHECK: inputs = {{\[}}["i", "j"], ["k", "j"]]
// CHECK: return %[[R]]
func.func @transposed(%a: tensor<4x8xf32>, %b: tensor<16x8xf32>) -> tensor<4x16xf32> {
  %zero = arith.constant 0.0 : f32
  %t = tensor.empty() : tensor<8x16xf32>
  %w = linalg.transpose ins(%b : tensor<16x8xf32>) outs(%t : tensor<8x16xf32>) permutation = [1, 0]
  %e = tensor.empty() : tensor<4x16xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x16xf32>) -> tensor<4x16xf32>
  %p = linalg.matmul ins(%a, %w : tensor<4x8xf32>, tensor<8x16xf32>) outs(%f : tensor<4x16xf32>) -> tensor<4x16xf32>
  return %p : tensor<4x16xf32>
}

// So is a product of a matrix with its own transposition, when its axes were one.
// CHECK-LABEL: func.func @squared(
// CHECK: %[[E:.*]] = tensor.expand_shape %arg0
// CHECK-NOT: linalg
// CHECK: %[[R:.*]] = "fred.chain"(%[[E]], %[[E]]) ({
// CHECK: inputs = {{\[}}["i", "j", "k"], ["i", "l", "k"]]
// CHECK: return %[[R]]
func.func @squared(%a: tensor<4x40xf32>) -> tensor<4x5x5xf32> {
  %zero = arith.constant 0.0 : f32
  %x = tensor.expand_shape %a [[0], [1, 2]] output_shape [4, 5, 8] : tensor<4x40xf32> into tensor<4x5x8xf32>
  %t = tensor.empty() : tensor<4x8x5xf32>
  %w = linalg.transpose ins(%x : tensor<4x5x8xf32>) outs(%t : tensor<4x8x5xf32>) permutation = [0, 2, 1]
  %e = tensor.empty() : tensor<4x5x5xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x5x5xf32>) -> tensor<4x5x5xf32>
  %p = linalg.batch_matmul ins(%x, %w : tensor<4x5x8xf32>, tensor<4x8x5xf32>) outs(%f : tensor<4x5x5xf32>) -> tensor<4x5x5xf32>
  return %p : tensor<4x5x5xf32>
}

// Two products with a product of their elements, as gates have it, are one chain.
// CHECK-LABEL: func.func @gate(
// CHECK: "fred.chain"(%arg0, %arg1, %arg2) ({
// CHECK-COUNT-2: "fred.reduce"() ({
// CHECK-NOT: "fred.chain"
// CHECK-NOT: linalg
// CHECK: return
func.func @gate(%a: tensor<4x8xf32>, %b: tensor<8x16xf32>, %c: tensor<8x16xf32>) -> tensor<4x16xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x16xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x16xf32>) -> tensor<4x16xf32>
  %p = linalg.matmul ins(%a, %b : tensor<4x8xf32>, tensor<8x16xf32>) outs(%f : tensor<4x16xf32>) -> tensor<4x16xf32>
  %q = linalg.matmul ins(%a, %c : tensor<4x8xf32>, tensor<8x16xf32>) outs(%f : tensor<4x16xf32>) -> tensor<4x16xf32>
  %r = linalg.generic {indexing_maps = [#ij, #ij, #ij], iterator_types = ["parallel", "parallel"]} ins(%p, %q : tensor<4x16xf32>, tensor<4x16xf32>) outs(%e : tensor<4x16xf32>) {
  ^bb0(%in: f32, %of: f32, %out: f32):
    %m = arith.mulf %in, %of : f32
    linalg.yield %m : f32
  } -> tensor<4x16xf32>
  return %r : tensor<4x16xf32>
}
