// RUN: covan-opt %s -p 'func.func(fred-raise)' | FileCheck %s

// A product with a weight is no part of another chain, but one of its own: here the sum is one, and what is done to its
// input.

// CHECK-LABEL: func.func @main(
// CHECK: %[[W:.*]] = arith.constant dense_resource<w>
// CHECK: %[[P:.*]] = "fred.chain"(%arg0, %[[W]]) ({
// CHECK: arith.mulf
// CHECK: }) {axes = ["i", "j", "k"], {{.*}}sizes = [4, 8, 16], weights = ["x1"]}
// CHECK: %[[R:.*]] = "fred.chain"(%[[P]]) ({
// CHECK: math.exp
// CHECK: }) {axes = ["i", "j"], {{.*}}sizes = [4, 16]}
// CHECK: return %[[R]]
func.func @main(%a: tensor<4x8xf32>) -> tensor<4xf32> {
  %w = arith.constant dense_resource<w> : tensor<8x16xf32>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x16xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x16xf32>) -> tensor<4x16xf32>
  %p = linalg.matmul ins(%a, %w : tensor<4x8xf32>, tensor<8x16xf32>) outs(%f : tensor<4x16xf32>) -> tensor<4x16xf32>
  %x = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%p : tensor<4x16xf32>) outs(%e : tensor<4x16xf32>) {
  ^bb0(%in: f32, %out: f32):
    %y = math.exp %in : f32
    linalg.yield %y : f32
  } -> tensor<4x16xf32>
  %g = tensor.empty() : tensor<4xf32>
  %h = linalg.fill ins(%zero : f32) outs(%g : tensor<4xf32>) -> tensor<4xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0)>], iterator_types = ["parallel", "reduction"]} ins(%x : tensor<4x16xf32>) outs(%h : tensor<4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %s = arith.addf %in, %out : f32
    linalg.yield %s : f32
  } -> tensor<4xf32>
  return %r : tensor<4xf32>
}

// A weight that is also added to something has to be there as it is: kernels are not told that it is one.

// CHECK-LABEL: func.func @read_twice(
// CHECK: arith.mulf
// CHECK: }) {axes = ["i", "j", "k"], {{.*}}sizes = [8, 8, 8]}
func.func @read_twice(%a: tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>) {
  %w = arith.constant dense_resource<w> : tensor<8x8xf32>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %p = linalg.matmul ins(%a, %w : tensor<8x8xf32>, tensor<8x8xf32>) outs(%f : tensor<8x8xf32>) -> tensor<8x8xf32>
  %s = linalg.add ins(%a, %w : tensor<8x8xf32>, tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %p, %s : tensor<8x8xf32>, tensor<8x8xf32>
}

// Nor of one that stays outside of the program: it would be in memory twice.

// CHECK-LABEL: func.func @outside(
// CHECK: arith.mulf
// CHECK: }) {axes = ["i", "j", "k"], {{.*}}sizes = [8, 8, 8]}
func.func @outside(%a: tensor<8x8xf32>, %w: tensor<8x8xf32> {covan.weight = "w"}) -> tensor<8x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %p = linalg.matmul ins(%a, %w : tensor<8x8xf32>, tensor<8x8xf32>) outs(%f : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %p : tensor<8x8xf32>
}

// A weight of halves, which products widen, is one as well.

// CHECK-LABEL: func.func @halves(
// CHECK: arith.extf
// CHECK: arith.mulf
// CHECK: }) {axes = ["i", "j", "k"], {{.*}}sizes = [8, 8, 8], weights = ["x{{[01]}}"]}
func.func @halves(%a: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %w = arith.constant dense_resource<w> : tensor<8x8xbf16>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %x = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]} ins(%w : tensor<8x8xbf16>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%in: bf16, %out: f32):
    %y = arith.extf %in : bf16 to f32
    linalg.yield %y : f32
  } -> tensor<8x8xf32>
  %p = linalg.matmul ins(%a, %x : tensor<8x8xf32>, tensor<8x8xf32>) outs(%f : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %p : tensor<8x8xf32>
}
