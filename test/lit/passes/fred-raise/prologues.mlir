// RUN: covan-opt %s -p 'func.func(fred-raise)' | FileCheck %s

// What is done to the factor that a product reads as vectors, cheaply and for this product alone, is done by its kernel.

#ij = affine_map<(d0, d1) -> (d0, d1)>
#i = affine_map<(d0, d1) -> (d0)>

// An activation behind a scale of each row: of the factor that has the last axis of the result.
// CHECK-LABEL: func.func @scaled(
// CHECK: "fred.chain"
// CHECK: "fred.map"() ({
// CHECK: arith.mulf
// CHECK: "fred.map"() ({
// CHECK: arith.maximumf
// CHECK: "fred.reduce"() ({
// CHECK-NOT: linalg
// CHECK: return
func.func @scaled(%w: tensor<4x8xf32>, %x: tensor<8x16xf32>, %s: tensor<8xf32>) -> tensor<4x16xf32> {
  %zero = arith.constant 0.0 : f32
  %d = tensor.empty() : tensor<8x16xf32>
  %y = linalg.generic {indexing_maps = [#ij, #i, #ij], iterator_types = ["parallel", "parallel"]} ins(%x, %s : tensor<8x16xf32>, tensor<8xf32>) outs(%d : tensor<8x16xf32>) {
  ^bb0(%in: f32, %of: f32, %out: f32):
    %m = arith.mulf %in, %of : f32
    linalg.yield %m : f32
  } -> tensor<8x16xf32>
  %z = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]} ins(%y : tensor<8x16xf32>) outs(%d : tensor<8x16xf32>) {
  ^bb0(%in: f32, %out: f32):
    %m = arith.maximumf %in, %zero : f32
    linalg.yield %m : f32
  } -> tensor<8x16xf32>
  %e = tensor.empty() : tensor<4x16xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x16xf32>) -> tensor<4x16xf32>
  %p = linalg.matmul ins(%w, %z : tensor<4x8xf32>, tensor<8x16xf32>) outs(%f : tensor<4x16xf32>) -> tensor<4x16xf32>
  return %p : tensor<4x16xf32>
}

// The other factor is read as it lies; what somebody else reads as well is there already.
// CHECK-LABEL: func.func @others(
// CHECK: linalg.generic
// CHECK: linalg.generic
// CHECK: "fred.chain"
// CHECK-NOT: "fred.map"
// CHECK: return
func.func @others(%w: tensor<4x8xf32>, %x: tensor<8x16xf32>) -> (tensor<4x16xf32>, tensor<8x16xf32>) {
  %zero = arith.constant 0.0 : f32
  %c = tensor.empty() : tensor<4x8xf32>
  %d = tensor.empty() : tensor<8x16xf32>
  %v = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]} ins(%w : tensor<4x8xf32>) outs(%c : tensor<4x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %m = arith.maximumf %in, %zero : f32
    linalg.yield %m : f32
  } -> tensor<4x8xf32>
  %z = linalg.generic {indexing_maps = [#ij, #ij], iterator_types = ["parallel", "parallel"]} ins(%x : tensor<8x16xf32>) outs(%d : tensor<8x16xf32>) {
  ^bb0(%in: f32, %out: f32):
    %m = arith.maximumf %in, %zero : f32
    linalg.yield %m : f32
  } -> tensor<8x16xf32>
  %e = tensor.empty() : tensor<4x16xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x16xf32>) -> tensor<4x16xf32>
  %p = linalg.matmul ins(%v, %z : tensor<4x8xf32>, tensor<8x16xf32>) outs(%f : tensor<4x16xf32>) -> tensor<4x16xf32>
  return %p, %z : tensor<4x16xf32>, tensor<8x16xf32>
}

// A convolution by single points is a product.
// CHECK-LABEL: func.func @points(
// CHECK: "fred.chain"
// CHECK: "fred.map"() ({
// CHECK: arith.maximumf
// CHECK: "fred.reduce"() ({
// CHECK-NOT: linalg
// CHECK: return
func.func @points(%w: tensor<4x8x1x1xf32>, %x: tensor<1x8x6x6xf32>) -> tensor<1x4x6x6xf32> {
  %zero = arith.constant 0.0 : f32
  %d = tensor.empty() : tensor<1x8x6x6xf32>
  %z = linalg.generic {indexing_maps = [affine_map<(n, c, h, w) -> (n, c, h, w)>, affine_map<(n, c, h, w) -> (n, c, h, w)>], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%x : tensor<1x8x6x6xf32>) outs(%d : tensor<1x8x6x6xf32>) {
  ^bb0(%in: f32, %out: f32):
    %m = arith.maximumf %in, %zero : f32
    linalg.yield %m : f32
  } -> tensor<1x8x6x6xf32>
  %e = tensor.empty() : tensor<1x4x6x6xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32>
  %p = linalg.conv_2d_nchw_fchw ins(%z, %w : tensor<1x8x6x6xf32>, tensor<4x8x1x1xf32>) outs(%f : tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32>
  return %p : tensor<1x4x6x6xf32>
}
