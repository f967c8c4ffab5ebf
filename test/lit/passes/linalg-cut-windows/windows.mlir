// RUN: covan-opt %s -p 'func.func(linalg-cut-windows)' | FileCheck %s

// Of four rows and five columns a window of three, in one place, reads three.

// CHECK-LABEL: func.func @convolution
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<2x8x4x5xf32>
// CHECK: %[[CUT:.+]] = tensor.extract_slice %[[X]][0, 0, 0, 0] [2, 8, 3, 3] [1, 1, 1, 1]
// CHECK: linalg.conv_2d_nchw_fchw
// CHECK-SAME: ins(%[[CUT]], %{{.+}} : tensor<2x8x3x3xf32>, tensor<8x8x3x3xf32>)
func.func @convolution(%x: tensor<2x8x4x5xf32>, %w: tensor<8x8x3x3xf32>, %y: tensor<2x8x1x1xf32>) -> tensor<2x8x1x1xf32> {
  %0 = linalg.conv_2d_nchw_fchw {dilations = dense<1> : vector<2xi64>, strides = dense<2> : vector<2xi64>}
    ins(%x, %w : tensor<2x8x4x5xf32>, tensor<8x8x3x3xf32>) outs(%y : tensor<2x8x1x1xf32>) -> tensor<2x8x1x1xf32>
  return %0 : tensor<2x8x1x1xf32>
}

// Only along the axis with one position; sizes that are known at run time are taken along.

// CHECK-LABEL: func.func @pooling
// CHECK-SAME: %[[X:[a-z0-9]+]]: tensor<?x8x4x6xf32>
// CHECK: %[[BATCH:.+]] = tensor.dim %[[X]], %{{.+}} : tensor<?x8x4x6xf32>
// CHECK: tensor.extract_slice %[[X]][0, 0, 0, 0] [%[[BATCH]], 8, 3, 6] [1, 1, 1, 1]
// CHECK: linalg.pooling_nchw_max
func.func @pooling(%x: tensor<?x8x4x6xf32>, %w: tensor<3x3xf32>, %y: tensor<?x8x1x2xf32>) -> tensor<?x8x1x2xf32> {
  %0 = linalg.pooling_nchw_max {dilations = dense<1> : vector<2xi64>, strides = dense<2> : vector<2xi64>}
    ins(%x, %w : tensor<?x8x4x6xf32>, tensor<3x3xf32>) outs(%y : tensor<?x8x1x2xf32>) -> tensor<?x8x1x2xf32>
  return %0 : tensor<?x8x1x2xf32>
}

// What is read to the end, and what has more than one position, stays.

// CHECK-LABEL: func.func @kept
// CHECK-NOT: tensor.extract_slice
func.func @kept(%x: tensor<1x8x3x6xf32>, %w: tensor<8x3x3xf32>, %y: tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32> {
  %0 = linalg.depthwise_conv_2d_nchw_chw {dilations = dense<1> : vector<2xi64>, strides = dense<2> : vector<2xi64>}
    ins(%x, %w : tensor<1x8x3x6xf32>, tensor<8x3x3xf32>) outs(%y : tensor<1x8x1x2xf32>) -> tensor<1x8x1x2xf32>
  return %0 : tensor<1x8x1x2xf32>
}
