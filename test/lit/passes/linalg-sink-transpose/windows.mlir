// RUN: covan-opt %s -p 'func.func(linalg-sink-transpose)' --mlir-print-debuginfo | FileCheck %s

#id3 = affine_map<(d0, d1, d2) -> (d0, d1, d2)>
#first = affine_map<(d0, d1, d2) -> (d2)>

// An activation behind a transposed convolution comes before the transposition, which lays out its result.

// CHECK-LABEL: func.func @activation
// CHECK: %[[Y:.+]] = linalg.conv_1d_ncw_fcw
// CHECK: %[[Z:.+]] = linalg.generic {{.*}} ins(%[[Y]] : tensor<1x8x16xf32>)
// CHECK: math.tanh
// CHECK: tensor<1x8x16xf32> loc(#[[TANH:.+]])
// CHECK: %[[T:.+]] = linalg.transpose ins(%[[Z]] : tensor<1x8x16xf32>) {{.*}} permutation = [0, 2, 1] loc(#[[TANH]])
// CHECK: return %[[T]]
func.func @activation(%x: tensor<1x4x18xf32>, %w: tensor<8x4x3xf32>, %y: tensor<1x8x16xf32>) -> tensor<1x16x8xf32> {
  %0 = linalg.conv_1d_ncw_fcw {dilations = dense<1> : vector<1xi64>, strides = dense<1> : vector<1xi64>}
    ins(%x, %w : tensor<1x4x18xf32>, tensor<8x4x3xf32>) outs(%y : tensor<1x8x16xf32>) -> tensor<1x8x16xf32> loc("prov:0:conv")
  %e = tensor.empty() : tensor<1x16x8xf32>
  %1 = linalg.transpose ins(%0 : tensor<1x8x16xf32>) outs(%e : tensor<1x16x8xf32>) permutation = [0, 2, 1] loc("prov:1:permute")
  %2 = linalg.generic {indexing_maps = [#id3, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
    ins(%1 : tensor<1x16x8xf32>) outs(%e : tensor<1x16x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %3 = math.tanh %in : f32 loc("prov:2:tanh")
    linalg.yield %3 : f32
  } -> tensor<1x16x8xf32> loc("prov:2:tanh")
  return %2 : tensor<1x16x8xf32>
}

// Several tensors that came the same way; the transposition that nobody reads any more goes.

// CHECK-LABEL: func.func @gate
// CHECK: %[[Y:.+]] = linalg.conv_1d_ncw_fcw
// CHECK: %[[S:.+]] = linalg.generic {{.*}} ins(%[[Y]] : tensor<1x8x16xf32>)
// CHECK: %[[G:.+]] = linalg.generic {{.*}} ins(%[[Y]], %[[S]] : tensor<1x8x16xf32>, tensor<1x8x16xf32>)
// CHECK: linalg.transpose ins(%[[G]]
// CHECK-NOT: linalg.transpose
// CHECK: return
func.func @gate(%x: tensor<1x4x18xf32>, %w: tensor<8x4x3xf32>, %y: tensor<1x8x16xf32>) -> tensor<1x16x8xf32> {
  %0 = linalg.conv_1d_ncw_fcw {dilations = dense<1> : vector<1xi64>, strides = dense<1> : vector<1xi64>}
    ins(%x, %w : tensor<1x4x18xf32>, tensor<8x4x3xf32>) outs(%y : tensor<1x8x16xf32>) -> tensor<1x8x16xf32>
  %e = tensor.empty() : tensor<1x16x8xf32>
  %1 = linalg.transpose ins(%0 : tensor<1x8x16xf32>) outs(%e : tensor<1x16x8xf32>) permutation = [0, 2, 1]
  %2 = linalg.generic {indexing_maps = [#id3, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
    ins(%1 : tensor<1x16x8xf32>) outs(%e : tensor<1x16x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %4 = math.exp %in : f32
    linalg.yield %4 : f32
  } -> tensor<1x16x8xf32>
  %3 = linalg.generic {indexing_maps = [#id3, #id3, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
    ins(%1, %2 : tensor<1x16x8xf32>, tensor<1x16x8xf32>) outs(%e : tensor<1x16x8xf32>) {
  ^bb0(%a: f32, %b: f32, %out: f32):
    %4 = arith.mulf %a, %b : f32
    linalg.yield %4 : f32
  } -> tensor<1x16x8xf32>
  return %3 : tensor<1x16x8xf32>
}

// What others need transposed stays so, and so do numbers along one axis.

// CHECK-LABEL: func.func @stays
// CHECK: %[[Y:.+]] = linalg.conv_1d_ncw_fcw
// CHECK: %[[T:.+]] = linalg.transpose ins(%[[Y]]
// CHECK: linalg.generic {{.*}} ins(%[[T]], %{{.+}} : tensor<1x16x8xf32>, tensor<8xf32>)
func.func @stays(%x: tensor<1x4x18xf32>, %w: tensor<8x4x3xf32>, %y: tensor<1x8x16xf32>, %b: tensor<8xf32>) -> tensor<1x16x8xf32> {
  %0 = linalg.conv_1d_ncw_fcw {dilations = dense<1> : vector<1xi64>, strides = dense<1> : vector<1xi64>}
    ins(%x, %w : tensor<1x4x18xf32>, tensor<8x4x3xf32>) outs(%y : tensor<1x8x16xf32>) -> tensor<1x8x16xf32>
  %e = tensor.empty() : tensor<1x16x8xf32>
  %1 = linalg.transpose ins(%0 : tensor<1x8x16xf32>) outs(%e : tensor<1x16x8xf32>) permutation = [0, 2, 1]
  %2 = linalg.generic {indexing_maps = [#id3, #first, #id3], iterator_types = ["parallel", "parallel", "parallel"]}
    ins(%1, %b : tensor<1x16x8xf32>, tensor<8xf32>) outs(%e : tensor<1x16x8xf32>) {
  ^bb0(%in: f32, %c: f32, %out: f32):
    %4 = arith.addf %in, %c : f32
    linalg.yield %4 : f32
  } -> tensor<1x16x8xf32>
  return %2 : tensor<1x16x8xf32>
}

// A product writes its results as they are wanted: nothing is moved.

// CHECK-LABEL: func.func @product
// CHECK: linalg.matmul
// CHECK: linalg.transpose
// CHECK: math.tanh
func.func @product(%a: tensor<8x4xf32>, %b: tensor<4x16xf32>, %y: tensor<8x16xf32>) -> tensor<16x8xf32> {
  %0 = linalg.matmul ins(%a, %b : tensor<8x4xf32>, tensor<4x16xf32>) outs(%y : tensor<8x16xf32>) -> tensor<8x16xf32>
  %e = tensor.empty() : tensor<16x8xf32>
  %1 = linalg.transpose ins(%0 : tensor<8x16xf32>) outs(%e : tensor<16x8xf32>) permutation = [1, 0]
  %2 = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> (d0, d1)>], iterator_types = ["parallel", "parallel"]}
    ins(%1 : tensor<16x8xf32>) outs(%e : tensor<16x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %3 = math.tanh %in : f32
    linalg.yield %3 : f32
  } -> tensor<16x8xf32>
  return %2 : tensor<16x8xf32>
}
