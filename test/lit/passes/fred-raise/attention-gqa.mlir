// RUN: covan-opt %s -p 'func.func(fred-raise)' | FileCheck %s

// Keys and values that are repeated for groups of heads are read where they are.

// CHECK-LABEL: func.func @gqa(
// CHECK-SAME: %[[ARG0:[a-z_0-9]+]]: tensor<1x4x12x8xf32>, %[[ARG1:[a-z_0-9]+]]: tensor<1x2x12x8xf32>, %[[ARG2:[a-z_0-9]+]]: tensor<1x2x12x8xf32>) -> tensor<1x4x12x8xf32>
// CHECK-NEXT: %[[COLLAPSED:[a-z_0-9]+]] = tensor.collapse_shape %[[ARG1]] {{\[\[}}0, 1], [2], [3{{\]\]}} : tensor<1x2x12x8xf32> into tensor<2x12x8xf32>
// CHECK-NEXT: %[[COLLAPSED_0:[a-z_0-9]+]] = tensor.collapse_shape %[[ARG2]] {{\[\[}}0, 1], [2], [3{{\]\]}} : tensor<1x2x12x8xf32> into tensor<2x12x8xf32>
// CHECK-NEXT: %[[COLLAPSED_1:[a-z_0-9]+]] = tensor.collapse_shape %[[ARG0]] {{\[\[}}0, 1], [2], [3{{\]\]}} : tensor<1x4x12x8xf32> into tensor<4x12x8xf32>
// CHECK-NEXT: %[[EXPANDED:[a-z_0-9]+]] = tensor.expand_shape %[[COLLAPSED_1]] {{\[\[}}0, 1], [2], [3{{\]\]}} output_shape [2, 2, 12, 8] : tensor<4x12x8xf32> into tensor<2x2x12x8xf32>
// CHECK-NEXT: %[[COLLAPSED_2:[a-z_0-9]+]] = tensor.collapse_shape %[[EXPANDED]] {{\[\[}}0], [1, 2], [3{{\]\]}} : tensor<2x2x12x8xf32> into tensor<2x24x8xf32>
// CHECK-NEXT: %[[V0:[a-z_0-9]+]] = "fred.chain"(%[[COLLAPSED]], %[[COLLAPSED_0]], %[[COLLAPSED_2]]) ({
// CHECK-NEXT: ^bb0(%[[ARG3:[a-z_0-9]+]]: tensor<2x12x8xf32>, %[[ARG4:[a-z_0-9]+]]: tensor<2x12x8xf32>, %[[ARG5:[a-z_0-9]+]]: tensor<2x24x8xf32>):
// CHECK-NEXT: %[[V1:[a-z_0-9]+]] = "fred.reduce"() ({
// CHECK-NEXT: %[[V9:[a-z_0-9]+]] = "fred.read"(%[[ARG5]]) : (tensor<2x24x8xf32>) -> f32
// CHECK-NEXT: %[[V10:[a-z_0-9]+]] = "fred.read"(%[[ARG3]]) : (tensor<2x12x8xf32>) -> f32
// CHECK-NEXT: %[[V11:[a-z_0-9]+]] = arith.mulf %[[V9]], %[[V10]] : f32
// CHECK-NEXT: "fred.yield"(%[[V11]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i", "m", "j"], combine = "add", initial = 0.000000e+00 : f32, over = ["k"], value = "v0"} : () -> tensor<2x24x12xf32>
// CHECK-NEXT: %[[V2:[a-z_0-9]+]] = "fred.map"() ({
// CHECK-NEXT: %[[V9]] = "fred.read"(%[[V1]]) : (tensor<2x24x12xf32>) -> f32
// CHECK-NEXT: %[[CST:[a-z_0-9]+]] = arith.constant 2.82842708 : f32
// CHECK-NEXT: %[[V10]] = arith.divf %[[V9]], %[[CST]] : f32
// CHECK-NEXT: "fred.yield"(%[[V10]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i", "m", "j"], value = "v1"} : () -> tensor<2x24x12xf32>
// CHECK-NEXT: %[[V3:[a-z_0-9]+]] = "fred.reduce"() ({
// CHECK-NEXT: %[[V9]] = "fred.read"(%[[V2]]) : (tensor<2x24x12xf32>) -> f32
// CHECK-NEXT: "fred.yield"(%[[V9]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i", "m"], combine = "max", initial = 0xFF800000 : f32, over = ["j"], value = "v2"} : () -> tensor<2x24xf32>
// CHECK-NEXT: %[[V4:[a-z_0-9]+]] = "fred.map"() ({
// CHECK-NEXT: %[[V9]] = "fred.read"(%[[V2]]) : (tensor<2x24x12xf32>) -> f32
// CHECK-NEXT: %[[V10]] = "fred.read"(%[[V3]]) : (tensor<2x24xf32>) -> f32
// CHECK-NEXT: %[[V11]] = arith.subf %[[V9]], %[[V10]] : f32
// CHECK-NEXT: "fred.yield"(%[[V11]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i", "m", "j"], value = "v3"} : () -> tensor<2x24x12xf32>
// CHECK-NEXT: %[[V5:[a-z_0-9]+]] = "fred.map"() ({
// CHECK-NEXT: %[[V9]] = "fred.read"(%[[V4]]) : (tensor<2x24x12xf32>) -> f32
// CHECK-NEXT: %[[V10]] = math.exp %[[V9]] : f32
// CHECK-NEXT: "fred.yield"(%[[V10]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i", "m", "j"], value = "v4"} : () -> tensor<2x24x12xf32>
// CHECK-NEXT: %[[V6:[a-z_0-9]+]] = "fred.reduce"() ({
// CHECK-NEXT: %[[V9]] = "fred.read"(%[[V5]]) : (tensor<2x24x12xf32>) -> f32
// CHECK-NEXT: "fred.yield"(%[[V9]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i", "m"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "v5"} : () -> tensor<2x24xf32>
// CHECK-NEXT: %[[V7:[a-z_0-9]+]] = "fred.map"() ({
// CHECK-NEXT: %[[V9]] = "fred.read"(%[[V5]]) : (tensor<2x24x12xf32>) -> f32
// CHECK-NEXT: %[[V10]] = "fred.read"(%[[V6]]) : (tensor<2x24xf32>) -> f32
// CHECK-NEXT: %[[V11]] = arith.divf %[[V9]], %[[V10]] : f32
// CHECK-NEXT: "fred.yield"(%[[V11]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i", "m", "j"], value = "v6"} : () -> tensor<2x24x12xf32>
// CHECK-NEXT: %[[V8:[a-z_0-9]+]] = "fred.reduce"() ({
// CHECK-NEXT: %[[V9]] = "fred.read"(%[[V7]]) : (tensor<2x24x12xf32>) -> f32
// CHECK-NEXT: %[[V10]] = "fred.read"(%[[ARG4]]) : (tensor<2x12x8xf32>) -> f32
// CHECK-NEXT: %[[V11]] = arith.mulf %[[V9]], %[[V10]] : f32
// CHECK-NEXT: "fred.yield"(%[[V11]]) : (f32) -> ()
// CHECK-NEXT: }) {axes = ["i", "m", "l"], combine = "add", initial = 0.000000e+00 : f32, over = ["j"], value = "v7"} : () -> tensor<2x24x8xf32>
// CHECK-NEXT: "fred.output"(%[[V8]]) : (tensor<2x24x8xf32>) -> ()
// CHECK-NEXT: }) {axes = ["i", "j", "k", "l", "m"], inputs = {{\[\[}}"i", "j", "k"], ["i", "j", "l"], ["i", "m", "k"{{\]\]}}, names = ["x0", "x1", "x2"], {{.*}}sizes = [2, 12, 8, 8, 24]} : (tensor<2x12x8xf32>, tensor<2x12x8xf32>, tensor<2x24x8xf32>) -> tensor<2x24x8xf32>
// CHECK-NEXT: %[[EXPANDED_3:[a-z_0-9]+]] = tensor.expand_shape %[[V0]] {{\[\[}}0], [1, 2], [3{{\]\]}} output_shape [2, 2, 12, 8] : tensor<2x24x8xf32> into tensor<2x2x12x8xf32>
// CHECK-NEXT: %[[COLLAPSED_4:[a-z_0-9]+]] = tensor.collapse_shape %[[EXPANDED_3]] {{\[\[}}0, 1], [2], [3{{\]\]}} : tensor<2x2x12x8xf32> into tensor<4x12x8xf32>
// CHECK-NEXT: %[[EXPANDED_5:[a-z_0-9]+]] = tensor.expand_shape %[[COLLAPSED_4]] {{\[\[}}0, 1], [2], [3{{\]\]}} output_shape [1, 4, 12, 8] : tensor<4x12x8xf32> into tensor<1x4x12x8xf32>
// CHECK-NEXT: return %[[EXPANDED_5]] : tensor<1x4x12x8xf32>

#map = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d3, d4)>
#map1 = affine_map<(d0, d1, d2, d3, d4) -> (d0, d1, d2, d3, d4)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, d3)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>
#map4 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2, 0)>
func.func @gqa(%arg0: tensor<1x4x12x8xf32>, %arg1: tensor<1x2x12x8xf32>, %arg2: tensor<1x2x12x8xf32>) -> tensor<1x4x12x8xf32> {
  %c0_i64 = arith.constant 0 : i64
  %cst = arith.constant 0.000000e+00 : f32
  %cst_0 = arith.constant 0xFF800000 : f32
  %cst_1 = arith.constant 2.8284271247461903 : f64
  %0 = tensor.empty() : tensor<1x2x2x12x8xf32>
  %1 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%arg1 : tensor<1x2x12x8xf32>) outs(%0 : tensor<1x2x2x12x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<1x2x2x12x8xf32>
  %collapsed = tensor.collapse_shape %1 [[0], [1, 2], [3], [4]] : tensor<1x2x2x12x8xf32> into tensor<1x4x12x8xf32>
  %2 = linalg.generic {indexing_maps = [#map, #map1], iterator_types = ["parallel", "parallel", "parallel", "parallel", "parallel"]} ins(%arg2 : tensor<1x2x12x8xf32>) outs(%0 : tensor<1x2x2x12x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<1x2x2x12x8xf32>
  %3 = tensor.empty() : tensor<1x4x8x12xf32>
  %transposed = linalg.transpose ins(%collapsed : tensor<1x4x12x8xf32>) outs(%3 : tensor<1x4x8x12xf32>) permutation = [0, 1, 3, 2] 
  %collapsed_2 = tensor.collapse_shape %arg0 [[0, 1], [2], [3]] : tensor<1x4x12x8xf32> into tensor<4x12x8xf32>
  %collapsed_3 = tensor.collapse_shape %transposed [[0, 1], [2], [3]] : tensor<1x4x8x12xf32> into tensor<4x8x12xf32>
  %4 = tensor.empty() : tensor<4x12x12xf32>
  %5 = linalg.fill ins(%cst : f32) outs(%4 : tensor<4x12x12xf32>) -> tensor<4x12x12xf32>
  %6 = linalg.batch_matmul ins(%collapsed_2, %collapsed_3 : tensor<4x12x8xf32>, tensor<4x8x12xf32>) outs(%5 : tensor<4x12x12xf32>) -> tensor<4x12x12xf32>
  %expanded = tensor.expand_shape %6 [[0, 1], [2], [3]] output_shape [1, 4, 12, 12] : tensor<4x12x12xf32> into tensor<1x4x12x12xf32>
  %7 = tensor.empty() : tensor<1x4x12x12xf32>
  %8 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%expanded : tensor<1x4x12x12xf32>) outs(%7 : tensor<1x4x12x12xf32>) {
  ^bb0(%in: f32, %out: f32):
    %23 = arith.truncf %cst_1 : f64 to f32
    %24 = arith.divf %in, %23 : f32
    linalg.yield %24 : f32
  } -> tensor<1x4x12x12xf32>
  %9 = tensor.empty() : tensor<1x4x12xi64>
  %10 = linalg.fill ins(%c0_i64 : i64) outs(%9 : tensor<1x4x12xi64>) -> tensor<1x4x12xi64>
  %11 = tensor.empty() : tensor<1x4x12xf32>
  %12 = linalg.fill ins(%cst_0 : f32) outs(%11 : tensor<1x4x12xf32>) -> tensor<1x4x12xf32>
  %13:2 = linalg.generic {indexing_maps = [#map2, #map3, #map3], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%8 : tensor<1x4x12x12xf32>) outs(%12, %10 : tensor<1x4x12xf32>, tensor<1x4x12xi64>) {
  ^bb0(%in: f32, %out: f32, %out_8: i64):
    %23 = linalg.index 3 : index
    %24 = arith.index_cast %23 : index to i64
    %25 = arith.maximumf %in, %out : f32
    %26 = arith.cmpf ogt, %in, %out : f32
    %27 = arith.select %26, %24, %out_8 : i64
    linalg.yield %25, %27 : f32, i64
  } -> (tensor<1x4x12xf32>, tensor<1x4x12xi64>)
  %expanded_4 = tensor.expand_shape %13#0 [[0], [1], [2, 3]] output_shape [1, 4, 12, 1] : tensor<1x4x12xf32> into tensor<1x4x12x1xf32>
  %14 = linalg.generic {indexing_maps = [#map2, #map4, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%8, %expanded_4 : tensor<1x4x12x12xf32>, tensor<1x4x12x1xf32>) outs(%7 : tensor<1x4x12x12xf32>) {
  ^bb0(%in: f32, %in_8: f32, %out: f32):
    %23 = arith.subf %in, %in_8 : f32
    linalg.yield %23 : f32
  } -> tensor<1x4x12x12xf32>
  %15 = linalg.generic {indexing_maps = [#map2, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%14 : tensor<1x4x12x12xf32>) outs(%7 : tensor<1x4x12x12xf32>) {
  ^bb0(%in: f32, %out: f32):
    %23 = math.exp %in : f32
    linalg.yield %23 : f32
  } -> tensor<1x4x12x12xf32>
  %16 = tensor.empty() : tensor<1x4x12x1xf32>
  %17 = linalg.fill ins(%cst : f32) outs(%16 : tensor<1x4x12x1xf32>) -> tensor<1x4x12x1xf32>
  %18 = linalg.generic {indexing_maps = [#map2, #map4], iterator_types = ["parallel", "parallel", "parallel", "reduction"]} ins(%15 : tensor<1x4x12x12xf32>) outs(%17 : tensor<1x4x12x1xf32>) {
  ^bb0(%in: f32, %out: f32):
    %23 = arith.addf %in, %out : f32
    linalg.yield %23 : f32
  } -> tensor<1x4x12x1xf32>
  %19 = linalg.generic {indexing_maps = [#map2, #map4, #map2], iterator_types = ["parallel", "parallel", "parallel", "parallel"]} ins(%15, %18 : tensor<1x4x12x12xf32>, tensor<1x4x12x1xf32>) outs(%7 : tensor<1x4x12x12xf32>) {
  ^bb0(%in: f32, %in_8: f32, %out: f32):
    %23 = arith.divf %in, %in_8 : f32
    linalg.yield %23 : f32
  } -> tensor<1x4x12x12xf32>
  %collapsed_5 = tensor.collapse_shape %19 [[0, 1], [2], [3]] : tensor<1x4x12x12xf32> into tensor<4x12x12xf32>
  %collapsed_6 = tensor.collapse_shape %2 [[0, 1, 2], [3], [4]] : tensor<1x2x2x12x8xf32> into tensor<4x12x8xf32>
  %20 = tensor.empty() : tensor<4x12x8xf32>
  %21 = linalg.fill ins(%cst : f32) outs(%20 : tensor<4x12x8xf32>) -> tensor<4x12x8xf32>
  %22 = linalg.batch_matmul ins(%collapsed_5, %collapsed_6 : tensor<4x12x12xf32>, tensor<4x12x8xf32>) outs(%21 : tensor<4x12x8xf32>) -> tensor<4x12x8xf32>
  %expanded_7 = tensor.expand_shape %22 [[0, 1], [2], [3]] output_shape [1, 4, 12, 8] : tensor<4x12x8xf32> into tensor<1x4x12x8xf32>
  return %expanded_7 : tensor<1x4x12x8xf32>
}
