// RUN: %segments %s | covan-opt -p 'func.func(fred-lower)' | FileCheck %s

// Products become generic ops over the axes of the chain.

// CHECK-DAG: #[[KEYS:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d2, d3)>
// CHECK-DAG: #[[QUERIES:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
// CHECK-DAG: #[[SCORES:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
// CHECK-LABEL: func.func @attn(
// CHECK: linalg.generic {indexing_maps = [#[[KEYS]], #[[QUERIES]], #[[SCORES]]], {{.*}}["parallel", "parallel", "parallel", "reduction"]}
// CHECK: %[[P:.*]] = arith.mulf
// CHECK-NEXT: arith.addf %[[P]]
// CHECK: arith.divf
// CHECK: arith.maximumf
// CHECK: arith.subf
// CHECK: math.exp
// CHECK: arith.addf
// CHECK: %[[WEIGHTS:.*]] = linalg.generic
// CHECK: arith.divf
// CHECK: %[[O:.*]] = linalg.generic {{.*}}["parallel", "parallel", "parallel", "reduction"]} ins(%{{.*}}, %[[WEIGHTS]]
// CHECK: %[[P:.*]] = arith.mulf
// CHECK-NEXT: arith.addf %[[P]]
// CHECK: tensor.expand_shape %[[O]]
func.func @attn(%arg0: tensor<1x2x12x8xf32>, %arg1: tensor<1x2x12x8xf32>, %arg2: tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32> {
  %collapsed = tensor.collapse_shape %arg1 [[0, 1], [2], [3]] : tensor<1x2x12x8xf32> into tensor<2x12x8xf32>
  %collapsed_0 = tensor.collapse_shape %arg0 [[0, 1], [2], [3]] : tensor<1x2x12x8xf32> into tensor<2x12x8xf32>
  %collapsed_1 = tensor.collapse_shape %arg2 [[0, 1], [2], [3]] : tensor<1x2x12x8xf32> into tensor<2x12x8xf32>
  %0 = "fred.chain"(%collapsed, %collapsed_0, %collapsed_1) ({
  ^bb0(%arg3: tensor<2x12x8xf32>, %arg4: tensor<2x12x8xf32>, %arg5: tensor<2x12x8xf32>):
    %1 = "fred.reduce"() ({
      %9 = "fred.read"(%arg4) : (tensor<2x12x8xf32>) -> f32
      %10 = "fred.read"(%arg3) : (tensor<2x12x8xf32>) -> f32
      %11 = arith.mulf %9, %10 : f32
      "fred.yield"(%11) : (f32) -> ()
    }) {axes = ["i", "l", "j"], combine = "add", initial = 0.000000e+00 : f32, over = ["k"], value = "v0"} : () -> tensor<2x12x12xf32>
    %2 = "fred.map"() ({
      %9 = "fred.read"(%1) : (tensor<2x12x12xf32>) -> f32
      %cst = arith.constant 2.82842708 : f32
      %10 = arith.divf %9, %cst : f32
      "fred.yield"(%10) : (f32) -> ()
    }) {axes = ["i", "l", "j"], value = "v1"} : () -> tensor<2x12x12xf32>
    %3 = "fred.reduce"() ({
      %9 = "fred.read"(%2) : (tensor<2x12x12xf32>) -> f32
      "fred.yield"(%9) : (f32) -> ()
    }) {axes = ["i", "l"], combine = "max", initial = 0xFF800000 : f32, over = ["j"], value = "v2"} : () -> tensor<2x12xf32>
    %4 = "fred.map"() ({
      %9 = "fred.read"(%2) : (tensor<2x12x12xf32>) -> f32
      %10 = "fred.read"(%3) : (tensor<2x12xf32>) -> f32
      %11 = arith.subf %9, %10 : f32
      "fred.yield"(%11) : (f32) -> ()
    }) {axes = ["i", "l", "j"], value = "v3"} : () -> tensor<2x12x12xf32>
    %5 = "fred.map"() ({
      %9 = "fred.read"(%4) : (tensor<2x12x12xf32>) -> f32
      %10 = math.exp %9 : f32
      "fred.yield"(%10) : (f32) -> ()
    }) {axes = ["i", "l", "j"], value = "v4"} : () -> tensor<2x12x12xf32>
    %6 = "fred.reduce"() ({
      %9 = "fred.read"(%5) : (tensor<2x12x12xf32>) -> f32
      "fred.yield"(%9) : (f32) -> ()
    }) {axes = ["i", "l"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "v5"} : () -> tensor<2x12xf32>
    %7 = "fred.map"() ({
      %9 = "fred.read"(%5) : (tensor<2x12x12xf32>) -> f32
      %10 = "fred.read"(%6) : (tensor<2x12xf32>) -> f32
      %11 = arith.divf %9, %10 : f32
      "fred.yield"(%11) : (f32) -> ()
    }) {axes = ["i", "l", "j"], value = "v6"} : () -> tensor<2x12x12xf32>
    %8 = "fred.reduce"() ({
      %9 = "fred.read"(%7) : (tensor<2x12x12xf32>) -> f32
      %10 = "fred.read"(%arg5) : (tensor<2x12x8xf32>) -> f32
      %11 = arith.mulf %9, %10 : f32
      "fred.yield"(%11) : (f32) -> ()
    }) {axes = ["i", "l", "m"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "v7"} : () -> tensor<2x12x8xf32>
    "fred.output"(%8) : (tensor<2x12x8xf32>) -> ()
  }) {axes = ["i", "j", "k", "l", "m"], inputs = [["i", "j", "k"], ["i", "l", "k"], ["i", "j", "m"]], names = ["x0", "x1", "x2"], sizes = [2, 12, 8, 12, 8]} : (tensor<2x12x8xf32>, tensor<2x12x8xf32>, tensor<2x12x8xf32>) -> tensor<2x12x8xf32>
  %expanded = tensor.expand_shape %0 [[0, 1], [2], [3]] output_shape [1, 2, 12, 8] : tensor<2x12x8xf32> into tensor<1x2x12x8xf32>
  return %expanded : tensor<1x2x12x8xf32>
}
