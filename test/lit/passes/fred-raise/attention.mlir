// RUN: covan-opt %s -p 'func.func(fred-raise)' | FileCheck %s

// Transposition, batch dimensions and sizes of 1 are a matter of axes: both products are in the chain.

// CHECK-LABEL: func.func @attn(
// CHECK-SAME: %[[ARG0:[a-z_0-9]+]]: tensor<1x2x12x8xf32>, %[[ARG1:[a-z_0-9]+]]: tensor<1x2x12x8xf32>, %[[ARG2:[a-z_0-9]+]]: tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32>
// CHECK-NEXT: %[[COLLAPSED:[a-z_0-9]+]] = tensor.collapse_shape %[[ARG1]] {{\[\[}}0, 1], [2], [3{{\]\]}} : tensor<1x2x12x8xf32> into tensor<2x12x8xf32>
// CHECK-NEXT: %[[COLLAPSED_0:[a-z_0-9]+]] = tensor.collapse_shape %[[ARG0]] {{\[\[}}0, 1], [2], [3{{\]\]}} : tensor<1x2x12x8xf32> into tensor<2x12x8xf32>
// CHECK-NEXT: %[[COLLAPSED_1:[a-z_0-9]+]] = tensor.collapse_shape %[[ARG2]] {{\[\[}}0, 1], [2], [3{{\]\]}} : tensor<1x2x12x8xf32> into tensor<2x12x8xf32>
// CHECK-NEXT: %[[V0:[a-z_0-9]+]] = "fred.chain"(%[[COLLAPSED]], %[[COLLAPSED_0]], %[[COLLAPSED_1]]) ({
// CHECK-NEXT: ^bb0(%[[ARG3:[a-z_0-9]+]]: tensor<2x12x8xf32>, %[[ARG4:[a-z_0-9]+]]: tensor<2x12x8xf32>, %[[ARG5:[a-z_0-9]+]]: tensor<2x12x8xf32>):
// CHECK-NEXT: %[[V1:[a-z_0-9]+]] = "fred.reduce"() ({
// CHECK-NEXT: %[[V9:[a-z_0-9]+]] = "fred.read"(%[[ARG4]]) : (tensor<2x12x8xf32>) -> f32
// CHECK-NEXT: %[[V10:[a-z_0-9]+]] = "fred.read"(%[[ARG3]]) : (tensor<2x12x8xf32>) -> f32
// CHECK-NEXT: %[[V11:[a-z_0-9]+]] = arith.mulf %[[V9]], %[[V10]] : f32
// CHECK-NEXT: "fred.yield"(%[[V11]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i", "l", "j"], combine = "add", initial = 0.000000e+00 : f32, over = ["k"], value = "v0"} : () -> tensor<2x12x12xf32>
// CHECK-NEXT: %[[V2:[a-z_0-9]+]] = "fred.map"() ({
// CHECK-NEXT: %[[V9]] = "fred.read"(%[[V1]]) : (tensor<2x12x12xf32>) -> f32
// CHECK-NEXT: %[[CST:[a-z_0-9]+]] = arith.constant 2.82842708 : f32
// CHECK-NEXT: %[[V10]] = arith.divf %[[V9]], %[[CST]] : f32
// CHECK-NEXT: "fred.yield"(%[[V10]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i", "l", "j"], value = "v1"} : () -> tensor<2x12x12xf32>
// CHECK-NEXT: %[[V3:[a-z_0-9]+]] = "fred.reduce"() ({
// CHECK-NEXT: %[[V9]] = "fred.read"(%[[V2]]) : (tensor<2x12x12xf32>) -> f32
// CHECK-NEXT: "fred.yield"(%[[V9]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i", "l"], combine = "max", initial = 0xFF800000 : f32, over = ["j"], value = "v2"} : () -> tensor<2x12xf32>
// CHECK-NEXT: %[[V4:[a-z_0-9]+]] = "fred.map"() ({
// CHECK-NEXT: %[[V9]] = "fred.read"(%[[V2]]) : (tensor<2x12x12xf32>) -> f32
// CHECK-NEXT: %[[V10]] = "fred.read"(%[[V3]]) : (tensor<2x12xf32>) -> f32
// CHECK-NEXT: %[[V11]] = arith.subf %[[V9]], %[[V10]] : f32
// CHECK-NEXT: "fred.yield"(%[[V11]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i", "l", "j"], value = "v3"} : () -> tensor<2x12x12xf32>
// CHECK-NEXT: %[[V5:[a-z_0-9]+]] = "fred.map"() ({
// CHECK-NEXT: %[[V9]] = "fred.read"(%[[V4]]) : (tensor<2x12x12xf32>) -> f32
// CHECK-NEXT: %[[V10]] = math.exp %[[V9]] : f32
// CHECK-NEXT: "fred.yield"(%[[V10]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i", "l", "j"], value = "v4"} : () -> tensor<2x12x12xf32>
// CHECK-NEXT: %[[V6:[a-z_0-9]+]] = "fred.reduce"() ({
// CHECK-NEXT: %[[V9]] = "fred.read"(%[[V5]]) : (tensor<2x12x12xf32>) -> f32
// CHECK-NEXT: "fred.yield"(%[[V9]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i", "l"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "v5"} : () -> tensor<2x12xf32>
// CHECK-NEXT: %[[V7:[a-z_0-9]+]] = "fred.map"() ({
// CHECK-NEXT: %[[V9]] = "fred.read"(%[[V5]]) : (tensor<2x12x12xf32>) -> f32
// CHECK-NEXT: %[[V10]] = "fred.read"(%[[V6]]) : (tensor<2x12xf32>) -> f32
// CHECK-NEXT: %[[V11]] = arith.divf %[[V9]], %[[V10]] : f32
// CHECK-NEXT: "fred.yield"(%[[V11]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i", "l", "j"], value = "v6"} : () -> tensor<2x12x12xf32>
// CHECK-NEXT: %[[V8:[a-z_0-9]+]] = "fred.reduce"() ({
// CHECK-NEXT: %[[V9]] = "fred.read"(%[[V7]]) : (tensor<2x12x12xf32>) -> f32
// CHECK-NEXT: %[[V10]] = "fred.read"(%[[ARG5]]) : (tensor<2x12x8xf32>) -> f32
// CHECK-NEXT: %[[V11]] = arith.mulf %[[V9]], %[[V10]] : f32
// CHECK-NEXT: "fred.yield"(%[[V11]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i", "l", "m"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "v7"} : () -> tensor<2x12x8xf32>
// CHECK-NEXT: "fred.output"(%[[V8]]) : (tensor<2x12x8xf32>) -> ()
// CHECK-NEXT: }) {axes = ["i", "j", "k", "l", "m"], inputs = {{\[\[}}"i", "j", "k"], ["i", "l", "k"], ["i", "j", "m"{{\]\]}}, names = ["x0", "x1", "x2"], {{.*}}sizes = [2, 12, 8, 12, 8]} : (tensor<2x12x8xf32>, tensor<2x12x8xf32>, tensor<2x12x8xf32>) -> tensor<2x12x8xf32>
// CHECK-NEXT: %[[EXPANDED:[a-z_0-9]+]] = tensor.expand_shape %[[V0]] {{\[\[}}0, 1], [2], [3{{\]\]}} output_shape [1, 2, 12, 8] : tensor<2x12x8xf32> into tensor<1x2x12x8xf32>
// CHECK-NEXT: return %[[EXPANDED]] : tensor<1x2x12x8xf32>

#map = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map1 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0)>
func.func @attn(%arg0: tensor<1x2x12x8xf32>, %arg1: tensor<1x2x12x8xf32>, %arg2: tensor<1x2x12x8xf32>) -> tensor<1x2x12x8xf32> {
  %cst = arith.constant 0.000000e+00 : f32
  %c0_i64 = arith.constant 0 : i64
  %cst_0 = arith.constant 0xFF800000 : f32
  %cst_1 = arith.constant 2.8284271247461903 : f64
  %0 = tensor.empty() : tensor<1x2x8x12xf32>
  %transposed = linalg.transpose ins(%arg1 : tensor<1x2x12x8xf32>) outs(%0 : tensor<1x2x8x12xf32>) permutation = [0, 1, 3, 2] 
  %collapsed = tensor.collapse_shape %arg0 [[0, 1], [2], [3]] : tensor<1x2x12x8xf32> into tensor<2x12x8xf32>
  %collapsed_2 = tensor.collapse_shape %transposed [[0, 1], [2], [3]] : tensor<1x2x8x12xf32> into tensor<2x8x12xf32>
  %1 = tensor.empty() : tensor<2x12x12xf32>
  %2 = linalg.fill ins(%cst : f32) outs(%1 : tensor<2x12x12xf32>) -> tensor<2x12x12xf32>
  %3 = linalg.batch_matmul ins(%collapsed, %collapsed_2 : tensor<2x12x8xf32>, tensor<2x8x12xf32>) outs(%2 : tensor<2x12x12xf32>) -> tensor<2x12x12xf32>
  %expanded = tensor.expand_shape %3 [[0, 1], [2], [3]] output_shape [1, 2, 12, 12] : tensor<2x12x12xf32> into tensor<1x2x12x12xf32>
  %4 = tensor.empty() : tensor<1x2x12x12xf32>
  %5 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%expanded : tensor<1x2x12x12xf32>) outs(%4 : tensor<1x2x12x12xf32>) {
  ^bb0(%in: f32, %out: f32):
    %20 = arith.truncf %cst_1 : f64 to f32
    %21 = arith.divf %in, %20 : f32
    linalg.yield %21 : f32
  } -> tensor<1x2x12x12xf32>
  %6 = tensor.empty() : tensor<1x2x12xi64>
  %7 = linalg.fill ins(%c0_i64 : i64) outs(%6 : tensor<1x2x12xi64>) -> tensor<1x2x12xi64>
  %8 = tensor.empty() : tensor<1x2x12xf32>
  %9 = linalg.fill ins(%cst_0 : f32) outs(%8 : tensor<1x2x12xf32>) -> tensor<1x2x12xf32>
  %10:2 = linalg.generic {indexing_maps = [#map, #map1, #map1], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%5 : tensor<1x2x12x12xf32>) outs(%9, %7 : tensor<1x2x12xf32>, tensor<1x2x12xi64>) {
  ^bb0(%in: f32, %out: f32, %out_7: i64):
    %20 = linalg.index 3 : index
    %21 = arith.index_cast %20 : index to i64
    %22 = arith.maximumf %in, %out : f32
    %23 = arith.cmpf ogt, %in, %out : f32
    %24 = arith.select %23, %21, %out_7 : i64
    linalg.yield %22, %24 : f32, i64
  } -> (tensor<1x2x12xf32>, tensor<1x2x12xi64>)
  %expanded_3 = tensor.expand_shape %10#0 [[0], [1], [2, 3]] output_shape [1, 2, 12, 1] : tensor<1x2x12xf32> into tensor<1x2x12x1xf32>
  %11 = linalg.generic {indexing_maps = [#map, #map2, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%5, %expanded_3 : tensor<1x2x12x12xf32>, tensor<1x2x12x1xf32>) outs(%4 : tensor<1x2x12x12xf32>) {
  ^bb0(%in: f32, %in_7: f32, %out: f32):
    %20 = arith.subf %in, %in_7 : f32
    linalg.yield %20 : f32
  } -> tensor<1x2x12x12xf32>
  %12 = linalg.generic {indexing_maps = [#map, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%11 : tensor<1x2x12x12xf32>) outs(%4 : tensor<1x2x12x12xf32>) {
  ^bb0(%in: f32, %out: f32):
    %20 = math.exp %in : f32
    linalg.yield %20 : f32
  } -> tensor<1x2x12x12xf32>
  %13 = tensor.empty() : tensor<1x2x12x1xf32>
  %14 = linalg.fill ins(%cst : f32) outs(%13 : tensor<1x2x12x1xf32>) -> tensor<1x2x12x1xf32>
  %15 = linalg.generic {indexing_maps = [#map, #map2], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%12 : tensor<1x2x12x12xf32>) outs(%14 : tensor<1x2x12x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %20 = arith.addf %in, %out : f32
    linalg.yield %20 : f32
  } -> tensor<1x2x12x1xf32>
  %16 = linalg.generic {indexing_maps = [#map, #map2, #map], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%12, %15 : tensor<1x2x12x12xf32>, tensor<1x2x12x1xf32>) outs(%4 : tensor<1x2x12x12xf32>) {
  ^bb0(%in: f32, %in_7: f32, %out: f32):
    %20 = arith.divf %in, %in_7 : f32
    linalg.yield %20 : f32
  } -> tensor<1x2x12x12xf32>
  %collapsed_4 = tensor.collapse_shape %16 [[0, 1], [2], [3]] : tensor<1x2x12x12xf32> into tensor<2x12x12xf32>
  %collapsed_5 = tensor.collapse_shape %arg2 [[0, 1], [2], [3]] : tensor<1x2x12x8xf32> into tensor<2x12x8xf32>
  %17 = tensor.empty() : tensor<2x12x8xf32>
  %18 = linalg.fill ins(%cst : f32) outs(%17 : tensor<2x12x8xf32>) -> tensor<2x12x8xf32>
  %19 = linalg.batch_matmul ins(%collapsed_4, %collapsed_5 : tensor<2x12x12xf32>, tensor<2x12x8xf32>) outs(%18 : tensor<2x12x8xf32>) -> tensor<2x12x8xf32>
  %expanded_6 = tensor.expand_shape %19 [[0, 1], [2], [3]] output_shape [1, 2, 12, 8] : tensor<2x12x8xf32> into tensor<1x2x12x8xf32>
  return %expanded_6 : tensor<1x2x12x8xf32>
}
