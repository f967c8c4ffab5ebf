// RUN: covan-opt %s -p 'func.func(linalg-integer-products{lanes=16})' --mlir-print-debuginfo | FileCheck %s

#id = affine_map<(d0, d1) -> (d0, d1)>
#row = affine_map<(d0, d1) -> (d0, 0)>
#id4 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#channel = affine_map<(d0, d1, d2, d3) -> (d0, 0, 0, 0)>

// Steps without a sign, with a zero point, by a weight with a scale for each column: what both stand for comes behind
// the sums, in the place of the product, and has the traces of all.

// CHECK: #[[ALL:.+]] = loc(fused<#prov.trace<[0, 1, 2]>>
// CHECK-LABEL: func.func @product
// CHECK: %[[W:.+]] = arith.constant dense_resource<w> : tensor<16x8xi8>
// CHECK: %[[T:.+]] = linalg.transpose ins(%[[W]] : tensor<16x8xi8>) {{.*}} permutation = [1, 0] loc(#[[ALL]])
// CHECK: %[[S:.+]] = linalg.generic {{.*}} "reduction"]} ins(%{{.+}}, %[[T]] : tensor<5x8xi8>, tensor<8x16xi8>)
// CHECK: %[[A:.+]] = arith.extui
// CHECK: %[[Z:.+]] = arith.subi %[[A]], %c121_i32
// CHECK: %[[B:.+]] = arith.extsi
// CHECK: %[[P:.+]] = arith.muli %[[Z]], %[[B]]
// CHECK: arith.addi %{{.+}}, %[[P]]
// CHECK: linalg.generic {{.*}} ins(%[[S]], %{{.+}} : tensor<5x16xi32>, tensor<16x1xf32>)
// CHECK: %[[F:.+]] = arith.sitofp
// CHECK: %[[M:.+]] = arith.mulf %[[F]], %{{.+}} : f32
// CHECK: arith.mulf %[[M]], %{{.+}} : f32
// CHECK-NOT: linalg.matmul
func.func @product(%x: tensor<5x8xi8>, %scales: tensor<16x1xf32>) -> tensor<5x16xf32> {
  %w = arith.constant dense_resource<w> : tensor<16x8xi8>
  %zero = arith.constant 121.0 : f32
  %step = arith.constant 3.000000e-02 : f64
  %none = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x8xf32>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%x : tensor<5x8xi8>) outs(%e : tensor<5x8xf32>) {
  ^bb0(%in: i8, %out: f32):
    %a = arith.uitofp %in : i8 to f32 loc("prov:0:dequantize")
    linalg.yield %a : f32
  } -> tensor<5x8xf32> loc("prov:0:dequantize")
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%0 : tensor<5x8xf32>) outs(%e : tensor<5x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %a = arith.subf %in, %zero : f32 loc("prov:0:dequantize")
    linalg.yield %a : f32
  } -> tensor<5x8xf32> loc("prov:0:dequantize")
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%1 : tensor<5x8xf32>) outs(%e : tensor<5x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %s = arith.truncf %step : f64 to f32 loc("prov:0:dequantize")
    %a = arith.mulf %in, %s : f32 loc("prov:0:dequantize")
    linalg.yield %a : f32
  } -> tensor<5x8xf32> loc("prov:0:dequantize")
  %f = tensor.empty() : tensor<16x8xf32>
  %3 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%w : tensor<16x8xi8>) outs(%f : tensor<16x8xf32>) {
  ^bb0(%in: i8, %out: f32):
    %a = arith.sitofp %in : i8 to f32 loc("prov:1:dequantize_1")
    linalg.yield %a : f32
  } -> tensor<16x8xf32> loc("prov:1:dequantize_1")
  %4 = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
    ins(%3, %scales : tensor<16x8xf32>, tensor<16x1xf32>) outs(%f : tensor<16x8xf32>) {
  ^bb0(%in: f32, %s: f32, %out: f32):
    %a = arith.mulf %in, %s : f32 loc("prov:1:dequantize_1")
    linalg.yield %a : f32
  } -> tensor<16x8xf32> loc("prov:1:dequantize_1")
  %g = tensor.empty() : tensor<8x16xf32>
  %5 = linalg.transpose ins(%4 : tensor<16x8xf32>) outs(%g : tensor<8x16xf32>) permutation = [1, 0] loc("prov:2:mm")
  %h = tensor.empty() : tensor<5x16xf32>
  %6 = linalg.fill ins(%none : f32) outs(%h : tensor<5x16xf32>) -> tensor<5x16xf32> loc("prov:2:mm")
  %7 = linalg.matmul ins(%2, %5 : tensor<5x8xf32>, tensor<8x16xf32>) outs(%6 : tensor<5x16xf32>) -> tensor<5x16xf32> loc("prov:2:mm")
  return %7 : tensor<5x16xf32>
}

// A factor that is no weight, and sums of a length that words do not divide, stay products of floats.

// CHECK-LABEL: func.func @no_weight
// CHECK: linalg.matmul
func.func @no_weight(%x: tensor<5x8xi8>, %y: tensor<8x16xi8>) -> tensor<5x16xf32> {
  %none = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x8xf32>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%x : tensor<5x8xi8>) outs(%e : tensor<5x8xf32>) {
  ^bb0(%in: i8, %out: f32):
    %a = arith.sitofp %in : i8 to f32
    linalg.yield %a : f32
  } -> tensor<5x8xf32> loc("prov:0:a")
  %f = tensor.empty() : tensor<8x16xf32>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%y : tensor<8x16xi8>) outs(%f : tensor<8x16xf32>) {
  ^bb0(%in: i8, %out: f32):
    %a = arith.sitofp %in : i8 to f32
    linalg.yield %a : f32
  } -> tensor<8x16xf32> loc("prov:1:b")
  %h = tensor.empty() : tensor<5x16xf32>
  %2 = linalg.fill ins(%none : f32) outs(%h : tensor<5x16xf32>) -> tensor<5x16xf32> loc("prov:2:mm")
  %3 = linalg.matmul ins(%0, %1 : tensor<5x8xf32>, tensor<8x16xf32>) outs(%2 : tensor<5x16xf32>) -> tensor<5x16xf32> loc("prov:2:mm")
  return %3 : tensor<5x16xf32>
}

// CHECK-LABEL: func.func @no_words
// CHECK: linalg.matmul
func.func @no_words(%x: tensor<5x6xi8>) -> tensor<5x16xf32> {
  %w = arith.constant dense_resource<v> : tensor<6x16xi8>
  %none = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x6xf32>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%x : tensor<5x6xi8>) outs(%e : tensor<5x6xf32>) {
  ^bb0(%in: i8, %out: f32):
    %a = arith.sitofp %in : i8 to f32
    linalg.yield %a : f32
  } -> tensor<5x6xf32> loc("prov:0:a")
  %f = tensor.empty() : tensor<6x16xf32>
  %1 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%w : tensor<6x16xi8>) outs(%f : tensor<6x16xf32>) {
  ^bb0(%in: i8, %out: f32):
    %a = arith.sitofp %in : i8 to f32
    linalg.yield %a : f32
  } -> tensor<6x16xf32> loc("prov:1:b")
  %h = tensor.empty() : tensor<5x16xf32>
  %2 = linalg.fill ins(%none : f32) outs(%h : tensor<5x16xf32>) -> tensor<5x16xf32> loc("prov:2:mm")
  %3 = linalg.matmul ins(%0, %1 : tensor<5x6xf32>, tensor<6x16xf32>) outs(%2 : tensor<5x16xf32>) -> tensor<5x16xf32> loc("prov:2:mm")
  return %3 : tensor<5x16xf32>
}

// A convolution of each channel by itself: scales of channels go with the filter through its reshape, and around the
// image lies the step that stands for 0.

// CHECK-LABEL: func.func @depthwise
// CHECK: %[[P:.+]] = tensor.pad %arg0
// CHECK: tensor.yield %c-6_i8
// CHECK: %[[F:.+]] = tensor.collapse_shape %{{.+}} {{\[\[}}0, 1], [2], [3]] : tensor<2x1x1x3xi8> into tensor<2x1x3xi8>
// CHECK: %[[S:.+]] = linalg.generic {{.*}} "reduction", "reduction"]} ins(%[[P]], %[[F]] : tensor<1x2x1x7xi8>, tensor<2x1x3xi8>)
// CHECK: arith.subi %{{.+}}, %c250_i32
// CHECK: linalg.generic {{.*}} ins(%[[S]], %arg1 : tensor<1x2x1x5xi32>, tensor<2x1x1x1xf32>)
// CHECK-NOT: linalg.depthwise_conv
func.func @depthwise(%x: tensor<1x2x1x5xi8>, %scales: tensor<2x1x1x1xf32>) -> tensor<1x2x1x5xf32> {
  %w = arith.constant dense<[[[[1, 2, 3]]], [[[4, 5, -6]]]]> : tensor<2x1x1x3xi8>
  %zero = arith.constant 250.0 : f32
  %none = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x2x1x5xf32>
  %0 = linalg.generic {indexing_maps = [#id4, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
    ins(%x : tensor<1x2x1x5xi8>) outs(%e : tensor<1x2x1x5xf32>) {
  ^bb0(%in: i8, %out: f32):
    %a = arith.uitofp %in : i8 to f32
    linalg.yield %a : f32
  } -> tensor<1x2x1x5xf32> loc("prov:0:a")
  %1 = linalg.generic {indexing_maps = [#id4, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
    ins(%0 : tensor<1x2x1x5xf32>) outs(%e : tensor<1x2x1x5xf32>) {
  ^bb0(%in: f32, %out: f32):
    %a = arith.subf %in, %zero : f32
    linalg.yield %a : f32
  } -> tensor<1x2x1x5xf32> loc("prov:0:a")
  %f = tensor.empty() : tensor<2x1x1x3xf32>
  %2 = linalg.generic {indexing_maps = [#id4, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
    ins(%w : tensor<2x1x1x3xi8>) outs(%f : tensor<2x1x1x3xf32>) {
  ^bb0(%in: i8, %out: f32):
    %a = arith.sitofp %in : i8 to f32
    linalg.yield %a : f32
  } -> tensor<2x1x1x3xf32> loc("prov:1:b")
  %3 = linalg.generic {indexing_maps = [#id4, #channel, #id4], iterator_types = ["parallel", "parallel", "parallel", "parallel"]}
    ins(%2, %scales : tensor<2x1x1x3xf32>, tensor<2x1x1x1xf32>) outs(%f : tensor<2x1x1x3xf32>) {
  ^bb0(%in: f32, %s: f32, %out: f32):
    %a = arith.mulf %in, %s : f32
    linalg.yield %a : f32
  } -> tensor<2x1x1x3xf32> loc("prov:1:b")
  %4 = tensor.collapse_shape %3 [[0, 1], [2], [3]] : tensor<2x1x1x3xf32> into tensor<2x1x3xf32> loc("prov:2:conv")
  %5 = tensor.pad %1 low[0, 0, 0, 1] high[0, 0, 0, 1] {
  ^bb0(%i: index, %j: index, %k: index, %l: index):
    tensor.yield %none : f32
  } : tensor<1x2x1x5xf32> to tensor<1x2x1x7xf32> loc("prov:2:conv")
  %6 = linalg.fill ins(%none : f32) outs(%e : tensor<1x2x1x5xf32>) -> tensor<1x2x1x5xf32> loc("prov:2:conv")
  %7 = linalg.depthwise_conv_2d_nchw_chw {dilations = dense<1> : vector<2xi64>, strides = dense<1> : vector<2xi64>}
    ins(%5, %4 : tensor<1x2x1x7xf32>, tensor<2x1x3xf32>) outs(%6 : tensor<1x2x1x5xf32>) -> tensor<1x2x1x5xf32> loc("prov:2:conv")
  return %7 : tensor<1x2x1x5xf32>
}

{-#
  dialect_resources: {
    builtin: {
      w: "0x0100000003FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE",
      v: "0x0100000003FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE03FE"
    }
  }
#-}

// Zero points are taken from wider integers before floats are made of them, as ONNX has it: a tensor of them may hold
// one number, and that of a weight 0.

// CHECK-LABEL: func.func @wide
// CHECK: linalg.generic {{.*}} "reduction"]}
// CHECK: %[[A:.+]] = arith.extui
// CHECK: %[[Z:.+]] = arith.subi %[[A]], %c9_i32
// CHECK: %[[B:.+]] = arith.extsi
// CHECK: arith.muli %[[Z]], %[[B]]
// CHECK-NOT: linalg.matmul
func.func @wide(%x: tensor<5x8xi8>, %scales: tensor<16xf32>) -> tensor<5x16xf32> {
  %w = arith.constant dense_resource<w> : tensor<8x16xi8>
  %nine = arith.constant dense<9> : tensor<i32>
  %zeros = arith.constant dense<0> : tensor<16xi32>
  %step = arith.constant dense<3.125000e-02> : tensor<f32>
  %none = arith.constant 0.0 : f32
  %ei = tensor.empty() : tensor<5x8xi32>
  %ef = tensor.empty() : tensor<5x8xf32>
  %0 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%x : tensor<5x8xi8>) outs(%ei : tensor<5x8xi32>) {
  ^bb0(%in: i8, %out: i32):
    %a = arith.extui %in : i8 to i32 loc("prov:0:dequantize")
    linalg.yield %a : i32
  } -> tensor<5x8xi32> loc("prov:0:dequantize")
  %1 = linalg.generic {indexing_maps = [#id, affine_map<(d0, d1) -> ()>, #id], iterator_types = ["parallel", "parallel"]}
    ins(%0, %nine : tensor<5x8xi32>, tensor<i32>) outs(%ei : tensor<5x8xi32>) {
  ^bb0(%in: i32, %z: i32, %out: i32):
    %a = arith.subi %in, %z : i32 loc("prov:0:dequantize")
    linalg.yield %a : i32
  } -> tensor<5x8xi32> loc("prov:0:dequantize")
  %2 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%1 : tensor<5x8xi32>) outs(%ef : tensor<5x8xf32>) {
  ^bb0(%in: i32, %out: f32):
    %a = arith.sitofp %in : i32 to f32 loc("prov:0:dequantize")
    linalg.yield %a : f32
  } -> tensor<5x8xf32> loc("prov:0:dequantize")
  %3 = linalg.generic {indexing_maps = [#id, affine_map<(d0, d1) -> ()>, #id], iterator_types = ["parallel", "parallel"]}
    ins(%2, %step : tensor<5x8xf32>, tensor<f32>) outs(%ef : tensor<5x8xf32>) {
  ^bb0(%in: f32, %s: f32, %out: f32):
    %a = arith.mulf %in, %s : f32 loc("prov:0:dequantize")
    linalg.yield %a : f32
  } -> tensor<5x8xf32> loc("prov:0:dequantize")
  %wi = tensor.empty() : tensor<8x16xi32>
  %wf = tensor.empty() : tensor<8x16xf32>
  %4 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%w : tensor<8x16xi8>) outs(%wi : tensor<8x16xi32>) {
  ^bb0(%in: i8, %out: i32):
    %a = arith.extsi %in : i8 to i32 loc("prov:1:dequantize_1")
    linalg.yield %a : i32
  } -> tensor<8x16xi32> loc("prov:1:dequantize_1")
  %5 = linalg.generic {indexing_maps = [#id, affine_map<(d0, d1) -> (d1)>, #id], iterator_types = ["parallel", "parallel"]}
    ins(%4, %zeros : tensor<8x16xi32>, tensor<16xi32>) outs(%wi : tensor<8x16xi32>) {
  ^bb0(%in: i32, %z: i32, %out: i32):
    %a = arith.subi %in, %z : i32 loc("prov:1:dequantize_1")
    linalg.yield %a : i32
  } -> tensor<8x16xi32> loc("prov:1:dequantize_1")
  %6 = linalg.generic {indexing_maps = [#id, #id], iterator_types = ["parallel", "parallel"]}
    ins(%5 : tensor<8x16xi32>) outs(%wf : tensor<8x16xf32>) {
  ^bb0(%in: i32, %out: f32):
    %a = arith.sitofp %in : i32 to f32 loc("prov:1:dequantize_1")
    linalg.yield %a : f32
  } -> tensor<8x16xf32> loc("prov:1:dequantize_1")
  %7 = linalg.generic {indexing_maps = [#id, affine_map<(d0, d1) -> (d1)>, #id], iterator_types = ["parallel", "parallel"]}
    ins(%6, %scales : tensor<8x16xf32>, tensor<16xf32>) outs(%wf : tensor<8x16xf32>) {
  ^bb0(%in: f32, %s: f32, %out: f32):
    %a = arith.mulf %in, %s : f32 loc("prov:1:dequantize_1")
    linalg.yield %a : f32
  } -> tensor<8x16xf32> loc("prov:1:dequantize_1")
  %h = tensor.empty() : tensor<5x16xf32>
  %8 = linalg.fill ins(%none : f32) outs(%h : tensor<5x16xf32>) -> tensor<5x16xf32> loc("prov:2:mm")
  %9 = linalg.matmul ins(%3, %7 : tensor<5x8xf32>, tensor<8x16xf32>) outs(%8 : tensor<5x16xf32>) -> tensor<5x16xf32> loc("prov:2:mm")
  return %9 : tensor<5x16xf32>
}
